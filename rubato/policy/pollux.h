// Pollux (Qiao et al., OSDI'21, "Co-adaptive Cluster Scheduling for Goodput-Optimized Deep
// Learning"): every minute it chooses the GPUs and the batch size of all jobs again, so that jobs
// learn fast and fairly.
//
//   speedup_j = goodput of j on its GPUs / goodput of j on its fair share of GPUs
//   maximise the power mean (p = -1) over the jobs of (speedup_j / GPUs of a node + 0.001)
//
// If the GPUs of a job change, its speedup is multiplied by max(age - restarts x delay, 0) / (age +
// delay): the fraction of its life that restarts leave. Goodput is that of the best batch for each
// placement (model/goodput.h), fitted by the job's agent. A job may grow to twice the GPUs on which
// it has run. A job that never ran gets a single GPU and counts as scaling perfectly. A node is
// used by at most one job that spans several nodes, because two would slow each other down
// (avoid=off lifts this). The search is genetic (math/assignment_search.h).
//
//   batch=tuned   the batch of highest goodput, spread over GPUs and passes, is part of the grant
//   batch=fixed   every job keeps its owner's batch (the ablation of the paper, section 5.3)
//
// The decision also has the utility: the sum of the jobs' speedups over one GPU / GPUs. With
// autoscale=on it also has the number of nodes that would bring the utility closest to the middle
// of a target range (section 4.2.3). This number is found by bisection, because utility falls as
// nodes are added.
//
// As in the published simulation, and not in the paper: the fair share is ceil(GPUs / jobs) on as
// few nodes as one GPU needs. The speedup is divided by the GPUs of a node, which matters only
// relative to the 0.001.
//
// Deviates: if the fair share is more than a job can use, the most that it can use counts. The age
// is at least a second, so that a new job prefers GPUs to none. The search is seeded with the last
// population and the present state. On traces without profiles, goodput is the speed curve.
//
// Several GPU types: Pollux does not see them, as in the comparison of Sia (SOSP'23), whose code
// was read. The fit is to all measurements, whatever the type. Of the GPUs that the search finds
// for a job, only those of the type with most of them are granted, because a job runs on one type.
// The others stay idle until the next search, unless a job that would be left with nothing can use
// them (this is ours). Speed curves count as those of the first type on which the job can run.
//
// Knows: what each job's agent has fitted, attained service, age.
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

  // A solution by job instead of by row, so that it stays valid when jobs arrive or end.
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

[[nodiscard]] std::vector<PolicyEntry> pollux_rows();

}  // namespace rubato::policy
