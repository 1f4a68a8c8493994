#include "rubato/model/convergence.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "rubato/math/nnls.h"

namespace rubato::model {
namespace {

struct FittedLoss {
  LossModel model;
  double error = std::numeric_limits<double>::infinity();
};

// The best b0 and b1 for this b2. Work is in units of the last point's work, so that the columns
// have similar size.
FittedLoss fit_above(const std::vector<LossPoint>& points, double b2) {
  const double unit = points.back().done;
  std::vector<double> a, b;
  double weight = 0;
  for (const LossPoint& point : points) {
    weight += 1 / static_cast<double>(points.size());
    const double above = point.loss - b2;
    const double row = std::sqrt(weight) * above * above;
    a.push_back(row * point.done / unit);
    a.push_back(row);
    b.push_back(row / above);
  }
  const auto fit = non_negative_least_squares(a, 2, b);
  return {{fit.x[0] / unit, fit.x[1], b2}, fit.residual};
}

}  // namespace

std::optional<LossModel> fit_losses(const ShownLosses& shown) {
  const auto& points = shown.points;
  if (points.size() < 3) return std::nullopt;
  double least = std::numeric_limits<double>::infinity();
  for (const LossPoint& point : points) least = std::min(least, point.loss);
  if (!(least > 0)) return std::nullopt;
  constexpr int kTried = 16;
  FittedLoss best;
  double low = 0;
  double high = 0.999 * least;
  for (int round = 0; round < 3; ++round) {
    const double step = (high - low) / kTried;
    for (int i = 0; i <= kTried; ++i) {
      const FittedLoss candidate = fit_above(points, low + step * i);
      if (candidate.error < best.error) best = candidate;
    }
    low = std::max(0.0, best.model.b2 - step);
    high = std::min(0.999 * least, best.model.b2 + step);
  }
  if (!(best.model.b0 > 0)) return std::nullopt;
  return best.model;
}

Work convergence(const LossModel& model, Work epoch, double threshold) {
  // With u = b0 k + b1 and e = b0 epoch: 1/(u - e) - 1/u = threshold.
  const double e = model.b0 * epoch;
  const double u = (e + std::sqrt(e * e + 4 * e / threshold)) / 2;
  return std::max(0.0, (u - model.b1) / model.b0);
}

}  // namespace rubato::model
