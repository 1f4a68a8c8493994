#include "rubato/math/network.h"

#include <cmath>
#include <gtest/gtest.h>

namespace rubato::math {
namespace {

Network drawn(std::vector<std::size_t> sizes, std::uint64_t seed) {
  Network network(std::move(sizes));
  Random random(seed);
  for (double& weight : network.weights()) weight = random.uniform(-1, 1);
  return network;
}

TEST(Network, ComputesByHand) {
  Network network({2, 2, 1});
  // Hidden: max(0, 1 + 2a - b), max(0, -1 + a + b). Output: 0.5 + 3h1 - h2.
  network.weights() = {1, -1, 2, 1, -1, 1, 0.5, 3, -1};
  Network::Pass pass;
  EXPECT_DOUBLE_EQ(network.forward(std::vector{1.0, 2.0}, pass)[0], 0.5 + 3 * 1 - 2);
  EXPECT_DOUBLE_EQ(network.forward(std::vector{0.0, 0.5}, pass)[0], 0.5 + 3 * 0.5);
  EXPECT_EQ(Network::weight_count({24, 64, 32, 1}), 3713U);
}

TEST(Network, GradientsAreThoseOfFiniteDifferences) {
  Network network = drawn({3, 8, 5, 2}, 7);
  const std::vector<double> inputs = {0.3, -0.7, 1.1}, slope = {0.4, -1.3};
  Network::Pass pass;
  const auto value = [&] {
    const auto out = network.forward(inputs, pass);
    return slope[0] * out[0] + slope[1] * out[1];
  };
  (void)value();
  std::vector<double> gradient(network.weights().size());
  network.backward(pass, slope, gradient);
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    double& weight = network.weights()[i];
    const double kept = weight, step = 1e-6;
    weight = kept + step;
    const double above = value();
    weight = kept - step;
    const double below = value();
    weight = kept;
    EXPECT_NEAR(gradient[i], (above - below) / (2 * step), 1e-6) << i;
  }
}

TEST(Network, AdamLearnsExclusiveOr) {
  Network network = drawn({2, 8, 1}, 3);
  Adam adam(network.weights().size());
  double error = 0;
  for (int round = 0; round < 2000; ++round) {
    std::vector<double> gradient(network.weights().size());
    error = 0;
    for (const double a : {0.0, 1.0}) {
      for (const double b : {0.0, 1.0}) {
        Network::Pass pass;
        const double off = (a != b ? 1 : 0) - network.forward(std::vector{a, b}, pass)[0];
        network.backward(pass, std::vector{off}, gradient);
        error += off * off;
      }
    }
    adam.climb(network.weights(), gradient, 0.01);
  }
  EXPECT_LT(error, 1e-3);
}

// What the slope is a gradient of.
double objective_at(std::vector<double> scores, std::size_t chosen, double old_log,
                    double advantage, const ClippedObjective& objective) {
  softmax(scores);
  const double ratio = std::exp(std::log(scores[chosen]) - old_log);
  const double kept = std::min(std::max(ratio, 1 - objective.clip), 1 + objective.clip);
  double entropy = 0;
  for (const double p : scores) entropy -= p * std::log(p);
  return std::min(ratio * advantage, kept * advantage) + objective.entropy * entropy;
}

TEST(Network, TheSlopeOfAChoiceIsThatOfTheClippedObjective) {
  const std::vector<double> scores = {0.2, -0.5, 1.0};
  const ClippedObjective objective{0.2, 0.05};
  for (const double old_log : {-2.0, -1.0, -0.5, -0.3}) {
    for (const double advantage : {-1.5, 0.7}) {
      std::vector<double> p = scores, slope(3);
      softmax(p);
      clipped_slope(p, 2, old_log, advantage, objective, slope);
      for (std::size_t i = 0; i < 3; ++i) {
        auto up = scores, down = scores;
        up[i] += 1e-6;
        down[i] -= 1e-6;
        EXPECT_NEAR(slope[i],
                    (objective_at(up, 2, old_log, advantage, objective) -
                     objective_at(down, 2, old_log, advantage, objective)) /
                        2e-6,
                    1e-6);
      }
    }
  }
}

TEST(Network, DrawsByProbability) {
  Random random(1);
  const std::vector<double> p = {0.2, 0.5, 0.3};
  std::vector<int> drawn_times(3);
  for (int i = 0; i < 10000; ++i) ++drawn_times[draw_index(p, random)];
  EXPECT_NEAR(drawn_times[1], 5000, 200);
  EXPECT_NEAR(drawn_times[2], 3000, 200);
}

}  // namespace
}  // namespace rubato::math
