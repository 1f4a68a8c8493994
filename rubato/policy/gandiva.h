// Gandiva (Xiao et al., OSDI'18, "Gandiva: Introspective Cluster Scheduling for Deep Learning"). No
// job waits long for its first result. Decisions are tried, measured, and undone if they do not
// help. All of this uses the measured rate of mini-batches.
//
//   time slicing  while jobs wait, each job gets a quantum in round robin (suspend and resume)
//   packing       while jobs wait, one is tried on the GPUs of a running job of the same size. Each
//                 speed is divided by the job's speed alone. The two stay together only while these
//                 ratios add up to more than 1; time slicing would give exactly 1
//   migration     a job that runs slower than it would on fewer nodes moves there when GPUs are
//                 free; a job also moves to idle GPUs of another type if it is faster there
//   grow, shrink  on idle GPUs, jobs grow beyond what they asked for, as far as their limits and
//                 their speed allow; they shrink back as soon as a job waits
//
// [reading] There is one round robin for the whole cluster; the paper has one per server. At the
// end of a quantum, jobs that waited come first, in order, and jobs that ran go to the tail. So the
// job that has waited longest finds an empty cluster, whatever its size.
//
// [reading] The paper tries pairs by lowest GPU utilisation, which no trace has. We try them in
// queue order, each pair once per GPU type. We use the estimate only to know whether two jobs fit
// in memory together (its rate for the pair is not 0).
//
// On a live cluster no pair was measured before, so nobody knows whether two jobs fit, and every
// pair is tried whose jobs have both been measured alone. Their reported rates come later than the
// simulator's, so a trial lasts from the moment at which both train.
//
// [reading] A migration or a growth must repay its restart within kPayback quanta. If the measured
// rate is not higher after a growth, the growth is undone and not tried again.
//
// [reading] Gandiva does not compare GPU types: a job takes the first type with room on which it
// can run. We read "better affinity" as moving to a faster type while no job waits.
//
// A quantum is extended by the restart cost, because a job that only restarts makes no progress.
//
// Knows: GPUs asked for, limits, the measured rate, and estimates of the speed on other counts, on
// fewer nodes and beside other jobs. Never the length of a job. Pure: decide() is const; State is
// what it remembers between calls.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <vector>

#include "rubato/policy/policy.h"

namespace rubato::policy {

struct Gandiva {
  struct Config {
    Duration quantum = std::chrono::seconds(60);
    Duration trial = std::chrono::seconds(10);  // how long a pair is measured
    bool packing = true;
    bool migrate = true;
    bool grow = true;
  };
  struct Growth {  // of a job beyond what it asked for
    int gpus = 0;
    WorkRate before = 0;  // measured at the count it had
  };
  struct Settled {  // of a live job: since when it trains like this
    Generation generation;
    std::optional<JobId> beside;
    Time since = kStart;
  };
  struct State {
    std::vector<JobId> order;                             // round robin; guests are not in it
    std::map<JobId, JobId> guest_of;                      // by host
    std::set<std::tuple<JobId, JobId, GpuType>> tried;    // useless pairs, smaller id first
    std::map<JobId, std::pair<GpuType, WorkRate>> alone;  // measured at the count it asked for
    std::map<JobId, Growth> grown;
    std::set<JobId> outgrown;  // growth did not help
    std::map<JobId, Settled> settled;
    std::optional<Time> quantum_end;
    [[nodiscard]] Json save() const;
    [[nodiscard]] static Result<State> load(const Json& json);
  };

  static constexpr double kPayback = 10;

  Config config;

  [[nodiscard]] Decision decide(const Snapshot& snapshot, State& state) const;
  [[nodiscard]] int least_gpus(const JobSpec& spec, const SpeedModel& /*speed*/) const {
    return spec.requested;
  }

 private:
  class Round;

  void meet(const Snapshot& snapshot, State& state) const;
  static void settle(const Snapshot& snapshot, State& state);
  void measure(const Snapshot& snapshot, State& state) const;
  // Whether a rate that is higher by this much is worth a restart.
  [[nodiscard]] bool pays(const JobView& job, WorkRate now, WorkRate then) const;
};

[[nodiscard]] std::vector<PolicyEntry> gandiva_rows();

}  // namespace rubato::policy
