#include "rubato/model/fit_objective.h"

#include <cmath>
#include <cstdint>
#include <gtest/gtest.h>
#include <numbers>
#include <rapidcheck/gtest.h>
#include <vector>

#include "rubato/model/testing.h"

namespace rubato::model::fit {
namespace {

std::vector<StepMeasurement> noisy_measurements(Random& random, int count) {
  const StepTime truth = random_step_time(random);
  std::vector<StepMeasurement> all;
  for (int i = 0; i < count; ++i) {
    const Footprint place = random_place(random, 16);
    const Batch batch{1 + static_cast<int>(random.below(100)), static_cast<int>(random.below(3))};
    const double noise = random.uniform(0.7, 1.4);
    all.push_back(
        {place, batch, noise * truth.iteration(place, batch), noise * truth.grad(batch.per_gpu)});
  }
  return all;
}

RC_GTEST_PROP(FitObjective, GradientIsWhatDifferencesSay, (std::uint64_t seed)) {
  Random random(seed);
  const auto measurements = noisy_measurements(random, 1 + static_cast<int>(random.below(20)));
  Objective objective(measurements);
  const Parameters p = to_parameters(random_step_time(random));
  Parameters gradient{};
  Parameters ignored{};
  objective(p, gradient);
  for (std::size_t i = 0; i < kParameters; ++i) {
    const double step = 1e-5 * p[i];
    Parameters above = p;
    Parameters below = p;
    above[i] += step;
    below[i] -= step;
    const double slope = (objective(above, ignored) - objective(below, ignored)) / (2 * step);
    // Per relative change of the parameter, so that all have the same scale.
    RC_ASSERT(std::abs(slope - gradient[i]) * p[i] < 1e-6 * (1 + std::abs(slope) * p[i]));
  }
}

RC_GTEST_PROP(FitObjective, IsThePublishedOneButForTheSmoothing, (std::uint64_t seed)) {
  Random random(seed);
  const auto measurements = noisy_measurements(random, 12);
  const StepTime model = random_step_time(random);
  Parameters gradient{};
  const double smoothed = Objective(measurements)(to_parameters(model), gradient);
  const double published = error(model, measurements);
  RC_ASSERT(smoothed >= published - 1e-12 && smoothed <= published + 2.001e-3);
}

TEST(FitObjective, KnownValue) {
  const StepTime model{1, 1, 2, 0.5, 4, 1, 1};
  const std::vector<StepMeasurement> measurements = {
      {{1, 1}, {1, 0}, 2, 2},  // exact
      {{1, 4},
       {3, 0},
       7 * std::numbers::e,
       4 * std::numbers::e}  // each predicted at 1/e of what was measured
  };
  const double penalty = 1e-2 * (1.0 / 16 + 1.0 / 16);
  EXPECT_NEAR(error(model, measurements), std::sqrt(0.5) + std::sqrt(0.5) + penalty, 1e-12);
  StepTime overlapping = model;
  overlapping.overlap = 3;
  const std::vector<StepMeasurement> alone = {{{1, 1}, {1, 0}, 2, 2}};
  EXPECT_NEAR(error(overlapping, alone), penalty + 4e-3, 1e-12);
}

TEST(StepMeasurement, TheLastPassIsWhatAccumulationLeaves) {
  const StepMeasurement accumulated{{2, 8}, {16, 3}, 10, 2};
  EXPECT_DOUBLE_EQ(accumulated.optim_seconds(), 4);
  const auto plain = StepMeasurement::of_sync({2, 8}, 16, 10, 3);
  EXPECT_DOUBLE_EQ(plain.grad_seconds, 7);
  EXPECT_DOUBLE_EQ(plain.optim_seconds(), 10);
}

}  // namespace
}  // namespace rubato::model::fit
