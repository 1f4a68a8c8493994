// Shockwave (Zheng et al., NSDI'23, "Shockwave: Fair and Efficient Cluster Scheduling for Dynamic
// Adaptation in Machine Learning"): plans the next 20 rounds of 120 s so that all jobs advance in
// proportion (Nash social welfare over time), that the longest job does not end late, and that no
// job ends later than with an equal share of the cluster. Jobs are rigid.
//
// The optimisation is in policy/shockwave_window.h. A job is not late if
//
//   end of the window + seconds left then / min(1, GPUs / jobs)  <=  rho x target
//   target = 0.9 x time-weighted mean + 0.1 x latest of its estimates of the equal-share finish,
//   where the estimate at any time is  submission + whole length / min(1, GPUs / jobs)
//
// This gives each job a least number of rounds. If not all of them can be kept, none is demanded;
// then the utility of a job that is late by a factor of r counts r^lambda (r^100 if it has less
// than a round left). A plan is made again when a job has come or ended, and when the window is
// over. GPUs that the plan leaves idle go to jobs that it does not run, the longest first.
//
// Sure, because it was read in the published code: rounds, window, objective, the shape of the
// utility, the fairness rule with its fallback, target, idle GPUs, the constants for 32 GPUs
// (k = 1e-3, lambda = 12, rho = 1; for 64 GPUs it has k = 10 and lambda = 5).
//
// Lateness is (now + seconds left / min(1, GPUs / jobs) - submission) / (target - submission).
//
// Readings: the utility at 0 is log(0.01). Which rounds of the window a job runs in is decided
// by packing, where the published solver takes any.
//
// Jobs that change their batch size by themselves (`rubato simulate --adapt-batches`): how they go
// on is predicted from the batch sizes they have used so far (model/batch_forecast.h, sure).
// `predict=off` takes the present speed for the rest of the job, as other policies do.
//
// Deviates: the relaxation is rounded instead of a mixed-integer solver with a time limit; the gap
// is known. The oracle that measures it is our own branch and bound (exact_window()), not a general
// solver such as CBC: tests compare it with trying everything. In the window a job advances at the
// mean speed of its predicted rest, where the published code takes the mean of the epochs so far.
// Lateness counts from the submission, where the published code divides moments on the scheduler's
// clock, so that the same delay counts less the longer the scheduler runs. The published code
// re-estimates shares and plans when a job has come or ended, but not at a change of batch; neither
// does this.
//
// Knows: the length of jobs at the GPUs they ask for, their age. Cluster of one GPU type.
//
// Pure: State is the plan of the window and the estimates of each job.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "rubato/policy/policy.h"
#include "rubato/policy/shockwave_window.h"

namespace rubato::policy {

struct Shockwave {
  struct Config {
    Duration round = from_seconds(120);
    int window = 20;  // rounds
    double k = 1e-3;
    double lambda = 12;
    double rho = 1;
    bool predicts = true;
  };

  // The equal-share finish of a job, over time.
  struct Target {
    double weighted = 0;  // sum of estimate x seconds for which it was the estimate
    double seconds = 0;
    double latest = 0;
    [[nodiscard]] double value() const;
  };

  struct State {
    std::optional<Time> next_round;
    std::optional<Time> counted_to;  // of targets
    std::map<JobId, Target> targets;
    std::vector<JobId> planned_for;        // jobs that were there when the plan was made
    std::vector<std::vector<JobId>> plan;  // rounds to come, the next one last
    // Of the last plan, not saved: what may be missing, and whether fairness could be demanded.
    double gap = 0;
    bool fair = true;

    [[nodiscard]] Json save() const;
    [[nodiscard]] static Result<State> load(const Json& json);
  };

  Config config;

  [[nodiscard]] Decision decide(const Snapshot& snapshot, State& state) const;
  [[nodiscard]] int least_gpus(const JobSpec& spec, const SpeedModel& /*speed*/) const {
    return spec.requested;
  }
};

[[nodiscard]] std::vector<PolicyEntry> shockwave_rows();

}  // namespace rubato::policy
