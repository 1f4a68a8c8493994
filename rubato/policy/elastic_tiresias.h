// Elastic Tiresias (Wu et al., EDL, TPDS'21): the order of Tiresias (least attained service in
// discrete queues), with two more rules for jobs that can change their size:
//   compaction  while more than `waiting` jobs wait, running jobs with low GPU efficiency shrink to
//               let the next waiting job start; they keep at least the share `least` of what they
//               asked for
//   expansion   idle GPUs go, step by step, to the job that gains most
//
// Our reading where the paper is brief: GPU efficiency is p(k) / (k p(1)). So the job that uses its
// GPUs worst shrinks first, one legal count at a time. A waiting job may also start at its least
// share if GPUs are idle. The gain of a step is what it adds to p(k)/p(1) per GPU. All three are
// decided again at each event, starting from the counts asked for.
//
// Knows: attained GPU-seconds, GPUs asked for, speed curve. Never the length of a job. Cluster of
// one GPU type. Deviates: as in our Tiresias, a job is demoted exactly when it reaches a limit. A
// job that asks for more than the cluster has counts as asking for the largest legal count that
// fits. Pure: decide() is const; State is what it remembers between calls: the order inside the
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

[[nodiscard]] std::vector<PolicyEntry> elastic_tiresias_rows();

}  // namespace rubato::policy
