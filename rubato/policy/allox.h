// AlloX (Le et al., EuroSys'20, "Compute allocation in hybrid clusters"): the least average
// completion time, as a matching. A job that runs as the k-th from last on its GPU delays k jobs,
// itself among them, by its length p_ij; what runs there now delays it by the time r until it ends.
// To put job i there costs k x p_ij + r. Jobs are matched to (GPUs, k); only those who come first
// on an idle GPU start, the rest is matched again at the next event. Nobody is preempted. Without
// arrivals the result is optimal for jobs on one GPU.
//
// Fairness: only the ceil(alpha N) least served of the N users who wait enter (a job without a user
// is one of its own), but always as many jobs as there are idle GPUs, as in the published code.
// Ties go to the earlier submission.
//
// Equal GPUs are one group: the idle ones of a type, and the busy ones in at most eight classes by
// the time until they are free. A group of n GPUs has places of size n instead of a column for each
// GPU and place. Solved by shortest paths over the places (math/assignment.h).
//
// Deviates: the paper knows jobs on one GPU only. A larger gang is matched like any job and starts
// when its type has that many GPUs idle. With more than eight running jobs on a type, their ends
// are averaged inside a class, and no queue is longer than four places more than twice the even
// one.
//
// Knows: GPUs asked for, speed on each type, work left, user.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rubato/policy/policy.h"

namespace rubato::policy {

struct Allox {
  struct Config {
    double alpha = 0.3;
  };
  struct State {
    std::map<std::string, double> served;  // GPU-seconds of users' jobs that have ended
    std::map<JobId, std::pair<std::string, double>> seen;  // jobs: user, GPU-seconds so far
    [[nodiscard]] Json save() const;
    [[nodiscard]] static Result<State> load(const Json& json);
  };

  Config config;

  [[nodiscard]] Decision decide(const Snapshot& snapshot, State& state) const;
  [[nodiscard]] int least_gpus(const JobSpec& spec, const SpeedModel& /*speed*/) const {
    return spec.requested;
  }
  [[nodiscard]] static bool keeps_unpreemptible() { return true; }

  // Equal GPUs, which are free in so many seconds.
  struct Queue {
    GpuType type;
    int gpus = 0;
    double free_in = 0;
  };
  [[nodiscard]] static std::vector<Queue> queues(const Snapshot& snapshot,
                                                 const std::vector<int>& idle);
  // For each candidate the type on which it comes first and could start now, if any.
  [[nodiscard]] static std::vector<std::optional<GpuType>> match(
      const std::vector<const JobView*>& candidates, const std::vector<Queue>& queues, Time now);

 private:
  static void count_service(const Snapshot& snapshot, State& state);
  [[nodiscard]] std::vector<const JobView*> candidates(const Snapshot& snapshot, const State& state,
                                                       int idle) const;
};

}  // namespace rubato::policy
