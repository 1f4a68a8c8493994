// How a job's speed depends on its GPUs, from the measured step times. Optimus (Peng et al.,
// EuroSys'18) fits the step time of synchronous training; here without parameter servers
// (all-reduce): t(k) = a/k + b + c k with a, b, c >= 0, by non-negative least squares on relative
// errors.
//
// Deviates: until enough counts are measured, the missing terms are left out, which is optimistic:
// one count gives a/k, two give a/k + b. Pure.
#pragma once

#include <span>

#include "rubato/base/units.h"

namespace rubato::model {

struct StepRate {
  int gpus = 0;
  WorkRate rate = 0;
};

struct ScalingModel {
  double a = 0, b = 0, c = 0;
  [[nodiscard]] double step_time(int gpus) const { return a / gpus + b + c * gpus; }
  [[nodiscard]] WorkRate rate(int gpus) const { return 1 / step_time(gpus); }
};

// At least one rate must be above 0. Counts without a rate are left out.
[[nodiscard]] ScalingModel fit_scaling(std::span<const StepRate> shown);

}  // namespace rubato::model
