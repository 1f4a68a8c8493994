#include "rubato/math/network.h"

#include <algorithm>
#include <cmath>

#include "rubato/base/check.h"

namespace rubato::math {

Network::Network(std::vector<std::size_t> sizes)
    : sizes_(std::move(sizes)), weights_(weight_count(sizes_)) {}

std::size_t Network::weight_count(const std::vector<std::size_t>& sizes) {
  CHECK(sizes.size() >= 2);
  std::size_t count = 0;
  for (std::size_t l = 1; l < sizes.size(); ++l) count += (sizes[l - 1] + 1) * sizes[l];
  return count;
}

void Network::draw(Random& random) {
  double* at = weights_.data();
  for (std::size_t l = 1; l < sizes_.size(); ++l) {
    const bool last = l + 1 == sizes_.size();
    const double limit = std::sqrt(6.0 / static_cast<double>(sizes_[l - 1])) * (last ? 0.01 : 1);
    for (std::size_t i = 0; i < sizes_[l]; ++i) *at++ = 0;
    for (std::size_t i = 0; i < sizes_[l - 1] * sizes_[l]; ++i)
      *at++ = random.uniform(-limit, limit);
  }
}

std::span<const double> Network::forward(std::span<const double> inputs, Pass& pass) const {
  CHECK(inputs.size() == sizes_.front());
  pass.layers.resize(sizes_.size());
  pass.layers[0].assign(inputs.begin(), inputs.end());
  const double* at = weights_.data();
  for (std::size_t l = 1; l < sizes_.size(); ++l) {
    const std::size_t n = sizes_[l];
    const std::vector<double>& in = pass.layers[l - 1];
    std::vector<double>& out = pass.layers[l];
    out.assign(at, at + n);
    at += n;
    for (std::size_t i = 0; i < in.size(); ++i, at += n) {
      if (in[i] == 0) continue;
      for (std::size_t j = 0; j < n; ++j) out[j] += in[i] * at[j];
    }
    if (l + 1 == sizes_.size()) break;
    for (double& value : out) value = std::max(0.0, value);
  }
  return pass.layers.back();
}

void Network::backward(const Pass& pass, std::span<const double> slope,
                       std::span<double> gradient) const {
  CHECK(slope.size() == sizes_.back() && gradient.size() == weights_.size());
  std::vector<double> above(slope.begin(), slope.end()), below;
  std::size_t end = weights_.size();
  for (std::size_t l = sizes_.size() - 1; l > 0; --l) {
    const std::size_t n = sizes_[l];
    const std::vector<double>& in = pass.layers[l - 1];
    const std::size_t begin = end - (in.size() + 1) * n;
    for (std::size_t j = 0; j < n; ++j) gradient[begin + j] += above[j];
    below.assign(in.size(), 0);
    for (std::size_t i = 0; i < in.size(); ++i) {
      if (in[i] == 0) continue;  // no weight of it matters, and behind a rectifier neither does it
      const double* weight = weights_.data() + begin + (i + 1) * n;
      double* row = gradient.data() + begin + (i + 1) * n;
      for (std::size_t j = 0; j < n; ++j) row[j] += in[i] * above[j];
      for (std::size_t j = 0; j < n; ++j) below[i] += weight[j] * above[j];
    }
    std::swap(above, below);
    end = begin;
  }
}

void Adam::climb(std::span<double> weights, std::span<const double> gradient, double rate) {
  constexpr double kMeanDecay = 0.9, kSquareDecay = 0.999, kLeast = 1e-8;
  CHECK(weights.size() == mean_.size() && gradient.size() == mean_.size());
  mean_decay_ *= kMeanDecay;
  square_decay_ *= kSquareDecay;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    mean_[i] = kMeanDecay * mean_[i] + (1 - kMeanDecay) * gradient[i];
    square_[i] = kSquareDecay * square_[i] + (1 - kSquareDecay) * gradient[i] * gradient[i];
    weights[i] += rate * (mean_[i] / (1 - mean_decay_)) /
                  (std::sqrt(square_[i] / (1 - square_decay_)) + kLeast);
  }
}

void limit_length(std::span<double> gradient, double longest) {
  double square = 0;
  for (const double g : gradient) square += g * g;
  if (square <= longest * longest) return;
  const double scale = longest / std::sqrt(square);
  for (double& g : gradient) g *= scale;
}

void softmax(std::span<double> scores) {
  const double most = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  for (double& score : scores) sum += score = std::exp(score - most);
  for (double& score : scores) score /= sum;
}

std::size_t draw_index(std::span<const double> probabilities, Random& random) {
  double left = random.uniform();
  for (std::size_t i = 0; i + 1 < probabilities.size(); ++i) {
    left -= probabilities[i];
    if (left < 0) return i;
  }
  return probabilities.size() - 1;
}

void clipped_slope(std::span<const double> p, std::size_t chosen, double old_log, double advantage,
                   const ClippedObjective& objective, std::span<double> slope) {
  const auto log_of = [](double probability) { return std::log(std::max(probability, 1e-300)); };
  const double ratio = std::exp(log_of(p[chosen]) - old_log);
  const bool clipped = advantage > 0 ? ratio > 1 + objective.clip : ratio < 1 - objective.clip;
  const double weight = clipped ? 0 : ratio * advantage;
  double entropy = 0;
  if (objective.entropy > 0) {
    for (const double one : p) entropy -= one * log_of(one);
  }
  for (std::size_t i = 0; i < p.size(); ++i) {
    slope[i] = weight * ((i == chosen ? 1 : 0) - p[i]);
    if (objective.entropy > 0) slope[i] -= objective.entropy * p[i] * (log_of(p[i]) + entropy);
  }
}

}  // namespace rubato::math
