// Which running jobs stop so that a waiting one can start: PickyMan's choice (pickyman.h), for any
// order of jobs of fixed size. It is the key `victims=cheapest` of preemptive policies.
//
// Waiting jobs come in ascending order of their keys. One that fits starts. Else it takes the GPUs
// of running jobs that give way to it, one after the other, until it fits. Victims that turn out
// not to be needed stay. If there are several GPU types, it takes those of the first type on which
// there are enough. At the end, jobs without GPUs that fit start.
//
// Pure, and nothing is remembered between calls.
#pragma once

#include <functional>
#include <utility>

#include "rubato/core/decision.h"
#include "rubato/core/snapshot.h"
#include "rubato/policy/keys.h"

namespace rubato::policy {

// The place of a job in the order.
struct Precedence {
  double key = 0;
  // Of a running job: it gives way to waiting jobs whose key is less than this.
  double gives_way_to = 0;
  std::pair<double, double> stop_turn;  // the least stops first; of equals, the newest job
};

[[nodiscard]] Decision decide_with_victims(
    const Snapshot& snapshot, const std::function<Precedence(const JobView&)>& precedence_of);

// The loss per GPU of a job that stops after any step: what it costs to free one of its GPUs.
[[nodiscard]] double restart_loss_per_gpu(const JobView& job);

// The key `victims` of a policy whose jobs stop for those that come before them in its order.
[[nodiscard]] Key victims_key();
[[nodiscard]] bool wants_cheapest_victims(const KeyValues& values);

}  // namespace rubato::policy
