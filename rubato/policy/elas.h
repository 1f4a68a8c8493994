// E-LAS (Sultana et al., ICPP'20): least attained service, corrected by how far a job has come.
//
// Sure (abstract): the order comes from the real-time progress of epochs, and from the service
// attained in time and space (GPUs); no running times are known. Recalled: the progress is finished
// epochs / all epochs. Our reading is the formula. With a = attained GPU-time and r = progress, the
// job with the least key runs first, and a job that has not run has the key 0:
//   form=remaining  a (1 - r) / r, the GPU-time left if it goes on as it did
//   form=product    a (1 - r)
// docs/results.md says how the default was chosen. Deviates: progress is counted in work and not in
// whole epochs. Its own placement is not described in public, so the cluster's placement is used.
//
// At each event, and after every round while jobs wait, all jobs are sorted again, and every job
// that fits runs, in that order. With victims=cheapest, a job that comes before others stops those
// that lose least per GPU by it, if their key is higher by more than their loss (victims.h).
//
// Knows: GPUs asked for, attained service, share of the work done. If the owner did not say how
// much work there is, the progress is 0. Pure: decide() is const; State is that of sorted.h.
#pragma once

#include <vector>

#include "rubato/policy/sorted.h"

namespace rubato::policy {

struct Elas {
  struct Config {
    Sorted::Order order = Sorted::Order::service_left;
    Duration round{};  // 0: only events
    bool cheapest_victims = false;
  };
  using State = Sorted::State;

  Config config;

  [[nodiscard]] Decision decide(const Snapshot& snapshot, State& state) const;
  [[nodiscard]] int least_gpus(const JobSpec& spec, const SpeedModel& /*speed*/) const {
    return spec.requested;
  }
};

[[nodiscard]] std::vector<PolicyEntry> elas_rows();

}  // namespace rubato::policy
