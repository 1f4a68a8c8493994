// How the learning rate follows the batch size. All rules give the factor on the learning rate
// that was tuned for M0, for a batch of S x M0.
//
//   adascale       (var + sqr) / (var/S + sqr): from 1, where gradients carry no noise, to S, where
//                  they carry nothing else (AdaScale, Johnson et al. 2020)
//   adascale_adam  its square root, for Adam and its kin (Pollux, Qiao et al., OSDI'21)
//   linear         S (Goyal et al. 2017)
//   sqrt           square root of S (Krizhevsky 2014)
//
// Deviates: where nothing is known of the gradients (both 0), the AdaScale rules keep the
// learning rate; the published code takes them for pure noise. Pure.
#pragma once

#include <cstdint>

#include "rubato/model/gradient_noise.h"

namespace rubato::model {

enum class LearningRateRule : std::uint8_t { adascale, adascale_adam, linear, sqrt };

// batch_ratio is S = M/M0 > 0; the factor lies between 1 and S.
[[nodiscard]] double learning_rate_factor(LearningRateRule rule, const GradientNoise& noise,
                                          double batch_ratio);

}  // namespace rubato::model
