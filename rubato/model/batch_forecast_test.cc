#include "rubato/model/batch_forecast.h"

#include <gtest/gtest.h>
#include <memory>
#include <vector>

#include "rubato/model/curve.h"

namespace rubato::model {
namespace {

constexpr Shape kOne{GpuType(), 1, 0, 0};

// An epoch is 10 steps with the first batch. It takes 10 s with it, and 2 s with twice the batch.
BatchForecast forecast(std::size_t now, double first, double second) {
  const std::vector<BatchForecast::Mode> modes = {
      {{std::make_shared<ConstantSpeed>(1), 1}, first},
      {{std::make_shared<ConstantSpeed>(2.5), 2}, second}};
  return {modes, now, 100, 10};
}

TEST(BatchForecast, TheRateIsThePresentOne) {
  EXPECT_EQ(forecast(0, 0, 0).rate(kOne), 1);
  EXPECT_EQ(forecast(1, 4, 0).rate(kOne), 5);
}

TEST(BatchForecast, PredictsByTheBatchesSoFar) {
  // At the start: the prior is 5 epochs of each. With the present one, 6 and 5 of 11; so 10 epochs
  // are 5.4545 and 4.5454, of which one of the first is under way.
  const double slow = 10 * 6.0 / 11 - 1, fast = 10 * 5.0 / 11;
  EXPECT_NEAR(forecast(0, 0, 0).seconds_left(kOne, 100),
              10 * (slow * 10 + fast * 2) / (slow + fast), 1e-9);
  // After 4 slow epochs it has just become fast.
  const double after = 10 * 9.0 / 15 - 4, more = 10 * 6.0 / 15 - 1;
  EXPECT_NEAR(forecast(1, 4, 0).seconds_left(kOne, 60),
              6 * (after * 10 + more * 2) / (after + more), 1e-9);
  // The longer it has been slow, the more of the rest is predicted to be fast.
  EXPECT_LT(forecast(0, 0, 0).seconds_left(kOne, 50) / 5,
            forecast(0, 0, 0).seconds_left(kOne, 90) / 9);
}

TEST(BatchForecast, KnowsHowLongTheWorkSoFarTook) {
  EXPECT_NEAR(forecast(0, 0, 0).seconds_done(kOne, 75), 25, 1e-9);
  EXPECT_NEAR(forecast(1, 4, 0).seconds_done(kOne, 40), 40 + 4, 1e-9);
}

TEST(BatchForecast, OneBatchIsADivision) {
  const BatchForecast one({{{std::make_shared<ConstantSpeed>(4), 1}, 0}}, 0, 100, 10);
  EXPECT_NEAR(one.seconds_left(kOne, 60), 15, 1e-9);
  EXPECT_NEAR(one.seconds_left(kOne, 1), 0.25, 1e-9);
}

}  // namespace
}  // namespace rubato::model
