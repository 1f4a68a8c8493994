// Sia (Jayaram Subramanya et al., SOSP'23, "Heterogeneity-aware, goodput-optimized ML-cluster
// scheduling"): every minute it chooses a GPU type, a number of GPUs and a batch for all jobs
// again. It is elastic and knows that GPU types differ.
//
// A job's configurations are (type, count): within a node the powers of two, beyond it whole nodes.
//
//   G_ij = goodput of job i in configuration j / the least goodput of job i in any of its own
//   r_i  = max(age - restarts x delay, 0) / (age + delay), and 1 while age < delay; G_ij is
//          multiplied by it if i has GPUs now and j is not its present configuration
//   p < 0: minimise  sum over the chosen (i, j) of G_ij^p  +  lambda x number of jobs without GPUs
//   p > 0: maximise  sum over the chosen (i, j) of G_ij^p  -  lambda x number of jobs without GPUs
//
// with at most one configuration for a job, and no more GPUs of a type than there are. This binary
// program is solved by math/choice_program.h. Goodput is that of the best batch, fitted by the
// job's agent for each type; for a type on which the job never ran, it follows from one on which it
// did (model/goodput_estimate.h). A job starts on the fewest GPUs it can use, and may grow to twice
// the GPUs on which it has run. While a job starts or restarts, it keeps its configuration.
//
// Placement: a part of a node is never split over nodes, and whole nodes are whole. Jobs whose
// configuration stays keep their GPUs. The others are placed, the largest first. Where there is no
// room, smaller jobs on the node that lacks least are moved out, and placed again later.
//
// Sure, because it was read in the published code: all of the above but the points below. The
// paper's text gives p = 0.5 as the default. Its code and its own section on sensitivity have -0.5,
// and so has this. lambda = 1.1 is that of the code. With 2, new jobs wait less (docs/results.md).
//
// Readings: where no configuration is a legal count for a job, its smallest legal count is one.
// In the published code a job that is not yet measured has the same goodput on all types. Here the
// speeds on one GPU are known from the start, as the paper says. Weights of jobs are not used: with
// the published objective a job of weight 2 would never be worth its GPUs.
//
// Deviates: G^p is not rounded to two decimals, which would make ties. The delay is the job's own
// restart cost, not a constant per model. The search ends after `nodes` relaxations. If a
// configuration cannot be placed (nodes of a type differ, or their size is not a power of two), the
// job takes its next best one that can; if there is none, its smallest count is split over nodes.
// Jobs whose whole speed curve is known need not be measured, so they may grow at once.
//
// Ties: which of several equally good solutions is taken is up to the solver, but the same input
// gives the same one.
//
// Knows: what each job's agent has fitted for each GPU type (or its speed curve), and its age.
//
// Pure: State is when to solve again and how often each job was restarted.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "rubato/policy/policy.h"

namespace rubato::policy {

struct Sia {
  struct Config {
    double p = -0.5;
    double lambda = 1.1;
    Duration interval = from_seconds(60);
    int nodes = 100;
  };

  struct State {
    std::optional<Time> next_round;
    std::map<JobId, int> restarts;
    // Of the last solve, not saved: the worth that may be missing, as a share of the worth.
    double gap = 0;

    [[nodiscard]] Json save() const;
    [[nodiscard]] static Result<State> load(const Json& json);
  };

  Config config;

  [[nodiscard]] Decision decide(const Snapshot& snapshot, State& state) const;
  [[nodiscard]] int least_gpus(const JobSpec& spec, const SpeedModel& /*speed*/) const {
    return spec.limits.smallest();
  }
};

[[nodiscard]] std::vector<PolicyEntry> sia_rows();

}  // namespace rubato::policy
