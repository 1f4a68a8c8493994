// AlloX (Le et al., EuroSys'20, "Compute allocation in hybrid clusters"): minimises the average
// completion time by a matching of jobs to places in queues.
//
// If job i runs as the k-th from last on a GPU, it delays k jobs (including itself) by its length
// p_ij. A job that already runs there delays it by the time r until that job ends. So this place
// costs k x p_ij + r. Jobs are matched to places (GPU, k). Only jobs that come first on an idle GPU
// start. The others are matched again at the next event. No job is preempted. Without arrivals the
// result is optimal for jobs on one GPU.
//
// Fairness: of the N users with waiting jobs, only the ceil(alpha N) with the least service take
// part (a job without a user counts as a user). But there are always at least as many jobs as idle
// GPUs, as in the published code. Ties go to the earlier submission.
//
// Equal GPUs form one group: the idle ones of a type, and the busy ones in at most eight classes by
// the time until they are free. A group of n GPUs has places of size n, instead of one column for
// each GPU and place. The matching is solved by shortest paths over the places (math/assignment.h).
//
// Deviates: the paper has only jobs on one GPU. A larger gang is matched like any job, and starts
// when its type has enough idle GPUs. With more than eight running jobs on a type, the end times
// inside a class are averaged. No queue is longer than twice the even length plus four places.
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

  // Equal GPUs that become free after the same number of seconds.
  struct Queue {
    GpuType type;
    int gpus = 0;
    double free_in = 0;
  };
  [[nodiscard]] static std::vector<Queue> queues(const Snapshot& snapshot,
                                                 const std::vector<int>& idle);
  // For each candidate, the type on which it comes first and could start now, if any.
  [[nodiscard]] static std::vector<std::optional<GpuType>> match(
      const std::vector<const JobView*>& candidates, const std::vector<Queue>& queues, Time now);

 private:
  static void count_service(const Snapshot& snapshot, State& state);
  [[nodiscard]] std::vector<const JobView*> candidates(const Snapshot& snapshot, const State& state,
                                                       int idle) const;
};

[[nodiscard]] std::vector<PolicyEntry> allox_rows();

}  // namespace rubato::policy
