// The models and data of the examples: small enough for one core, but real enough to learn.
//
//   Perceptron   a classifier with dropout; its data is labelled by a random network
//   ResNet       a residual network with batch norm on 3x16x16 pictures of gratings
//   Transformer  a language model by letters, on sentences from a small grammar
//   Wide         square matrices only, of any number of parameters, to measure transfers
//
// All data is a function of (seed, index) and is computed when needed. So nothing is downloaded,
// and any worker can make any sample. Every model computes its own loss, so that one trainer works
// for all.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numbers>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rubato/base/random.h"
#include "rubato/train/dataset.h"
#include "rubato/train/torch.h"

namespace rubato::examples {

using base::Random;

struct Model : torch::nn::Module {
  virtual torch::Tensor loss(const train::Batch& batch) = 0;
};

// ---- Perceptron: points in space, labelled by a network that the model does not see ----

constexpr std::int64_t kPointSize = 64;
constexpr std::int64_t kPointClasses = 10;

inline float normal(Random& random) {
  return static_cast<float>(std::sqrt(random.exponential(2)) *
                            std::cos(2 * std::numbers::pi * random.uniform()));
}

class Points : public train::Dataset {
 public:
  explicit Points(std::uint64_t seed = 1, std::size_t size = 50'000) : random_(seed), size_(size) {
    Random weights = random_.split(0);
    for (float& weight : inner_) weight = normal(weights) / std::sqrt(float{kPointSize});
    for (float& weight : outer_) weight = normal(weights);
  }

  [[nodiscard]] std::size_t size() const override { return size_; }

  [[nodiscard]] train::Batch batch(std::span<const std::int64_t> indices) const override {
    const auto count = static_cast<std::int64_t>(indices.size());
    train::Batch batch{torch::empty({count, kPointSize}), torch::empty({count}, torch::kInt64)};
    float* point = batch.data.data_ptr<float>();
    auto* label = batch.target.data_ptr<std::int64_t>();
    for (const std::int64_t index : indices) {
      Random random = random_.split(static_cast<std::uint64_t>(index) + 1);
      for (std::int64_t i = 0; i < kPointSize; ++i) point[i] = normal(random);
      *label++ = label_of(point);
      point += kPointSize;
    }
    return batch;
  }

 private:
  static constexpr std::int64_t kHidden = 16;

  [[nodiscard]] std::int64_t label_of(const float* point) const {
    std::array<float, kPointClasses> scores{};
    for (std::int64_t h = 0; h < kHidden; ++h) {
      float sum = 0;
      for (std::int64_t i = 0; i < kPointSize; ++i) {
        sum += inner_[static_cast<std::size_t>(h * kPointSize + i)] * point[i];
      }
      for (std::int64_t c = 0; c < kPointClasses; ++c) {
        scores[static_cast<std::size_t>(c)] +=
            outer_[static_cast<std::size_t>(h * kPointClasses + c)] * std::tanh(sum);
      }
    }
    return std::max_element(scores.begin(), scores.end()) - scores.begin();
  }

  Random random_;
  std::size_t size_;
  std::array<float, kHidden * kPointSize> inner_{};
  std::array<float, kHidden * kPointClasses> outer_{};
};

struct Perceptron : Model {
  explicit Perceptron(std::int64_t width = 1024)
      : in(register_module("in", torch::nn::Linear(kPointSize, width))),
        middle(register_module("middle", torch::nn::Linear(width, width))),
        dropout(register_module("dropout", torch::nn::Dropout(0.1))),
        out(register_module("out", torch::nn::Linear(width, kPointClasses))) {}

  torch::Tensor loss(const train::Batch& batch) override {
    const torch::Tensor hidden = torch::relu(middle(torch::relu(in(batch.data))));
    return torch::nn::functional::cross_entropy(out(dropout(hidden)), batch.target);
  }

  torch::nn::Linear in, middle;
  torch::nn::Dropout dropout;
  torch::nn::Linear out;
};

// ---- ResNet: gratings, whose class is their direction, spacing and colour ----

constexpr std::int64_t kPictureSide = 16;
constexpr std::int64_t kPictureClasses = 10;

class Gratings : public train::Dataset {
 public:
  explicit Gratings(std::uint64_t seed = 1, std::size_t size = 50'000)
      : random_(seed), size_(size) {
    Random random = random_.split(0);
    for (Class& kind : classes_) {
      const double direction = random.uniform(0, std::numbers::pi);
      const double frequency = random.uniform(0.5, 1.6);
      kind.x = static_cast<float>(frequency * std::cos(direction));
      kind.y = static_cast<float>(frequency * std::sin(direction));
      for (float& part : kind.colour) part = static_cast<float>(random.uniform(-1, 1));
    }
  }

  [[nodiscard]] std::size_t size() const override { return size_; }

  [[nodiscard]] train::Batch batch(std::span<const std::int64_t> indices) const override {
    const auto count = static_cast<std::int64_t>(indices.size());
    train::Batch batch{torch::empty({count, 3, kPictureSide, kPictureSide}),
                       torch::empty({count}, torch::kInt64)};
    float* pixel = batch.data.data_ptr<float>();
    auto* label = batch.target.data_ptr<std::int64_t>();
    for (const std::int64_t index : indices) {
      Random random = random_.split(static_cast<std::uint64_t>(index) + 1);
      *label = static_cast<std::int64_t>(random.below(kPictureClasses));
      pixel = draw(classes_[static_cast<std::size_t>(*label++)], random, pixel);
    }
    return batch;
  }

 private:
  struct Class {
    float x = 0, y = 0;
    std::array<float, 3> colour{};
  };

  // The phase of the grating and the noise differ between samples.
  static float* draw(const Class& kind, Random& random, float* pixel) {
    const auto phase = static_cast<float>(random.uniform(0, 2 * std::numbers::pi));
    for (const float colour : kind.colour) {
      for (std::int64_t y = 0; y < kPictureSide; ++y) {
        for (std::int64_t x = 0; x < kPictureSide; ++x) {
          const float wave =
              std::sin(kind.x * static_cast<float>(x) + kind.y * static_cast<float>(y) + phase);
          *pixel++ = colour * wave + static_cast<float>(random.uniform(-1.5, 1.5));
        }
      }
    }
    return pixel;
  }

  Random random_;
  std::size_t size_;
  std::array<Class, kPictureClasses> classes_;
};

struct ResidualBlock : torch::nn::Module {
  ResidualBlock(std::int64_t channels_in, std::int64_t channels_out, std::int64_t stride)
      : first(register_module("first", conv(channels_in, channels_out, 3, stride))),
        first_norm(register_module("first_norm", torch::nn::BatchNorm2d(channels_out))),
        second(register_module("second", conv(channels_out, channels_out, 3, 1))),
        second_norm(register_module("second_norm", torch::nn::BatchNorm2d(channels_out))) {
    if (stride != 1 || channels_in != channels_out) {
      shortcut = register_module("shortcut", conv(channels_in, channels_out, 1, stride));
    }
  }

  static torch::nn::Conv2d conv(std::int64_t in, std::int64_t out, std::int64_t side,
                                std::int64_t stride) {
    return torch::nn::Conv2d(
        torch::nn::Conv2dOptions(in, out, side).stride(stride).padding(side / 2).bias(false));
  }

  torch::Tensor forward(const torch::Tensor& input) {
    const torch::Tensor inner = torch::relu(first_norm(first(input)));
    const torch::Tensor beside = shortcut.is_empty() ? input : shortcut(input);
    return torch::relu(second_norm(second(inner)) + beside);
  }

  torch::nn::Conv2d first;
  torch::nn::BatchNorm2d first_norm;
  torch::nn::Conv2d second;
  torch::nn::BatchNorm2d second_norm;
  torch::nn::Conv2d shortcut{nullptr};
};

struct ResNet : Model {
  explicit ResNet(std::int64_t channels = 16)
      : stem(register_module("stem", ResidualBlock::conv(3, channels, 3, 1))),
        stem_norm(register_module("stem_norm", torch::nn::BatchNorm2d(channels))),
        out(register_module("out", torch::nn::Linear(4 * channels, kPictureClasses))) {
    blocks = {
        register_module("block0", std::make_shared<ResidualBlock>(channels, channels, 1)),
        register_module("block1", std::make_shared<ResidualBlock>(channels, 2 * channels, 2)),
        register_module("block2", std::make_shared<ResidualBlock>(2 * channels, 4 * channels, 2))};
  }

  torch::Tensor loss(const train::Batch& batch) override {
    torch::Tensor x = torch::relu(stem_norm(stem(batch.data)));
    for (const auto& block : blocks) x = block->forward(x);
    return torch::nn::functional::cross_entropy(out(x.mean({2, 3})), batch.target);
  }

  torch::nn::Conv2d stem;
  torch::nn::BatchNorm2d stem_norm;
  std::vector<std::shared_ptr<ResidualBlock>> blocks;
  torch::nn::Linear out;
};

// ---- Transformer: sentences in which the verb agrees with a subject some words before it ----

constexpr std::int64_t kLetters = 28;  // a to z, space, full stop
constexpr std::int64_t kContext = 32;

// A sample is kContext letters from a random place in its own text. The target is the same text,
// one letter further.
class Sentences : public train::Dataset {
 public:
  explicit Sentences(std::uint64_t seed = 1, std::size_t size = 50'000)
      : random_(seed), size_(size) {}

  [[nodiscard]] std::size_t size() const override { return size_; }

  [[nodiscard]] train::Batch batch(std::span<const std::int64_t> indices) const override {
    const auto count = static_cast<std::int64_t>(indices.size());
    train::Batch batch{torch::empty({count, kContext}, torch::kInt64),
                       torch::empty({count, kContext}, torch::kInt64)};
    auto* data = batch.data.data_ptr<std::int64_t>();
    auto* target = batch.target.data_ptr<std::int64_t>();
    for (const std::int64_t index : indices) {
      Random random = random_.split(static_cast<std::uint64_t>(index) + 1);
      const std::string text = text_of(random);
      for (std::size_t i = 0; i < kContext; ++i) {
        *data++ = letter(text[i]);
        *target++ = letter(text[i + 1]);
      }
    }
    return batch;
  }

 private:
  static std::int64_t letter(char c) { return c == ' ' ? 26 : c == '.' ? 27 : c - 'a'; }

  template <std::size_t n>
  static std::string_view pick(const std::array<std::string_view, n>& words, Random& random) {
    return words[random.below(n)];
  }

  static std::string noun_phrase(Random& random, bool plural) {
    static constexpr std::array<std::string_view, 6> kNouns = {"dog",    "teacher", "river",
                                                               "garden", "bird",    "sailor"};
    static constexpr std::array<std::string_view, 5> kAdjectives = {"old", "quiet", "green", "tall",
                                                                    "clever"};
    std::string phrase = plural ? "many " : "the ";
    if (random.below(2) == 0) phrase.append(pick(kAdjectives, random)).append(" ");
    return phrase.append(pick(kNouns, random)).append(plural ? "s" : "");
  }

  static std::string sentence(Random& random) {
    static constexpr std::array<std::string_view, 5> kVerbs = {"see", "follow", "paint", "hear",
                                                               "need"};
    const bool plural = random.below(2) == 0;
    std::string text = noun_phrase(random, plural) + " ";
    text.append(pick(kVerbs, random)).append(plural ? " " : "s ");
    return text + noun_phrase(random, random.below(2) == 0) + ". ";
  }

  static std::string text_of(Random& random) {
    std::string text = sentence(random);
    const std::size_t start = random.below(text.size());
    while (text.size() < start + kContext + 1) text += sentence(random);
    return text.substr(start, kContext + 1);
  }

  Random random_;
  std::size_t size_;
};

struct TransformerBlock : torch::nn::Module {
  TransformerBlock(std::int64_t width, std::int64_t heads)
      : heads_(heads),
        attention_norm(register_module("attention_norm", norm(width))),
        query_key_value(register_module("query_key_value", torch::nn::Linear(width, 3 * width))),
        projection(register_module("projection", torch::nn::Linear(width, width))),
        inner_norm(register_module("inner_norm", norm(width))),
        inner(register_module("inner", torch::nn::Linear(width, 4 * width))),
        outer(register_module("outer", torch::nn::Linear(4 * width, width))) {}

  static torch::nn::LayerNorm norm(std::int64_t width) {
    return torch::nn::LayerNorm(torch::nn::LayerNormOptions({width}));
  }

  // `mask` is minus infinity where a letter would see a later one.
  torch::Tensor forward(const torch::Tensor& input, const torch::Tensor& mask) {
    const torch::Tensor x = input + attend(attention_norm(input), mask);
    return x + outer(torch::gelu(inner(inner_norm(x))));
  }

 private:
  torch::Tensor attend(const torch::Tensor& x, const torch::Tensor& mask) {
    const std::int64_t samples = x.size(0);
    const std::int64_t length = x.size(1);
    const std::int64_t width = x.size(2);
    const std::int64_t size = width / heads_;
    const auto parts = query_key_value(x)
                           .view({samples, length, 3, heads_, size})
                           .permute({2, 0, 3, 1, 4})
                           .unbind(0);
    const torch::Tensor scores =
        parts[0].matmul(parts[1].transpose(-2, -1)) * (1 / std::sqrt(static_cast<double>(size)));
    const torch::Tensor mixed = torch::softmax(scores + mask, -1).matmul(parts[2]);
    return projection(mixed.transpose(1, 2).reshape({samples, length, width}));
  }

  std::int64_t heads_;

 public:
  torch::nn::LayerNorm attention_norm;
  torch::nn::Linear query_key_value, projection;
  torch::nn::LayerNorm inner_norm;
  torch::nn::Linear inner, outer;
};

struct Transformer : Model {
  explicit Transformer(std::int64_t width = 64, std::int64_t heads = 4, int depth = 2)
      : letters(register_module("letters", torch::nn::Embedding(kLetters, width))),
        places(register_module("places", torch::nn::Embedding(kContext, width))),
        norm(register_module("norm", TransformerBlock::norm(width))),
        out(register_module("out", torch::nn::Linear(width, kLetters))) {
    for (int i = 0; i < depth; ++i) {
      blocks.push_back(register_module("block" + std::to_string(i),
                                       std::make_shared<TransformerBlock>(width, heads)));
    }
  }

  torch::Tensor loss(const train::Batch& batch) override {
    const std::int64_t length = batch.data.size(1);
    const auto device = batch.data.device();
    const torch::Tensor mask =
        torch::full({length, length}, -INFINITY, torch::TensorOptions().device(device)).triu(1);
    torch::Tensor x =
        letters(batch.data) +
        places(torch::arange(length, torch::TensorOptions().dtype(torch::kInt64).device(device)));
    for (const auto& block : blocks) x = block->forward(x, mask);
    return torch::nn::functional::cross_entropy(out(norm(x)).flatten(0, 1), batch.target.flatten());
  }

  torch::nn::Embedding letters, places;
  std::vector<std::shared_ptr<TransformerBlock>> blocks;
  torch::nn::LayerNorm norm;
  torch::nn::Linear out;
};

// ---- Wide: for benchmarks, about `parameters` of them in `depth` square matrices; data: Points
// ----

struct Wide : Model {
  explicit Wide(std::int64_t parameters = 25'000'000, int depth = 6) {
    const auto width =
        static_cast<std::int64_t>(std::sqrt(static_cast<double>(parameters) / std::max(1, depth)));
    layers.push_back(register_module("in", torch::nn::Linear(kPointSize, width)));
    for (int i = 0; i < depth; ++i) {
      layers.push_back(
          register_module("square" + std::to_string(i), torch::nn::Linear(width, width)));
    }
    layers.push_back(register_module("out", torch::nn::Linear(width, kPointClasses)));
  }

  torch::Tensor loss(const train::Batch& batch) override {
    torch::Tensor x = batch.data;
    for (std::size_t i = 0; i + 1 < layers.size(); ++i) x = torch::relu(layers[i](x));
    return torch::nn::functional::cross_entropy(layers.back()(x), batch.target);
  }

  std::vector<torch::nn::Linear> layers;
};

}  // namespace rubato::examples
