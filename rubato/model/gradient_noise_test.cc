#include "rubato/model/gradient_noise.h"

#include <cmath>
#include <gtest/gtest.h>
#include <numbers>
#include <vector>

#include "rubato/base/random.h"

namespace rubato::model {
namespace {

using Vector = std::vector<double>;

double normal(Random& random) {
  return std::sqrt(random.exponential(2)) * std::cos(2 * std::numbers::pi * random.uniform());
}

double sqr_norm(const Vector& v) {
  double sum = 0;
  for (const double x : v) sum += x * x;
  return sum;
}

// Gradients of an artificial model: a true gradient plus noise of variance 1/batch in each
// direction, stronger in some directions. Its sqr and var are known.
struct Model {
  static constexpr double kInitialBatch = 8;
  Vector gradient = {0.3, -0.2, 0.5, 0, 0.1};
  Vector deviation = {1, 2, 0.5, 1, 3};  // of one sample

  [[nodiscard]] double sqr() const { return sqr_norm(gradient); }
  [[nodiscard]] double var() const { return sqr_norm(deviation) / kInitialBatch; }
  [[nodiscard]] Vector sample(Random& random, double batch) const {
    Vector v = gradient;
    for (std::size_t i = 0; i < v.size(); ++i)
      v[i] += deviation[i] * normal(random) / std::sqrt(batch);
    return v;
  }
};

Vector mean_of(const std::vector<Vector>& vectors) {
  Vector mean(vectors.front().size());
  for (const auto& v : vectors)
    for (std::size_t i = 0; i < v.size(); ++i)
      mean[i] += v[i] / static_cast<double>(vectors.size());
  return mean;
}

MicroGradients micro_gradients(const Model& model, Random& random, int count, double batch) {
  std::vector<Vector> all;
  MicroGradients result{count, 0, 0};
  for (int i = 0; i < count; ++i) {
    all.push_back(model.sample(random, batch / count));
    result.mean_sqr_norm += sqr_norm(all.back()) / count;
  }
  result.sqr_norm_mean = sqr_norm(mean_of(all));
  return result;
}

SuccessiveGradients successive(const Vector& before, const Vector& now) {
  return {sqr_norm(before), sqr_norm(now), sqr_norm(mean_of({before, now}))};
}

// The mean of many trials, and its statistical error.
struct Trials {
  double sum = 0;
  double sum_of_squares = 0;
  double count = 0;

  void add(double x) {
    sum += x;
    sum_of_squares += x * x;
    ++count;
  }
  void expect_mean(double expected, const char* what) const {
    const double mean = sum / count;
    const double error = std::sqrt((sum_of_squares / count - mean * mean) / count);
    EXPECT_NEAR(mean, expected, 4 * error) << what;
    EXPECT_LT(4 * error, 0.1 * expected) << what << ": more trials, or the test says nothing";
  }
};

TEST(GradientNoise, KnownValues) {
  // Micro-gradients (1, 0) and (0, 1): mean |g|^2 = 1, |mean|^2 = 1/2.
  const auto noise = noise_of(MicroGradients{2, 1, 0.5}, 3);
  EXPECT_DOUBLE_EQ(noise.sqr, 0);
  EXPECT_DOUBLE_EQ(noise.var, 1.5);
  const auto same = noise_of(MicroGradients{4, 2, 2}, 1);
  EXPECT_DOUBLE_EQ(same.sqr, 2);
  EXPECT_DOUBLE_EQ(same.var, 0);
  const auto difference = noise_of(SuccessiveGradients{1, 1, 0.5}, 3);
  EXPECT_DOUBLE_EQ(difference.var, 3) << "the two together are a batch of 2 S";
  EXPECT_DOUBLE_EQ((GradientNoise{2, 3}.scale(8)), 12);
  EXPECT_TRUE(std::isinf((GradientNoise{0, 1}.scale(8))));
  EXPECT_EQ((GradientNoise{0, 0}.scale(8)), 0);
}

TEST(GradientNoise, GainIsTheFormulaOfAdaScale) {
  const GradientNoise noise{2, 3};
  for (const double ratio : {1.0, 1.5, 4.0, 1000.0})
    EXPECT_DOUBLE_EQ(noise.gain(ratio), (3 + 2) / (3 / ratio + 2)) << ratio;
  EXPECT_EQ((GradientNoise{0, 1}.gain(7)), 7) << "nothing but noise";
  EXPECT_EQ((GradientNoise{1, 0}.gain(7)), 1) << "no noise";
  EXPECT_EQ((GradientNoise{0, 0}.gain(7)), 1) << "nothing known";
}

class ManyMicroGradients : public ::testing::TestWithParam<int> {};

TEST_P(ManyMicroGradients, AreUnbiased) {
  const Model model;
  const double batch = 32;
  Trials sqr;
  Trials var;
  Random random(GetParam());
  for (int i = 0; i < 60'000; ++i) {
    const auto noise =
        noise_of(micro_gradients(model, random, GetParam(), batch), batch / Model::kInitialBatch);
    sqr.add(noise.sqr);
    var.add(noise.var);
  }
  sqr.expect_mean(model.sqr(), "sqr");
  var.expect_mean(model.var(), "var");
}

INSTANTIATE_TEST_SUITE_P(Counts, ManyMicroGradients, ::testing::Values(2, 3, 8));

TEST(SuccessiveGradients, AreUnbiasedWhileTheGradientStaysTheSame) {
  const Model model;
  const double batch = 16;
  Trials sqr;
  Trials var;
  Random random(5);
  Vector before = model.sample(random, batch);
  for (int i = 0; i < 60'000; ++i) {
    const Vector now = model.sample(random, batch);
    const auto noise = noise_of(successive(before, now), batch / Model::kInitialBatch);
    sqr.add(noise.sqr);
    var.add(noise.var);
    before = now;
  }
  sqr.expect_mean(model.sqr(), "sqr");
  var.expect_mean(model.var(), "var");
}

TEST(NoiseAverage, BothEstimatorsAgree) {
  const Model model;
  const double ratio = 2;
  NoiseAverage micro;
  NoiseAverage differenced;
  Random random(6);
  Vector before = model.sample(random, ratio * Model::kInitialBatch);
  for (int i = 0; i < 20'000; ++i) {
    micro.add(micro_gradients(model, random, 4, ratio * Model::kInitialBatch), ratio);
    const Vector now = model.sample(random, ratio * Model::kInitialBatch);
    differenced.add(successive(before, now), ratio);
    before = now;
  }
  EXPECT_NEAR(micro.value().var / differenced.value().var, 1, 0.15);
  EXPECT_NEAR(micro.value().sqr / differenced.value().sqr, 1, 0.5) << "|g|^2 is the noisier";
  EXPECT_NEAR(micro.value().var / model.var(), 1, 0.15);
}

TEST(NoiseAverage, IsUnbiasedFromTheFirstStep) {
  NoiseAverage average;
  EXPECT_TRUE(average.empty());
  EXPECT_EQ(average.value().var, 0);
  for (int i = 0; i < 3; ++i) {
    average.add(MicroGradients{2, 5, 4}, 2);
    EXPECT_NEAR(average.value().sqr, 3, 1e-12);
    EXPECT_NEAR(average.value().var, 2, 1e-12);
  }
}

TEST(NoiseAverage, ForgetsBySamplesNotBySteps) {
  NoiseAverage small_steps;
  NoiseAverage large_steps;
  const MicroGradients old{2, 5, 4};
  const MicroGradients fresh{2, 50, 40};
  small_steps.add(old, 1);
  large_steps.add(old, 1);
  for (int i = 0; i < 64; ++i) small_steps.add(fresh, 1);
  large_steps.add(fresh, 64);
  EXPECT_NEAR(small_steps.value().sqr, large_steps.value().sqr, 1e-9);
}

TEST(NoiseAverage, BetterEstimatesReplaceDifferencedOnes) {
  NoiseAverage average;
  for (int i = 0; i < 1000; ++i) average.add(SuccessiveGradients{100, 100, 1}, 1);
  average.add(MicroGradients{2, 5, 4}, 2);
  EXPECT_NEAR(average.value().sqr, 3, 1e-12) << "the past is gone";
  EXPECT_NEAR(average.value().var, 2, 1e-12);
}

TEST(NoiseAverage, NeverNegativeAndNeverPoisoned) {
  NoiseAverage average;
  average.add(MicroGradients{2, 5, 1}, 1);  // sqr = -3 by bad luck
  EXPECT_EQ(average.value().sqr, 0);
  EXPECT_EQ(average.value().var, 4);
  average.add(MicroGradients{2, INFINITY, 1}, 1);
  average.add(MicroGradients{2, NAN, 1}, 1);
  EXPECT_EQ(average.value().var, 4) << "a step whose gradient overflowed is left out";
}

TEST(GradientNoiseDeathTest, OneGradientSaysNothing) {
  EXPECT_DEATH(static_cast<void>(noise_of(MicroGradients{1, 1, 1}, 1)), "CHECK");
  EXPECT_DEATH(static_cast<void>(noise_of(MicroGradients{2, 1, 1}, 0)), "CHECK");
}

}  // namespace
}  // namespace rubato::model
