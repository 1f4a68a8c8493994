// The options of a Core.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rubato/api/request.h"
#include "rubato/daemon/background.h"
#include "rubato/daemon/daemon_state.h"
#include "rubato/daemon/job_texts.h"
#include "rubato/launch/master_messages.h"

namespace rubato::daemon {

struct CoreOptions {
  Cluster cluster;  // must be the one the journal began with
  // Whether the cluster of an existing journal replaces `cluster`.
  bool cluster_of_journal = false;
  // Whether the nodes are those of a cluster manager, as they must be in an existing journal.
  // nullopt: either.
  std::optional<bool> managed;
  Placement placement = Placement::pack;
  Duration interval{};                  // between decisions; 0: whenever something happens
  Duration lateness = from_seconds(5);  // spare time in every promised plan
  std::string policy = "rubato";
  // Whether `policy` replaces the policy of an existing journal.
  bool switch_policy = false;
  Duration measuring =
      from_seconds(10);  // how long to stay on a count that is tried out; 0: no trying
  Duration restart_cost = from_seconds(5);  // of a job whose restarts were not measured
  DaemonStateOptions state;

  double most_weight = 1;           // of users without a record
  std::size_t most_jobs = 100'000;  // that have not ended; beyond it, submissions get 429
  // For one user who is no admin: jobs that have not ended, and bytes of their large files.
  std::size_t most_jobs_of_user = 25'000;
  std::int64_t most_text_of_user = std::int64_t{256} << 20U;
  std::shared_ptr<JobTexts> texts;              // where large job files are kept; unset: in memory
  Duration measure_every = from_seconds(5);     // at most one row of measurements a job
  Duration settle = from_seconds(3);            // after a start or resize, before speed is measured
  Duration verdict_within = from_seconds(120);  // for measuring a job before its verdict
  bool judge_trials = true;                     // stops, holds and releases trials of searches
  std::uint64_t snapshot_rows = 50'000;
  std::uint64_t history_rows = 20'000;  // that one request for history reads
  Duration snapshot_every = std::chrono::hours(1);
  Duration keep_journal{};     // how long archived rows are kept; 0: for ever
  std::string jobs_directory;  // of FindLog
  // Whether the files in the job's directory belong to this job; unset: yes.
  std::function<Result<void>(JobId)> check_directory;
  // The largest number that a directory of a job has, if there are any.
  std::optional<JobId> newest_directory;
  std::int64_t log_limit = kLogLimit;  // bytes, of each job
  Duration hello = kHelloWithin;
  // An error if jobs of this caller cannot run here; unset: all can.
  std::function<Result<void>(const Caller&)> may_run;
  // An error if there is no room for more jobs; unset: there always is.
  std::function<Result<void>()> may_grow;
  // Problems outside of the core, for the answer to ShowHealth.
  std::function<std::vector<Problem>()> problems;
  // Where policies decide.
  std::shared_ptr<Background> background = std::make_shared<Foreground>();
  // Seconds of some clock, from any thread; for metrics alone: how long decisions and the
  // journal take.
  std::function<double()> stopwatch;
};

}  // namespace rubato::daemon
