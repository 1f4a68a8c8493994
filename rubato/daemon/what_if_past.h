// What a what-if takes from a journal: the state of the cluster at the beginning, what users and
// machines did from then on, and how fast jobs really trained. It takes neither a decision nor the
// time at which a job ended (docs/what-if.md).
//
// Reads the journal of a daemon that may be running. Otherwise pure.
#pragma once

#include <compare>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "rubato/api/request.h"
#include "rubato/daemon/daemon_state.h"
#include "rubato/daemon/what_if_world.h"

namespace rubato::daemon {

struct WhatIfRange {
  Moment since = std::chrono::hours(24);
  std::optional<Moment> until;
  WallTime now{};
};

// What happened from outside.
struct PastRequest {
  JobId job;  // as the journal numbers it; JobId() if it is not about a job
  Caller caller;
  Ask ask;
};
struct PastSwitch {  // only for the what-if of what really ran
  std::string policy;
};
struct PastInput {
  WallTime at{};
  std::variant<PastRequest, PastSwitch, NodeChanged, NodeAdded, Reserved> what;
  int turn = 0;  // inputs with another number came in another turn, perhaps at the same time
  // Of a request that came so soon after something that a program made it which waited for that.
  struct Awaited {
    JobId job;
    bool verdict = false;  // about the job; otherwise its end
    friend auto operator<=>(const Awaited&, const Awaited&) = default;
  };
  std::optional<Awaited> after{};
  Duration later{0};
};

struct Past {
  WallTime since{};  // not before the journal begins
  WallTime until{};
  Time start = kStart;   // `since` on the loop's clock
  std::string snapshot;  // the state then
  std::string policy;    // in force then
  std::vector<PastInput> inputs;
  std::map<JobId, JobTruth> truths;
  std::map<JobId, std::vector<JobTruth>> runs;  // that measured the speed of a job, in order
  std::map<JobId, double> done;       // work done at the beginning, of jobs that were there
  std::unique_ptr<DaemonState> real;  // what really happened, at `until`
  // How often a job reports that has trained on the same GPUs for some time: about a thousand times
  // in the range, so that a long range takes no longer than it must.
  [[nodiscard]] Duration distance() const;
  Duration measuring = from_seconds(10);
  Duration restart_cost = from_seconds(5);

  // How much is known about the jobs, for the sentences that say so.
  int timed = 0;      // reported no progress: the time that they ran is taken as their length
  int guessed = 0;    // never ran: their length is a guess
  int one_count = 0;  // were measured on one GPU count
  int endless = 0;    // had not ended, and do not say how much work they have
  int adaptive = 0;   // choose their batch size
  int failures = 0;   // failed runs
};

[[nodiscard]] Result<Past> read_past(const std::filesystem::path& directory,
                                     const WhatIfRange& range, const DaemonStateOptions& options,
                                     const std::function<void(double)>& progress);

}  // namespace rubato::daemon
