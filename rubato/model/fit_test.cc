#include "rubato/model/fit.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <gtest/gtest.h>
#include <limits>
#include <rapidcheck/gtest.h>
#include <vector>

#include "rubato/model/fit_objective.h"
#include "rubato/model/testing.h"

namespace rubato::model {
namespace {

using Measurements = std::vector<StepMeasurement>;

StepMeasurement exact(const StepTime& truth, const Footprint& place, const Batch& batch) {
  return {place, batch, truth.iteration(place, batch), truth.grad(batch.per_gpu)};
}

const StepTime kTruth{0.064, 0.0045, 0.044, 0.001, 0.29, 0.0055, 2};
const Footprint kPlaces[] = {{1, 1}, {1, 2}, {1, 3}, {1, 4}, {2, 2}, {2, 4}, {2, 8}, {4, 16}};
const Batch kBatches[] = {{20, 0}, {40, 0}, {80, 1}, {200, 0}};

Measurements exact_everywhere(const StepTime& truth) {
  Measurements all;
  for (const auto& place : kPlaces)
    for (const auto& batch : kBatches) all.push_back(exact(truth, place, batch));
  return all;
}

StepTime fitted(const Measurements& measurements) {
  auto result = fit_step_time(measurements);
  EXPECT_TRUE(result.ok()) << (result.ok() ? "" : result.error().message);
  return result.ok() ? *result : StepTime{};
}

double relative_error(const StepTime& model, const StepMeasurement& m) {
  return std::abs(model.iteration(m.place, m.batch) / m.step_seconds - 1);
}

TEST(Fit, RecoversWhatItWasGiven) {
  const auto measurements = exact_everywhere(kTruth);
  const StepTime model = fitted(measurements);
  for (const auto& m : measurements) EXPECT_LT(relative_error(model, m), 0.01);
  EXPECT_NEAR(model.grad_fixed, kTruth.grad_fixed, 0.01 * kTruth.grad_fixed);
  EXPECT_NEAR(model.grad_per_sample, kTruth.grad_per_sample, 0.01 * kTruth.grad_per_sample);
  EXPECT_NEAR(model.network_sync, kTruth.network_sync, 0.05 * kTruth.network_sync);
  EXPECT_NEAR(model.overlap, kTruth.overlap, 0.1);
}

// A model on which the penalties of the objective have little effect.
StepTime gentle(StepTime time) {
  time.overlap = 1 + (time.overlap - 1) / 2;
  time.node_sync_per_gpu /= 3;
  time.network_sync_per_gpu /= 3;
  return time;
}

RC_GTEST_PROP(Fit, RecoversThePredictionsOfRandomModels, (std::uint64_t seed)) {
  Random random(seed);
  const StepTime truth = gentle(random_step_time(random));
  const auto measurements = exact_everywhere(truth);
  const auto model = fit_step_time(measurements);
  RC_ASSERT(model.ok());
  for (const auto& m : measurements) RC_ASSERT(relative_error(*model, m) < 0.01);
  // Also where it was not measured, between the measurements.
  for (const auto& place : {Footprint{1, 4}, Footprint{3, 6}, Footprint{3, 12}})
    RC_ASSERT(relative_error(*model, exact(truth, place, {60, 2})) < 0.02);
}

RC_GTEST_PROP(Fit, IsNoWorseThanTheTruthByItsOwnMeasure, (std::uint64_t seed)) {
  Random random(seed);
  const StepTime truth = random_step_time(random);
  const auto measurements = exact_everywhere(truth);
  const auto model = fit_step_time(measurements);
  RC_ASSERT(model.ok());
  // Except for the smoothing of the two errors.
  RC_ASSERT(fit::error(*model, measurements) < fit::error(truth, measurements) + 3e-3);
}

RC_GTEST_PROP(Fit, GoodputOnOneGpuIsTheMeasuredRate, (std::uint64_t seed)) {
  Random random(seed);
  const double step_seconds = random.log_uniform(1e-3, 100);
  const int batch = 1 + static_cast<int>(random.below(500));
  const Measurements one = {{{1, 1}, {batch, 0}, step_seconds, step_seconds}};
  const auto model = fit_step_time(one);
  RC_ASSERT(model.ok());
  const Goodput goodput{*model, {1, random.log_uniform(0.01, 100)}, {batch, batch, 1, batch, true}};
  const double rate = batch / step_seconds;
  RC_ASSERT(std::abs(goodput.best({1, 1})->goodput / rate - 1) < 1e-4);
}

TEST(Fit, NoStartFindsLessThanItsOwn) {
  // Minimises the same objective from many random starts. The start from the measurements is as
  // good as the best of them.
  Random random(7);
  for (int round = 0; round < 20; ++round) {
    const StepTime truth = random_step_time(random);
    Measurements noisy = exact_everywhere(truth);
    for (auto& m : noisy) {
      m.step_seconds *= random.uniform(0.9, 1.1);
      m.grad_seconds *= random.uniform(0.9, 1.0);
    }
    const double error = fit::error(fitted(noisy), noisy);
    for (int other = 0; other < 200; ++other) {
      StepTime model = truth;
      for (double* p : {&model.grad_fixed, &model.grad_per_sample, &model.node_sync,
                        &model.node_sync_per_gpu, &model.network_sync, &model.network_sync_per_gpu})
        *p *= random.log_uniform(0.8, 1.25);
      model.overlap = std::clamp(model.overlap * random.uniform(0.7, 1.4), 1.0, 10.0);
      EXPECT_LE(error, fit::error(model, noisy) + 1e-4) << "round " << round;
    }
  }
}

TEST(FitPriors, OneMeasurementScalesPerfectly) {
  const StepTime model = fitted({exact(kTruth, {1, 1}, {40, 0})});
  const double alone = model.iteration({1, 1}, {40, 0});
  EXPECT_NEAR(alone, kTruth.grad(40), 1e-4 * alone);
  for (const auto& place : kPlaces)
    EXPECT_NEAR(model.iteration(place, {40, 0}), alone, 1e-5 * alone) << place.gpus;
  EXPECT_NEAR(model.grad_fixed, alone / 2, 1e-4 * alone) << "half of a pass is fixed";
  EXPECT_NEAR(model.grad(80), 1.5 * alone, 1e-3 * alone) << "so a larger batch looks cheap";
}

TEST(FitPriors, NothingAboveTwoGpusMeansNoRetrogression) {
  const StepTime model = fitted({exact(kTruth, {1, 1}, {40, 0}), exact(kTruth, {1, 2}, {40, 0}),
                                 exact(kTruth, {2, 2}, {20, 0})});
  EXPECT_EQ(model.node_sync_per_gpu, 1e-8);
  EXPECT_EQ(model.network_sync_per_gpu, 1e-8);
  EXPECT_NEAR(model.sync({1, 8}), model.sync({1, 2}), 1e-6);
}

TEST(FitPriors, TheNetworkIsNoFasterThanANodeUntilItWasSeen) {
  const StepTime model = fitted({exact(kTruth, {1, 1}, {40, 0}), exact(kTruth, {1, 2}, {40, 0}),
                                 exact(kTruth, {1, 4}, {20, 0}), exact(kTruth, {1, 4}, {80, 0})});
  EXPECT_GT(model.node_sync, 1e-3);
  EXPECT_DOUBLE_EQ(model.network_sync, 1.1 * model.node_sync);
  EXPECT_DOUBLE_EQ(model.network_sync_per_gpu, 1.1 * model.node_sync_per_gpu);
}

TEST(FitPriors, InsideANodeNothingCostsUntilItWasSeen) {
  const StepTime model = fitted({exact(kTruth, {1, 1}, {40, 0}), exact(kTruth, {2, 8}, {40, 0}),
                                 exact(kTruth, {4, 16}, {80, 0})});
  EXPECT_EQ(model.node_sync, 1e-8);
  EXPECT_EQ(model.node_sync_per_gpu, 1e-8);
  EXPECT_GT(model.network_sync, 0.1);
}

TEST(Fit, AccumulationSaysTheSameAsPlainSteps) {
  Measurements plain;
  Measurements accumulated;
  for (const auto& place : kPlaces) {
    for (const int per_gpu : {20, 90}) {
      plain.push_back(exact(kTruth, place, {per_gpu, 0}));
      accumulated.push_back(exact(kTruth, place, {per_gpu, 5}));
    }
  }
  const StepTime a = fitted(plain);
  const StepTime b = fitted(accumulated);
  for (const auto& m : plain) {
    const double a_step = a.iteration(m.place, m.batch);
    EXPECT_NEAR(a_step, b.iteration(m.place, m.batch), 1e-3 * a_step);
  }
}

void expect_same_predictions(const StepTime& a, const StepTime& b, double tolerance) {
  for (const auto& place : kPlaces) {
    const double step = a.iteration(place, {33, 1});
    EXPECT_NEAR(step, b.iteration(place, {33, 1}), tolerance * step) << place.gpus;
  }
}

TEST(Fit, IsDeterministicAndIgnoresOrderAndDuplicates) {
  Random random(3);
  Measurements noisy = exact_everywhere(kTruth);
  for (auto& m : noisy) m.step_seconds *= random.uniform(1.0, 1.2);
  const StepTime once = fitted(noisy);
  EXPECT_EQ(fit::to_parameters(once), fit::to_parameters(fitted(noisy))) << "to the last bit";
  Measurements twice = noisy;
  twice.insert(twice.end(), noisy.begin(), noisy.end());
  expect_same_predictions(once, fitted(twice), 1e-3);
  Measurements backwards(noisy.rbegin(), noisy.rend());
  expect_same_predictions(once, fitted(backwards), 1e-3);
}

TEST(Fit, TheUnitOfTimeDoesNotMatter) {
  Measurements slow = exact_everywhere(kTruth);
  const StepTime model = fitted(slow);
  for (auto& m : slow) {
    m.step_seconds *= 1000;
    m.grad_seconds *= 1000;
  }
  const StepTime slow_model = fitted(slow);
  for (const auto& m : slow)
    EXPECT_NEAR(slow_model.iteration(m.place, m.batch) / model.iteration(m.place, m.batch), 1000,
                5);
}

void expect_usable(const StepTime& model) {
  for (const double p : fit::to_parameters(model)) EXPECT_TRUE(std::isfinite(p) && p >= 1e-8);
  EXPECT_GE(model.overlap, 1);
  EXPECT_LE(model.overlap, 10);
  EXPECT_GT(model.throughput({16, 64}, {1, 0}), 0);
}

TEST(Fit, StandsAnythingThatPassesItsDoor) {
  expect_usable(fitted(Measurements(100, exact(kTruth, {2, 8}, {40, 0}))));
  expect_usable(fitted({{{1, 1}, {1, 0}, 1e-6, 1e-6}}));
  expect_usable(fitted({{{1, 1}, {1'000'000, 0}, 1e-6, 1e-6}, {{1, 1}, {1, 0}, 1e7, 1e7}}));
  expect_usable(fitted({{{1, 4}, {8, 0}, 1e-6, 1e7}}));  // a step shorter than its pass
  expect_usable(fitted({{{9, 100'000}, {8, 0}, 5, 1}, {{1, 2}, {8, 0}, 1, 1}}));
  Random random(11);
  for (int round = 0; round < 300; ++round) {
    Measurements junk;
    for (std::uint64_t i = 0; i <= random.below(10); ++i) {
      const Batch batch{static_cast<int>(random.log_uniform(1, 1e6)),
                        static_cast<int>(random.below(3))};
      const double grad = random.log_uniform(1e-5, 1e5);
      const double optim = random.log_uniform(1e-5, 1e5);
      junk.push_back({random_place(random, 1000), batch, batch.accumulation * grad + optim, grad});
      // If the last pass is so short, the subtraction may leave nothing of it.
      if (junk.back().optim_seconds() < 1e-6) junk.back().step_seconds += 1e-3 * grad;
    }
    expect_usable(fitted(junk));
  }
}

TEST(Fit, RefusesWhatCannotBe) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  const auto refused = [](const StepMeasurement& m, const char* why) {
    Measurements measurements(3, exact(kTruth, {1, 1}, {40, 0}));
    measurements.push_back(m);
    const auto result = fit_step_time(measurements);
    ASSERT_FALSE(result.ok()) << why;
    EXPECT_NE(result.error().message.find(why), std::string::npos) << result.error().message;
  };
  EXPECT_FALSE(fit_step_time({}).ok());
  refused({{0, 1}, {1, 0}, 1, 1}, "no such placement");
  refused({{2, 1}, {1, 0}, 1, 1}, "no such placement");
  refused({{1, 1}, {0, 0}, 1, 1}, "no such batch");
  refused({{1, 1}, {1, -1}, 1, 1}, "no such batch");
  for (const double bad : {0.0, -1.0, 1e-7, 1e8, nan, infinity}) {
    refused({{1, 1}, {1, 0}, bad, 1}, "between");
    refused({{1, 1}, {1, 0}, 1, bad}, "between");
  }
  refused({{1, 1}, {1, 4}, 1, 0.25}, "longer than its accumulating passes");
}

}  // namespace
}  // namespace rubato::model
