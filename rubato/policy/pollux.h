// Pollux (Qiao et al., OSDI'21, "Co-adaptive Cluster Scheduling for Goodput-Optimized Deep
// Learning"): every minute, the GPUs of the whole cluster and the batch size of each job are chosen
// anew so that jobs learn fast and fairly.
//
//   speedup_j = goodput of j on its GPUs / goodput of j on its fair share of GPUs
//   maximise the power mean (p = -1) over the jobs of (speedup_j / GPUs of a node + 0.001)
//
// A job whose GPUs change loses the share of its life that restarts have cost it: its speedup is
// multiplied by max(age - restarts x delay, 0) / (age + delay). Goodput is that of the best batch
// for each placement (model/goodput.h), fitted by the job's agent from what it has seen. A job may
// grow to twice the GPUs it has run on; one that never ran gets a single GPU and counts as scaling
// perfectly. At most one job that spans several nodes may use a node, because two would slow each
// other down (avoid=off lifts this). The search is genetic (math/assignment_search.h).
//
//   batch=tuned   the batch of highest goodput, spread over GPUs and passes, is part of the grant
//   batch=fixed   every job keeps its owner's batch (the ablation of the paper, section 5.3)
//
// Beside the grants stands the utility, the sum of the jobs' speedups over one GPU / GPUs, and with
// autoscale=on the number of nodes that would bring it closest to the middle of a wanted range
// (section 4.2.3), found by bisection: utility falls as nodes are added.
//
// As in the published simulation, and not in the paper: the fair share is ceil(GPUs / jobs) on as
// few nodes as one GPU needs, and the speedup is divided by the GPUs of a node, which matters
// beside the 0.001 alone.
//
// Deviates: a fair share above what a job can use counts as the most that it can; the age is at
// least a second, so that a job which has just come prefers GPUs to none; the search is seeded with
// the last population and the present state. On traces without profiles goodput is the speed curve.
//
// Knows: what each job's agent has fitted, attained service, age. Cluster of one GPU type.
//
// Pure: State is the last population, when to search again, and how often each job was restarted.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "rubato/math/assignment_search.h"
#include "rubato/policy/policy.h"

namespace rubato::policy {

struct Pollux {
  struct Config {
    double p = -1;
    Duration interval = from_seconds(60);
    int population = 100;
    int generations = 100;
    bool tune_batch = true;
    bool avoid_interference = true;
    bool autoscale = false;
    double low_utility = 0.35;
    double high_utility = 0.65;
    std::uint64_t seed = 1;
  };

  // A solution by job instead of by row, so that it outlives changes of the jobs.
  using Remembered = std::vector<std::pair<JobId, Shares>>;

  struct State {
    std::optional<Time> next_round;
    std::map<JobId, int> restarts;
    std::vector<Remembered> population;
    double mean = 0;  // the power mean that the last search has found; not saved

    [[nodiscard]] Json save() const;
    [[nodiscard]] static Result<State> load(const Json& json);
  };

  Config config;

  [[nodiscard]] Decision decide(const Snapshot& snapshot, State& state) const;
  [[nodiscard]] int least_gpus(const JobSpec& spec, const SpeedModel& /*speed*/) const {
    return spec.limits.smallest();
  }
  [[nodiscard]] static bool keeps_unpreemptible() { return true; }
};

}  // namespace rubato::policy
