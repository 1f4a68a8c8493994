#include "rubato/model/step_time.h"

#include <cmath>
#include <cstdint>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "rubato/model/testing.h"

namespace rubato::model {
namespace {

const StepTime kStepTime{0.1, 0.01, 0.02, 0.003, 0.2, 0.03, 1};

TEST(StepTime, KnownValues) {
  EXPECT_DOUBLE_EQ(kStepTime.grad(10), 0.2);
  EXPECT_EQ(kStepTime.sync({1, 1}), 0);
  EXPECT_DOUBLE_EQ(kStepTime.sync({1, 2}), 0.02);
  EXPECT_DOUBLE_EQ(kStepTime.sync({1, 4}), 0.026);
  EXPECT_DOUBLE_EQ(kStepTime.sync({2, 2}), 0.2);
  EXPECT_DOUBLE_EQ(kStepTime.sync({2, 8}), 0.38);
  EXPECT_EQ(kStepTime.sync({2, 8}), kStepTime.sync({5, 8}))
      << "only whether nodes are crossed counts";
  EXPECT_DOUBLE_EQ(kStepTime.iteration({1, 1}, {10, 0}), 0.2);
  EXPECT_DOUBLE_EQ(kStepTime.iteration({2, 2}, {10, 0}), 0.4) << "g = 1: one after the other";
  EXPECT_DOUBLE_EQ(kStepTime.iteration({2, 2}, {10, 3}), 1.0);
  EXPECT_DOUBLE_EQ(kStepTime.throughput({2, 2}, {10, 3}), 80);
}

TEST(StepTime, OverlapHidesTheShorter) {
  StepTime time = kStepTime;
  time.overlap = 2;
  EXPECT_DOUBLE_EQ(time.optim(3, 4), 5);
  EXPECT_DOUBLE_EQ(time.optim(4, 3), 5);
  time.overlap = 10;
  EXPECT_NEAR(time.optim(1, 2), 2, 1e-3);
  EXPECT_EQ(time.optim(2, 0), 2);
  EXPECT_EQ(time.optim(1e-300, 1e-8), 1e-8) << "nothing overflows or vanishes";
  EXPECT_DOUBLE_EQ(time.optim(1e300, 1e300), 1e300 * std::pow(2, 0.1));
}

RC_GTEST_PROP(StepTime, ObeysItsLimits, (std::uint64_t seed)) {
  Random random(seed);
  const StepTime time = random_step_time(random);
  const Footprint place = random_place(random, 64);
  const Batch batch{1 + static_cast<int>(random.below(1000)), static_cast<int>(random.below(10))};
  const double pass = time.grad(batch.per_gpu);
  const double step = time.iteration(place, batch);
  const double sync = time.sync(place);
  RC_ASSERT(time.throughput(place, batch) > 0);
  RC_ASSERT(time.sync({1, 1}) == 0);
  RC_ASSERT(step < time.iteration(place, {batch.per_gpu + 1, batch.accumulation}));
  RC_ASSERT(step < time.iteration(place, {batch.per_gpu, batch.accumulation + 1}));
  const double rounding = 1e-12 * step;
  RC_ASSERT(step >= (batch.accumulation + 1) * pass - rounding);
  RC_ASSERT(step <= (batch.accumulation + 1) * pass + sync + rounding);
  RC_ASSERT(step >= batch.accumulation * pass + sync - rounding);
}

TEST(StepTimeDeathTest, OneGpuIsOnOneNode) {
  EXPECT_DEATH(static_cast<void>(kStepTime.sync({2, 1})), "CHECK");
  EXPECT_DEATH(static_cast<void>(kStepTime.sync({0, 0})), "CHECK");
  EXPECT_DEATH(static_cast<void>(kStepTime.iteration({1, 1}, {0, 0})), "CHECK");
}

}  // namespace
}  // namespace rubato::model
