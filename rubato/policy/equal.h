// Equal sharing: as many GPUs for each job as for any other, as far as counts are legal and help.
// The baseline that the elastic papers compare themselves with.
//
// GPUs go out in rounds, in order of submission: each round takes every job one legal step up,
// while the step fits, its throughput rises and no job has less. With more jobs than GPUs the first
// in order of submission run; a share is never split over time.
//
// Knows: speed curve. Cluster of one GPU type.
// Pure: decide() is const; there is nothing to remember.
#pragma once

#include "rubato/policy/policy.h"

namespace rubato::policy {

struct Equal {
  struct State {
    [[nodiscard]] Json save() const { return Json::object(); }
    [[nodiscard]] static Result<State> load(const Json& /*json*/) { return State(); }
  };

  [[nodiscard]] Decision decide(const Snapshot& snapshot, State& state) const;
  [[nodiscard]] int least_gpus(const JobSpec& spec, const SpeedModel& /*speed*/) const {
    return spec.limits.smallest();
  }
};

}  // namespace rubato::policy
