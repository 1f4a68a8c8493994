// When a training will have converged, from the losses it has shown: Optimus (Peng et al.,
// EuroSys'18) fits l(k) = 1/(b0 k + b1) + b2 with b >= 0 after k of work, late points weighing
// more.
//
// For a given b2 the model is linear, 1/(l - b2) = b0 k + b1, so non-negative least squares gives
// b0 and b1; b2 is found by trying a grid between 0 and the smallest loss and then a finer one
// around the best. Rows are weighted by (l - b2)^2, so that errors count as errors of the loss.
// Deviates: the paper leaves the weights open; ours rise linearly from the first point to the last.
//
// Pure.
#pragma once

#include <optional>

#include "rubato/core/losses.h"

namespace rubato::model {

struct LossModel {
  double b0 = 0, b1 = 0, b2 = 0;
  [[nodiscard]] double loss(Work done) const { return 1 / (b0 * done + b1) + b2; }
};

// nullopt with fewer than three points, or if the losses do not fall.
[[nodiscard]] std::optional<LossModel> fit_losses(const ShownLosses& shown);

// The work after which an epoch lowers the loss by less than the threshold.
[[nodiscard]] Work convergence(const LossModel& model, Work epoch, double threshold);

}  // namespace rubato::model
