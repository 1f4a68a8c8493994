// Fits the parameters of a StepTime to measured steps (Pollux, Qiao et al., OSDI'21, section 4.1).
//
// Minimises, over a, b >= 1e-8 and 1 <= g <= 10,
//
//   rms(log T_grad predicted / measured) + rms(log T_optim predicted / measured)
//     + 1e-3 (g - 1)^2 + 1e-2 ((b_n/a_n)^2 + (b_r/a_r)^2)
//
// where T_optim is the last, synchronising pass of a step. The fit is optimistic: what has not been
// measured is assumed to cost nothing, so that a scheduler tries it:
//
//   one batch size only        a_c = half the mean T_grad
//   no two GPUs in one node    a_r = b_r = 1e-8
//   no two nodes               a_n, b_n = 1.1 a_r, 1.1 b_r: the network is not faster than a node
//   nothing above two GPUs     b_r = b_n = 1e-8
//
// Deviates: rms(x) is sqrt(mean x^2 + 1e-6), because the root has a kink where the fit is perfect;
// an agreement within 0.1% is good enough. The search starts from the means of the measurements
// instead of fixed numbers, and uses them as units, so it works for milliseconds and for minutes.
//
// Pure and deterministic. The order of the measurements matters only for rounding.
#pragma once

#include <span>

#include "rubato/base/result.h"
#include "rubato/model/step_measurement.h"
#include "rubato/model/step_time.h"

namespace rubato::model {

// Whether the measurement is possible: times must be between 1 us and 1e7 s, and a step must be
// longer than its accumulating passes.
[[nodiscard]] Result<void> check_measurement(const StepMeasurement& measurement);

// An error if there are no measurements, or one of them is impossible.
[[nodiscard]] Result<StepTime> fit_step_time(std::span<const StepMeasurement> measurements);

}  // namespace rubato::model
