#include "rubato/model/gradient_noise.h"

#include <algorithm>
#include <cmath>

#include "rubato/base/check.h"

namespace rubato::model {
namespace {

constexpr double kNoiseSmoothing = 0.999;  // for each M0 samples

}  // namespace

double GradientNoise::signal() const {
  CHECK(sqr >= 0 && var >= 0);
  return var == 0 ? 1 : sqr / (sqr + var);
}

GradientNoise noise_of(const MicroGradients& gradients, double batch_ratio) {
  const auto& [count, mean_sqr_norm, sqr_norm_mean] = gradients;
  CHECK(count >= 2 && batch_ratio > 0);
  return {(count * sqr_norm_mean - mean_sqr_norm) / (count - 1),
          (mean_sqr_norm - sqr_norm_mean) * batch_ratio / (count - 1)};
}

GradientNoise noise_of(const SuccessiveGradients& gradients, double batch_ratio) {
  const double mean_sqr_norm = (gradients.sqr_norm_before + gradients.sqr_norm_now) / 2;
  return noise_of(MicroGradients{2, mean_sqr_norm, gradients.sqr_norm_mean}, 2 * batch_ratio);
}

void NoiseAverage::add(const GradientNoise& estimate, double batch_ratio) {
  // Mixed precision sometimes overflows. The optimizer skips such a step, and so do we.
  if (!std::isfinite(estimate.sqr) || !std::isfinite(estimate.var)) return;
  const double keep = std::pow(kNoiseSmoothing, batch_ratio);
  sum_.sqr = keep * sum_.sqr + (1 - keep) * estimate.sqr;
  sum_.var = keep * sum_.var + (1 - keep) * estimate.var;
  weight_ = keep * weight_ + (1 - keep);
}

void NoiseAverage::add(const MicroGradients& gradients, double batch_ratio) {
  if (differenced_) *this = NoiseAverage();
  add(noise_of(gradients, batch_ratio), batch_ratio);
}

void NoiseAverage::add(const SuccessiveGradients& gradients, double batch_ratio) {
  differenced_ = true;
  add(noise_of(gradients, batch_ratio), 2 * batch_ratio);
}

GradientNoise NoiseAverage::value() const {
  if (weight_ == 0) return {};
  return {std::max(sum_.sqr / weight_, 0.0), std::max(sum_.var / weight_, 0.0)};
}

}  // namespace rubato::model
