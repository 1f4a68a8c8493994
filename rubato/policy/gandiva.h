// Gandiva (Xiao et al., OSDI'18, "Gandiva: Introspective Cluster Scheduling for Deep Learning"): no
// job waits long for its first result, and what was decided is tried, measured and undone if it
// does not help. All on the measured rate of mini-batches.
//
//   time slicing  while jobs wait, a quantum each in round robin (suspend and resume)
//   packing       while jobs wait, one is tried on the GPUs of a running one of the same size; the
//                 two stay together only while their speeds over those alone add up to more than 1,
//                 which is what slicing would give them
//   migration     a job that runs slower than it would on fewer nodes moves there when room is
//                 free, and to idle GPUs of another type if it is faster there
//   grow, shrink  on GPUs that nobody wants jobs grow beyond what they asked for, as far as their
//                 limits and their speed allow; they shrink back as soon as a job waits
//
// [reading] One round robin for the whole cluster, where the paper keeps one per server. At the end
// of a quantum those who waited come first, in order, and who ran goes to the tail; so who has
// waited longest meets an empty cluster, whatever its size.
//
// [reading] The paper tries pairs by lowest GPU utilisation, which no trace tells: we try them in
// order of the queue, each pair once a GPU type, and use the estimate only to know that two jobs
// fit in memory together (its rate for the pair is not 0).
//
// [reading] A migration or a growth must pay its restart back within kPayback quanta; a growth
// after which the measured rate is not higher is undone and not tried again.
//
// [reading] Gandiva does not weigh GPU types: a job takes the first with room on which it runs.
// Moving to a faster type while nobody waits is what we make of "better affinity".
//
// A quantum is longer by the restart cost, as a job that only restarts gets nowhere.
//
// Knows: GPUs asked for, limits, the measured rate, and estimates of the speed on other counts,
// fewer nodes and beside others. Never the length of a job. Pure: decide() is const; what it
// remembers between calls is State.
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
  struct State {
    std::vector<JobId> order;                           // round robin; guests are not in it
    std::map<JobId, JobId> guest_of;                    // by host
    std::set<std::tuple<JobId, JobId, GpuType>> tried;  // pairs that were no good, smaller id first
    std::map<JobId, std::pair<GpuType, WorkRate>> alone;  // measured at the count it asked for
    std::map<JobId, Growth> grown;
    std::set<JobId> outgrown;  // growth did not help
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
  void measure(const Snapshot& snapshot, State& state) const;
  // Whether to lose a restart for a rate that is higher by so much.
  [[nodiscard]] bool pays(const JobView& job, WorkRate now, WorkRate then) const;
};

}  // namespace rubato::policy
