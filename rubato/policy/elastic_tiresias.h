// Elastic Tiresias (Wu et al., EDL, TPDS'21): the order of Tiresias (least attained service in
// discrete queues), with two rules on top that need jobs which can change their size:
//   compaction  while more than `waiting` jobs wait, running jobs of low GPU efficiency shrink,
//   down to
//               a share `least` of what they asked for, to let the next waiting job in
//   expansion   GPUs that are left idle go, step by step, to the job that gains most
//
// Our reading where the paper is brief: GPU efficiency is p(k) / (k p(1)), so the job that uses its
// GPUs worst shrinks first, one legal count at a time; a waiting job may also start at its least
// share where GPUs are idle; the gain of a step is what it adds to p(k)/p(1) for each GPU. All
// three are decided anew at each event, starting from the counts asked for.
//
// Knows: attained GPU-seconds, GPUs asked for, speed curve. Never the length of a job. Cluster of
// one GPU type. Deviates: as our Tiresias, a job is demoted at the very instant it reaches a limit.
// A job that asks for more than the cluster has is taken to ask for the largest legal count that
// fits. Pure: decide() is const; what it remembers between calls is State: the order inside the
// queues.
#pragma once

#include <vector>

#include "rubato/policy/policy.h"

namespace rubato::policy {

struct ElasticTiresias {
  struct Config {
    std::vector<GpuTime> limits;  // of each queue but the last
    int waiting = 0;              // jobs that may wait before others shrink
    double least = 0.5;           // of the count asked for
  };
  struct State {
    std::vector<std::vector<JobId>> queues;
    [[nodiscard]] Json save() const;
    [[nodiscard]] static Result<State> load(const Json& json);
  };

  Config config;

  [[nodiscard]] Decision decide(const Snapshot& snapshot, State& state) const;
  [[nodiscard]] int least_gpus(const JobSpec& spec, const SpeedModel& speed) const;

 private:
  void requeue(const Snapshot& snapshot, State& state) const;
};

}  // namespace rubato::policy
