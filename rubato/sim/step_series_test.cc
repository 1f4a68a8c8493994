#include "rubato/sim/step_series.h"

#include <cmath>
#include <gtest/gtest.h>
#include <tuple>
#include <vector>

#include "rubato/base/random.h"

namespace rubato::sim {
namespace {

struct Step {
  double from, to, value;
};

double integral(const std::vector<Step>& steps, double from, double to) {
  double sum = 0;
  for (const auto& step : steps) {
    sum += step.value * std::max(0.0, std::min(to, step.to) - std::max(from, step.from));
  }
  return sum;
}

TEST(StepSeries, KeepsTheMeanOfEachStretchHoweverLongTheRun) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const std::size_t most = 1 + random.below(20);
    StepSeries<2> series(most);
    std::vector<Step> steps;
    double now = 0;
    for (int i = 0; i < 60; ++i) {
      const double length = std::round(random.log_uniform(0.01, 50) * 1e6) / 1e6;
      const double value = static_cast<double>(random.below(10));
      steps.push_back({now, now + length, value});
      series.add(time_at(now), time_at(now + length), {value, 1});
      now += length;
    }
    ASSERT_LE(series.size(), most);
    ASSERT_NEAR(series.end_s(), now, 1e-4);
    for (std::size_t i = 0; i < series.size(); ++i) {
      const double from = series.start_s(i);
      const double to = i + 1 < series.size() ? series.start_s(i + 1) : series.end_s();
      ASSERT_LT(from, to);
      ASSERT_NEAR(series.mean(i, 0), integral(steps, from, to) / (to - from), 1e-3);
      ASSERT_NEAR(series.mean(i, 1), 1, 1e-9);
    }
  }
}

TEST(StepSeries, IsEmptyUntilTimePasses) {
  StepSeries<1> series(4);
  EXPECT_EQ(series.size(), 0U);
  series.add(kStart, kStart, {7});
  EXPECT_EQ(series.size(), 0U);
  EXPECT_EQ(series.end_s(), 0);
}

TEST(StepSeries, OneStepOverALongTimeMergesAsOftenAsNeeded) {
  StepSeries<1> series(4);
  series.add(kStart, time_at(1e9), {3});
  EXPECT_LE(series.size(), 4U);
  for (std::size_t i = 0; i < series.size(); ++i) EXPECT_DOUBLE_EQ(series.mean(i, 0), 3);
}

}  // namespace
}  // namespace rubato::sim
