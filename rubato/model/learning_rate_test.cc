#include "rubato/model/learning_rate.h"

#include <cmath>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "rubato/base/random.h"

namespace rubato::model {
namespace {

using Rule = LearningRateRule;

constexpr Rule kRules[] = {Rule::adascale, Rule::adascale_adam, Rule::linear, Rule::sqrt};

TEST(LearningRate, KnownValues) {
  const GradientNoise noise{2, 3};
  EXPECT_DOUBLE_EQ(learning_rate_factor(Rule::adascale, noise, 4), 5 / 2.75);
  EXPECT_DOUBLE_EQ(learning_rate_factor(Rule::adascale_adam, noise, 4), std::sqrt(5 / 2.75));
  EXPECT_EQ(learning_rate_factor(Rule::linear, noise, 4), 4);
  EXPECT_EQ(learning_rate_factor(Rule::sqrt, noise, 4), 2);
}

TEST(LearningRate, AdaScaleRunsFromConstantToLinear) {
  EXPECT_EQ(learning_rate_factor(Rule::adascale, {1, 0}, 16), 1);
  EXPECT_EQ(learning_rate_factor(Rule::adascale, {0, 1}, 16), 16);
  EXPECT_EQ(learning_rate_factor(Rule::adascale, {0, 0}, 16), 1) << "nothing known";
  EXPECT_EQ(learning_rate_factor(Rule::adascale_adam, {0, 1}, 16), 4) << "the square-root rule";
}

RC_GTEST_PROP(LearningRate, LiesBetweenOneAndTheRatioAndRises, (std::uint64_t seed)) {
  Random random(seed);
  const GradientNoise noise{random.log_uniform(1e-9, 1e9), random.log_uniform(1e-9, 1e9)};
  const double ratio = random.log_uniform(1, 1e4);
  for (const Rule rule : kRules) {
    const double factor = learning_rate_factor(rule, noise, ratio);
    RC_ASSERT(factor >= 1 - 1e-12 && factor <= ratio * (1 + 1e-12));
    RC_ASSERT(learning_rate_factor(rule, noise, 1) == 1.0);
    RC_ASSERT(learning_rate_factor(rule, noise, 2 * ratio) >= factor * (1 - 1e-12));
  }
}

}  // namespace
}  // namespace rubato::model
