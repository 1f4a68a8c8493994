// Lyra (Li, Xu, Zhu, Liu, Guo, Chen, EuroSys'23, "Lyra: Elastic Scheduling for Deep Learning
// Clusters"), its elastic part: jobs have a base demand and may have more workers. Base demands
// come first; what is left is shared out so that the completion times fall most.
//
//   base       the fewest GPUs of a job. Running jobs keep it; waiting jobs start in order of their
//              time on it, the shortest first, as far as they fit
//   flexible   a multiple-choice knapsack over the jobs that run: at most one number of further
//              workers each, value = the time by which the job then ends sooner
//
// Sure (abstract and text): the knapsack with the reduction of the JCT as value, decided anew as
// jobs come and go. Recalled: base demands first, and shortest job first among them.
//
// Deviates: the other half of the paper, servers on loan from inference and their reclaiming by
// least preemption cost, is not here. Speeds are curves and not linear: the choices are the
// measured counts that are faster than all smaller ones. The knapsack is solved exactly if jobs x
// GPUs x choices is at most 20 million; otherwise in order of value per GPU on the smallest concave
// curve above each job's values, which leaves less than one job's largest step of GPUs unused.
//
// Knows: work left, speed curve. Cluster of one GPU type.
//
// Pure: decide() is const; it remembers nothing.
#pragma once

#include <span>
#include <vector>

#include "rubato/policy/policy.h"

namespace rubato::policy {

struct Lyra {
  struct State {
    [[nodiscard]] static Json save() { return Json::object(); }
    [[nodiscard]] static Result<State> load(const Json& /*json*/) { return State(); }
  };

  [[nodiscard]] Decision decide(const Snapshot& snapshot, State& state) const;
  [[nodiscard]] int least_gpus(const JobSpec& spec, const SpeedModel& speed) const;
};

// Further GPUs, and what they are worth. Values rise with the GPUs.
struct Further {
  int gpus = 0;
  double value = 0;
};
// How many further GPUs each gets: at most one choice each, so many GPUs in all.
[[nodiscard]] std::vector<int> exact_knapsack(std::span<const std::vector<Further>> choices,
                                              int gpus);
// The same in order of value per GPU.
[[nodiscard]] std::vector<int> greedy_knapsack(std::span<const std::vector<Further>> choices,
                                               int gpus);

[[nodiscard]] std::vector<PolicyEntry> lyra_rows();

}  // namespace rubato::policy
