#include "rubato/model/convergence.h"

#include <cmath>
#include <gtest/gtest.h>

#include "rubato/base/random.h"

namespace rubato::model {
namespace {

ShownLosses shown(const LossModel& model, int points, double noise, std::uint64_t seed = 1) {
  Random random(seed);
  ShownLosses losses;
  losses.epoch = 100;
  for (int i = 0; i < points; ++i) {
    const double done = 100.0 * i;
    losses.points.push_back({done, model.loss(done) * (1 + noise * random.uniform(-1, 1))});
  }
  return losses;
}

TEST(Convergence, FindsTheCurveThatMadeThePoints) {
  const LossModel truth{0.002, 1.25, 0.2};
  const auto fit = fit_losses(shown(truth, 30, 0));
  ASSERT_TRUE(fit.has_value());
  for (const double done : {0.0, 1500.0, 6000.0})
    EXPECT_NEAR(fit->loss(done), truth.loss(done), 2e-3 * truth.loss(done));
}

TEST(Convergence, IsWhereAnEpochGainsTheThreshold) {
  const LossModel model{0.002, 1.25, 0.2};
  const Work end = convergence(model, 100, 0.001);
  EXPECT_NEAR(model.loss(end - 100) - model.loss(end), 0.001, 1e-9);
  EXPECT_EQ(convergence({1e-9, 50, 0}, 100, 1), 0) << "it has converged at the start";
}

TEST(Convergence, MorePointsPredictBetter) {
  const LossModel truth{0.004, 1.1, 0.1};
  const Work end = convergence(truth, 100, truth.loss(9900) - truth.loss(10000));
  double early = 0, late = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    for (const int points : {10, 90}) {
      const auto fit = fit_losses(shown(truth, points, 0.01, seed));
      ASSERT_TRUE(fit.has_value());
      const Work guess = convergence(*fit, 100, truth.loss(9900) - truth.loss(10000));
      (points == 10 ? early : late) += std::abs(std::log(guess / end)) / 20;
    }
  }
  EXPECT_LT(late, early);
  EXPECT_LT(late, 0.15);
}

TEST(Convergence, SaysNothingOfTooLittle) {
  EXPECT_FALSE(fit_losses({}).has_value());
  EXPECT_FALSE(fit_losses(shown({0.002, 1, 0.1}, 2, 0)).has_value());
  ShownLosses rising{{{0, 1}, {100, 2}, {200, 3}, {300, 4}}, 100, 0.1};
  EXPECT_FALSE(fit_losses(rising).has_value());
}

}  // namespace
}  // namespace rubato::model
