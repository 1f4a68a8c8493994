// The machines of a what-if: jobs that train as fast as they really did. They carry out the
// commands of a core, and report facts and progress to it, in simulated time.
//
// What is known about a job is its JobTruth, which comes from the journal (what_if_past.h). A job
// loads before it trains, perhaps with a few workers first; trains on while it grows or shrinks,
// and stands still for a moment when that is done. A job that is stopped continues where it was.
// As long as it gets the commands that it really got, it does what it really did (Episode): it
// trains as fast, needs as long and reports the same. Otherwise averages say what it does.
//
// Pure, deterministic.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "rubato/daemon/records.h"
#include "rubato/daemon/what_if_episode.h"
#include "rubato/engine/engine_table.h"
#include "rubato/launch/master_messages.h"
#include "rubato/loop/engine.h"

namespace rubato::daemon {

// How long something takes on average, by the GPUs that the job has then.
using Delays = std::map<int, Duration>;

// How fast the job was in one part of its work, as a share of its average on as many GPUs.
struct Pace {
  double from = 0;
  double to = 0;
  double share = 1;
};

// How a job trains. Work is in the unit that its program reports.
struct JobTruth {
  enum class Reports : std::uint8_t { nothing, steps, samples, epochs };

  Reports reports = Reports::nothing;
  std::optional<double> amount;  // of work, in all; nullopt: it does not end by itself
  std::map<int, double> rates;   // work a second, by workers
  int few = 0;                   // workers that train before all of a start have joined; 0: all
  double samples_each = 0;       // samples for each step or epoch; 0: not reported
  std::vector<Pace> paces;       // in order, and none over another; 1 in the parts between
  Delays trains;                 // from a start until it trains
  Delays runs;                   // from a start until all its workers run
  Delays grows;                  // from the command to grow until all its workers run
  Delays shrinks;                // from the command to shrink until the others have left
  Duration stops = from_seconds(0.5);   // from the command to stop until all has ended
  Duration halts = from_seconds(0.05);  // the same before it has trained
  Duration ends = from_seconds(0.2);    // from the report of its last step until all has ended
  Duration pause = from_seconds(0.1);   // of a resize
  std::optional<Tuning> tuning;         // of a job that chooses its batch size: what it measured
  bool elastic = true;                  // otherwise a resize is a restart
  std::vector<double> fails_at;         // its run failed when this much work was done; ascending
  std::string fails_why;
  std::vector<Episode> episodes;  // in order; none that was over when the what-if begins

  // Between known counts the speed is interpolated. Beyond the largest, it grows as between the two
  // largest, and does not fall; if only one is known, and below the smallest, it is in proportion
  // to the workers.
  [[nodiscard]] double rate(int gpus) const;
  // The speed when so much work is done.
  [[nodiscard]] double rate(int gpus, double done) const;
  // The work that is done after so many seconds more.
  [[nodiscard]] double done_after(int gpus, double done, double seconds) const;
  [[nodiscard]] double seconds_until(int gpus, double done, double goal) const;

 private:
  // The pace at this point of the work, and where it ends.
  [[nodiscard]] std::pair<double, double> pace_at(double done) const;
};

class WhatIfWorld final : public Engine {
 public:
  // The truth about a job of the core.
  using Truths = std::function<const JobTruth*(JobId)>;

  // Jobs that have trained on the same GPUs for some time report every `seldom`.
  WhatIfWorld(Cluster cluster, Truths truths, Duration seldom)
      : cluster_(std::move(cluster)), truths_(std::move(truths)), seldom_(seldom) {}

  // Jobs that have GPUs when the what-if begins, with the work that they have done.
  void adopt(Time now, const KnownJob& known, bool training, double done);
  // Work that a job has done before it starts here.
  void has_done(JobId job, double done) { jobs_[job].done = done; }
  void change_node(Time now, NodeId node, NodeState state);
  void add_node(const NodeAdded& node);
  void reserve(const Reserved& gpus) { facts_.emplace_back(gpus); }
  void forget(JobId job) { jobs_.erase(job); }

  void carry_out(Time now, std::span<const Command> commands) override;
  void collect(Time now, std::vector<Fact>& facts) override;
  // Whether there is something to collect then.
  [[nodiscard]] bool advance(Time now);

  // The progress that is due to be reported. `stores`: whether the daemon stores what it knows of a
  // job by now. That is then new, too.
  [[nodiscard]] std::vector<JobStatus> reports(Time now,
                                               const std::function<bool(JobId)>& stores = nullptr);
  // The jobs in reports() whose report was due. Others report because something happens.
  [[nodiscard]] const std::vector<JobId>& due() const { return due_; }
  // The daemon has not stored what the job last reported. It reports again, at the latest then.
  void report_by(JobId id, Time at);
  // When something happens next if no command comes.
  [[nodiscard]] Time next() const;

 private:
  enum class Phase : std::uint8_t { away, loading, training, resizing, pausing, stopping, ending };
  struct Job {
    const JobTruth* truth = nullptr;
    Generation generation;
    Phase phase = Phase::away;
    Allocation gpus;            // on which it trains
    Allocation to;              // that it should have
    Allocation holds;           // that it has not released; of a growth that was taken back, too
    Time until = kNever;        // the end of the phase
    Time trains_at = kNever;    // after a start
    Time releases_at = kNever;  // something of what it holds too much, before the end of the phase
    std::size_t releases = 0;   // of the episode, that are done
    double done = 0;
    Time at = kStart;   // when that was done
    int trains_on = 0;  // workers; 0: it stands still
    Time report_at = kNever;
    Time changed = kStart;
    Duration pause{0};  // of this resize
    std::vector<double> pauses;
    int resizes = 0;
    std::size_t failures = 0;

    Record record;
    const Episode* follows = nullptr;  // it does now what it did then; nullptr: as the averages say
    Time follows_since = kStart;
    double done_then = 0;  // its work at that moment
    JobProgress reported;  // last, of an episode
    bool heard = true;     // it has reported since its start
    bool unread = false;   // the daemon may not have stored what it reported last

    std::deque<std::pair<Time, double>> marks;  // work at moments of the last seconds

    [[nodiscard]] double done_by(Time now) const;
    void mark(Time now);
    // What its program reports: the mean of the last seconds.
    [[nodiscard]] double speed(Time now) const;
    // What it did then says nothing about later.
    [[nodiscard]] Time follows_until() const {
      return follows->last_speed() > 0 ? kNever : follows_since + follows->length();
    }
    // When so much work is done.
    [[nodiscard]] Time time_of(double work) const;
  };

  [[nodiscard]] Job& job(JobId id);
  void start(Time now, JobId id, Generation generation, const Allocation& gpus);
  void resize(Time now, JobId id, Generation generation, const Allocation& gpus);
  void stop(Time now, JobId id, Generation generation);
  // Looks for what the job really did after this command. True if it does it again.
  bool follow(Time now, Job& job, CommandKind told, int gpus) const;
  // How long it takes until all workers run: as long as it really did; `average` if that is not
  // known.
  [[nodiscard]] static Duration takes(const Job& job, Duration average);
  static void follow_no_more(Time now, Job& job);
  void plan_report(Time now, Job& job) const;
  void load(Time now, Job& job);
  void train(Time now, Job& job);
  static void leave(Time now, Job& job);
  static void train_on(Time now, Job& job, int gpus);
  void release(JobId id, Job& job);
  void release_again(JobId id, Job& job);
  void let_go(JobId id, Job& job, const Allocation& gpus);
  static void plan_release(Job& job);
  // The work at which the job ends or fails, and whether it fails.
  [[nodiscard]] static std::pair<std::optional<double>, bool> goal(const Job& job);
  [[nodiscard]] static Time event_of(const Job& job);
  // Whether a fact follows from its next event.
  [[nodiscard]] static bool tells(Time now, const Job& job);
  void happen(Time now, JobId id, Job& one);
  [[nodiscard]] static JobStatus status_of(Time now, JobId id, Job& one);

  Cluster cluster_;
  Truths truths_;
  Duration seldom_;
  std::map<JobId, Job> jobs_;
  std::vector<Fact> facts_;
  std::vector<JobId> due_;
};

}  // namespace rubato::daemon
