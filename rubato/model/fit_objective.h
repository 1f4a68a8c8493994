// The objective of a fit of step times, and its gradient. model/fit.h explains it.
//
// Only for the fit and its tests. Pure. An object belongs to one thread, because it keeps
// intermediate results.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "rubato/model/step_measurement.h"
#include "rubato/model/step_time.h"

namespace rubato::model::fit {

// The parameters of a StepTime in the order in which the minimiser sees them, named as in the
// paper.
enum Parameter : std::size_t { a_c, b_c, a_r, b_r, a_n, b_n, g };
constexpr std::size_t kParameters = g + 1;
using Parameters = std::array<double, kParameters>;

[[nodiscard]] StepTime to_step_time(const Parameters& p);
[[nodiscard]] Parameters to_parameters(const StepTime& time);

// The objective as published, without the smoothing.
[[nodiscard]] double error(const StepTime& model, std::span<const StepMeasurement> measurements);

// The smoothed objective.
class Objective {
 public:
  explicit Objective(std::span<const StepMeasurement> measurements);

  // Writes the gradient too.
  double operator()(const Parameters& p, Parameters& gradient);

 private:
  struct Row {
    double samples;
    double more_gpus;  // than two
    bool alone;
    Parameter link;   // a_r or a_n; its b is the next
    double log_grad;  // measured
    double log_optim;
    // Predictions:
    double grad = 0;
    double sync = 0;
    double grad_error = 0;
    double optim_error = 0;
    double grad_share = 1;  // d log T_optim / d log T_grad
    double by_overlap = 0;  // d log T_optim / d g
  };
  static void predict(const Parameters& p, Row& row);

  std::vector<Row> rows_;
};

}  // namespace rubato::model::fit
