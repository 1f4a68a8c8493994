// Random models for property tests.
#pragma once

#include <algorithm>

#include "rubato/base/random.h"
#include "rubato/model/goodput.h"
#include "rubato/model/step_time.h"

namespace rubato::model {

// From milliseconds to minutes; synchronisation from a hundredth to ten times the computation.
inline StepTime random_step_time(Random& random) {
  StepTime time;
  time.grad_fixed = random.log_uniform(1e-3, 10);
  time.grad_per_sample = time.grad_fixed * random.log_uniform(1e-4, 1);
  time.node_sync = time.grad_fixed * random.log_uniform(0.01, 3);
  time.node_sync_per_gpu = time.node_sync * random.log_uniform(1e-3, 0.3);
  time.network_sync = time.node_sync * random.log_uniform(1, 10);
  time.network_sync_per_gpu = time.network_sync * random.log_uniform(1e-3, 0.3);
  time.overlap = random.uniform() < 0.2 ? 1 : random.uniform(1, 5);
  return time;
}

inline Footprint random_place(Random& random, int most_gpus) {
  const int gpus = 1 + static_cast<int>(random.below(static_cast<std::uint64_t>(most_gpus)));
  const int nodes = 1 + static_cast<int>(random.below(static_cast<std::uint64_t>(gpus)));
  return {random.uniform() < 0.5 ? 1 : nodes, gpus};
}

inline BatchLimits random_limits(Random& random) {
  BatchLimits limits;
  limits.initial = static_cast<int>(random.log_uniform(1, 300));
  limits.largest = static_cast<int>(limits.initial * random.log_uniform(1, 100));
  limits.per_gpu_max = static_cast<int>(random.log_uniform(1, limits.largest + 1));
  limits.per_gpu_min = static_cast<int>(random.log_uniform(1, limits.per_gpu_max));
  limits.accumulate = random.uniform() < 0.8;
  return limits;
}

inline Goodput random_goodput(Random& random) {
  const double sqr = random.log_uniform(1e-9, 1e9);
  return {
      random_step_time(random), {sqr, sqr * random.log_uniform(1e-3, 1e3)}, random_limits(random)};
}

}  // namespace rubato::model
