// How the learning rate follows the batch size. Each rule gives a factor for a batch of S x M0; it
// multiplies the learning rate that was tuned for M0.
//
//   adascale       (var + sqr) / (var/S + sqr): from 1, if gradients have no noise, to S, if they
//                  are only noise (AdaScale, Johnson et al. 2020)
//   adascale_adam  its square root, for Adam and its kin (Pollux, Qiao et al., OSDI'21)
//   linear         S (Goyal et al. 2017)
//   sqrt           square root of S (Krizhevsky 2014)
//
// Deviates: if nothing is known about the gradients (both are 0), the AdaScale rules keep the
// learning rate; the published code treats them as pure noise. Pure.
#pragma once

#include <cstdint>

#include "rubato/model/gradient_noise.h"

namespace rubato::model {

enum class LearningRateRule : std::uint8_t { adascale, adascale_adam, linear, sqrt };

// batch_ratio is S = M/M0 > 0. The factor is between 1 and S.
[[nodiscard]] double learning_rate_factor(LearningRateRule rule, const GradientNoise& noise,
                                          double batch_ratio);

}  // namespace rubato::model
