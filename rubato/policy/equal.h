// Equal sharing: each job gets as many GPUs as any other, as far as counts are legal and useful.
// This is the baseline of the papers about elastic jobs.
//
// GPUs are given out in rounds, in order of submission. In each round every job takes one legal
// step up, if the step fits, if its throughput rises, and if no job has fewer GPUs. With more jobs
// than GPUs, the first ones in order of submission run. A share is never divided over time.
//
// Knows: speed curve. Cluster of one GPU type. Pure: decide() is const, and there is no state.
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

[[nodiscard]] std::vector<PolicyEntry> equal_rows();

}  // namespace rubato::policy
