// Small neural networks, and the gradients that train a softmax policy with them.
//
// A Network has fully connected layers with rectifiers between them; its outputs are linear. All
// sums are taken in a fixed order, and a forward pass uses only sums, products and comparisons, so
// it gives the same bits on every machine. Training also needs exp and log.
//
// A policy that chooses one of several candidates gives each a score, and chooses candidate i with
// probability p_i = softmax(scores)_i. `clipped_slope` is the gradient of the clipped objective of
// PPO (Schulman et al. 2017) for one choice; with the present policy as the old one it is that of
// REINFORCE (Williams 1992).
//
// Deterministic; no clock, no thread.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "rubato/base/random.h"

namespace rubato::math {

class Network {
 public:
  // What a forward pass computed, for the backward pass: inputs and outputs of all layers.
  struct Pass {
    std::vector<std::vector<double>> layers;
  };

  // The number of values of each layer, inputs first: {24, 64, 32, 1}. All weights are 0.
  explicit Network(std::vector<std::size_t> sizes);

  // Uniform within the limits of He et al. (2015); the outputs' weights are a hundredth of that, so
  // that all outputs are near 0 at first.
  void draw(Random& random);

  // For each layer its biases, then for each input its weight to each output.
  [[nodiscard]] const std::vector<double>& weights() const { return weights_; }
  [[nodiscard]] std::vector<double>& weights() { return weights_; }
  [[nodiscard]] const std::vector<std::size_t>& sizes() const { return sizes_; }
  [[nodiscard]] static std::size_t weight_count(const std::vector<std::size_t>& sizes);

  // The outputs; they are in `pass` and live as long as that is not used again.
  std::span<const double> forward(std::span<const double> inputs, Pass& pass) const;
  // Adds to `gradient` the gradient of sum(slope_i x output_i) at that pass.
  void backward(const Pass& pass, std::span<const double> slope, std::span<double> gradient) const;

 private:
  std::vector<std::size_t> sizes_;
  std::vector<double> weights_;
};

// Adam (Kingma and Ba 2015): moves weights up a gradient.
class Adam {
 public:
  explicit Adam(std::size_t weights) : mean_(weights), square_(weights) {}
  void climb(std::span<double> weights, std::span<const double> gradient, double rate);

 private:
  std::vector<double> mean_, square_;
  double mean_decay_ = 1, square_decay_ = 1;  // products of the decays so far
};

// Scales a gradient that is longer than this down to it.
void limit_length(std::span<double> gradient, double longest);

// Turns scores into probabilities.
void softmax(std::span<double> scores);
// Draws an index by its probability.
[[nodiscard]] std::size_t draw_index(std::span<const double> probabilities, Random& random);

struct ClippedObjective {
  double clip = 0.2;
  double entropy = 0;  // weight of the policy's entropy
};

// slope_i: what one more unit of score i gives, for a choice that was made with the probability
// exp(old_log) and had this advantage.
void clipped_slope(std::span<const double> probabilities, std::size_t chosen, double old_log,
                   double advantage, const ClippedObjective& objective, std::span<double> slope);

}  // namespace rubato::math
