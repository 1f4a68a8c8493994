#include "rubato/model/learning_rate.h"

#include <cmath>

#include "rubato/base/check.h"

namespace rubato::model {

double learning_rate_factor(LearningRateRule rule, const GradientNoise& noise, double batch_ratio) {
  CHECK(batch_ratio > 0);
  switch (rule) {
    case LearningRateRule::adascale:
      return noise.gain(batch_ratio);
    case LearningRateRule::adascale_adam:
      return std::sqrt(noise.gain(batch_ratio));
    case LearningRateRule::linear:
      return batch_ratio;
    case LearningRateRule::sqrt:
      return std::sqrt(batch_ratio);
  }
  CHECK(false);
  return 1;
}

}  // namespace rubato::model
