// Predicts when training converges, from the losses so far. Optimus (Peng et al., EuroSys'18) fits
// l(k) = 1/(b0 k + b1) + b2 with b >= 0, where k is the work done. Later points have more weight.
//
// For a given b2 the model is linear, 1/(l - b2) = b0 k + b1, so non-negative least squares gives
// b0 and b1. b2 is found on a grid between 0 and the smallest loss, and then on a finer grid around
// the best value. Rows are weighted by (l - b2)^2, so that errors count as errors of the loss.
// Deviates: the paper does not give the weights; ours rise linearly from the first point to the
// last.
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
