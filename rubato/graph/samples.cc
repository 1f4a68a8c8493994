#include "rubato/graph/samples.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>

namespace rubato::graph {
namespace {

constexpr double kFloat = 4;  // bytes
// What a large matrix product reaches, and what reading and writing memory does.
constexpr double kGpuOperationsS = 8e12, kCpuOperationsS = 0.4e12;
constexpr double kGpuBytesS = 400e9, kCpuBytesS = 20e9;
constexpr double kGpuLaunchS = 10e-6, kCpuLaunchS = 2e-6;

struct Work {
  double operations = 0;  // of the forward pass
  double bytes = 0;       // of the result
  double weights = 0;     // numbers
};

// Forward operators first; finish() adds the backward ones.
class Builder {
 public:
  explicit Builder(std::string name) { graph_.name = std::move(name); }

  std::size_t add(std::string name, const Work& work, const std::vector<std::size_t>& from,
                  const std::string& group = "") {
    Operator op;
    op.name = std::move(name);
    op.group = group_of(group.empty() ? op.name : group);
    op.seconds = seconds_of(work);
    op.bytes = work.bytes;
    // Weights, their gradient and their momentum, once for the group; the result for the way back.
    op.memory = work.bytes + (weighed_[op.group] ? 0 : 3 * kFloat * work.weights);
    if (work.weights > 0) weighed_[op.group] = true;
    for (const std::size_t one : from) op.inputs.push_back({one, graph_.operators[one].bytes});
    graph_.operators.push_back(std::move(op));
    return graph_.operators.size() - 1;
  }

  // Backward takes twice as long: gradients of the inputs and of the weights.
  Graph finish() {
    const std::size_t forward = graph_.operators.size();
    std::vector<std::vector<std::size_t>> takers(forward);
    for (std::size_t i = 0; i < forward; ++i) {
      for (const Input& input : graph_.operators[i].inputs) takers[input.from].push_back(i);
    }
    std::vector<std::size_t> backward(forward);
    for (std::size_t i = forward; i-- > 0;) {
      const Operator& op = graph_.operators[i];
      Operator back;
      back.name = op.name + " backward";
      back.group = op.group;
      for (const auto& [type, seconds] : op.seconds) back.seconds[type] = 2 * seconds;
      back.inputs.push_back({i, op.bytes});
      for (const std::size_t taker : takers[i]) back.inputs.push_back({backward[taker], op.bytes});
      backward[i] = graph_.operators.size();
      graph_.operators.push_back(std::move(back));
    }
    return std::move(graph_);
  }

 private:
  static std::map<std::string, double, std::less<>> seconds_of(const Work& work) {
    const auto seconds = [&](double operations_s, double bytes_s, double launch_s) {
      return launch_s + std::max(work.operations / operations_s, 2 * work.bytes / bytes_s);
    };
    return {{"gpu", seconds(kGpuOperationsS, kGpuBytesS, kGpuLaunchS)},
            {"cpu", seconds(kCpuOperationsS, kCpuBytesS, kCpuLaunchS)}};
  }
  std::size_t group_of(const std::string& name) {
    const auto [at, added] = groups_.emplace(name, graph_.groups.size());
    if (added) graph_.groups.push_back(name);
    return at->second;
  }

  Graph graph_;
  std::map<std::string, std::size_t> groups_;
  std::map<std::size_t, bool> weighed_;  // groups whose weights are counted
};

// An image network in the making: convolutions and pools with the shapes of their results.
class Images {
 public:
  struct Map {
    std::size_t op = 0;
    int side = 0, channels = 0;
  };
  static constexpr double kBatch = 32;

  explicit Images(Builder& builder) : builder_(builder) {}

  Map input(int side) {
    return {builder_.add("images", {0, kBatch * side * side * 3 * kFloat, 0}, {}), side, 3};
  }
  // `taps` is the number of pixels that a result is made of: 9 for 3x3, 7 for 1x7.
  Map convolve(const std::string& name, const Map& from, int channels, int taps, int side = 0) {
    side = side == 0 ? from.side : side;
    const double weights = static_cast<double>(taps) * from.channels * channels;
    const double pixels = kBatch * side * side;
    return {
        builder_.add(name, {2 * weights * pixels, pixels * channels * kFloat, weights}, {from.op}),
        side, channels};
  }
  Map pool(const std::string& name, const Map& from, int side = 0) {
    side = side == 0 ? from.side : side;
    const double bytes = kBatch * side * side * from.channels * kFloat;
    return {builder_.add(name, {0, bytes, 0}, {from.op}), side, from.channels};
  }
  Map join(const std::string& name, const std::vector<Map>& parts) {
    Map all{0, parts.front().side, 0};
    std::vector<std::size_t> from;
    for (const Map& part : parts) {
      all.channels += part.channels;
      from.push_back(part.op);
    }
    all.op = builder_.add(name, {0, kBatch * all.side * all.side * all.channels * kFloat, 0}, from);
    return all;
  }
  // Convolutions one behind the other: {channels, taps}.
  Map chain(const std::string& name, Map from, const std::vector<std::pair<int, int>>& steps,
            int last_side = 0) {
    for (std::size_t i = 0; i < steps.size(); ++i) {
      from = convolve(fmt::format("{} {}", name, i + 1), from, steps[i].first, steps[i].second,
                      i + 1 == steps.size() ? last_side : 0);
    }
    return from;
  }

 private:
  Builder& builder_;
};

}  // namespace

Graph inception() {
  Builder builder("inception");
  Images net(builder);
  auto x = net.chain("stem", net.convolve("stem 0", net.input(299), 32, 9, 149), {{32, 9}, {64, 9}},
                     147);
  x = net.pool("stem pool 1", x, 73);
  x = net.chain("stem wide", x, {{80, 1}, {192, 9}}, 71);
  x = net.pool("stem pool 2", x, 35);
  for (int i = 0; i < 3; ++i) {
    const std::string m = fmt::format("a{} ", i);
    x = net.join(m + "join",
                 {net.chain(m + "1x1", x, {{64, 1}}), net.chain(m + "5x5", x, {{48, 1}, {64, 25}}),
                  net.chain(m + "3x3", x, {{64, 1}, {96, 9}, {96, 9}}),
                  net.chain(m + "pooled", net.pool(m + "pool", x), {{i == 0 ? 32 : 64, 1}})});
  }
  x = net.join("b join", {net.chain("b 3x3", x, {{384, 9}}, 17),
                          net.chain("b twice", x, {{64, 1}, {96, 9}, {96, 9}}, 17),
                          net.pool("b pool", x, 17)});
  for (int i = 0; i < 4; ++i) {
    const std::string m = fmt::format("c{} ", i);
    const int narrow = i == 0 ? 128 : i == 3 ? 192 : 160;
    x = net.join(
        m + "join",
        {net.chain(m + "1x1", x, {{192, 1}}),
         net.chain(m + "7", x, {{narrow, 1}, {narrow, 7}, {192, 7}}),
         net.chain(m + "77", x, {{narrow, 1}, {narrow, 7}, {narrow, 7}, {narrow, 7}, {192, 7}}),
         net.chain(m + "pooled", net.pool(m + "pool", x), {{192, 1}})});
  }
  x = net.join("d join", {net.chain("d 3x3", x, {{192, 1}, {320, 9}}, 8),
                          net.chain("d 7", x, {{192, 1}, {192, 7}, {192, 7}, {192, 9}}, 8),
                          net.pool("d pool", x, 8)});
  for (int i = 0; i < 2; ++i) {
    const std::string m = fmt::format("e{} ", i);
    const auto three = net.chain(m + "3", x, {{384, 1}});
    const auto five = net.chain(m + "33", x, {{448, 1}, {384, 9}});
    x = net.join(
        m + "join",
        {net.chain(m + "1x1", x, {{320, 1}}), net.chain(m + "3 wide", three, {{384, 3}}),
         net.chain(m + "3 high", three, {{384, 3}}), net.chain(m + "33 wide", five, {{384, 3}}),
         net.chain(m + "33 high", five, {{384, 3}}),
         net.chain(m + "pooled", net.pool(m + "pool", x), {{192, 1}})});
  }
  net.convolve("classes", net.pool("last pool", x, 1), 1000, 1);
  return builder.finish();
}

Graph attention_rnn() {
  constexpr int kSteps = 20, kLayers = 4, kParts = 8;
  constexpr double kBatch = 64, kWidth = 1024, kWords = 32000;
  Builder builder("rnn");
  const double state = kBatch * kWidth * kFloat;
  const Work embed{0, state, kWords * kWidth};
  const Work cell{2 * kBatch * 8 * kWidth * kWidth, 2 * state, 8 * kWidth * kWidth};
  using Ops = std::vector<std::size_t>;
  // One side: the operators of the top layer, step by step. A layer begins with what `last` has for
  // it, and leaves its last state there.
  const auto side = [&](const std::string& name, Ops& last) {
    Ops below;
    for (int t = 0; t < kSteps; ++t)
      below.push_back(builder.add(fmt::format("{} words {}", name, t), embed, {}, name + " words"));
    for (int layer = 0; layer < kLayers; ++layer) {
      const auto l = static_cast<std::size_t>(layer);
      for (int t = 0; t < kSteps; ++t) {
        std::size_t& at = below[static_cast<std::size_t>(t)];
        Ops from = {at};
        if (t > 0 || l < last.size()) from.push_back(last[l]);
        at = builder.add(fmt::format("{} {} step {}", name, layer, t), cell, from,
                         fmt::format("{} {}", name, layer));
        last.resize(std::max(last.size(), l + 1));
        last[l] = at;
      }
    }
    return below;
  };
  Ops last;
  const auto read = side("encoder", last);
  const double memory = kSteps * state;
  const std::size_t all = builder.add("encoded", {0, memory, 0}, read);
  const auto written = side("decoder", last);
  const double part = kWords / kParts;
  for (int t = 0; t < kSteps; ++t) {
    const std::size_t looked =
        builder.add(fmt::format("attention {}", t),
                    {2 * 2 * kBatch * kSteps * kWidth + 4 * kBatch * kWidth * kWidth, state,
                     2 * kWidth * kWidth},
                    {all, written[static_cast<std::size_t>(t)]}, "attention");
    for (int p = 0; p < kParts; ++p)
      builder.add(fmt::format("predict {} part {}", t, p),
                  {2 * kBatch * kWidth * part, kBatch * kFloat, kWidth * part}, {looked},
                  fmt::format("predict part {}", p));
  }
  return builder.finish();
}

Graph transformer() {
  constexpr int kLayers = 12, kMicroBatches = 4;
  constexpr double kWidth = 1024, kSentences = 4, kLength = 512, kWords = 32000;
  constexpr double kTokens = kSentences * kLength;
  Builder builder("transformer");
  const auto product = [&](double in, double out) {
    return Work{2 * kTokens * in * out, kTokens * out * kFloat, in * out};
  };
  const Work attention{4 * kSentences * kLength * kLength * kWidth, kTokens * kWidth * kFloat, 0};
  for (int batch = 0; batch < kMicroBatches; ++batch) {
    const auto add = [&](const std::string& group, const Work& work,
                         const std::vector<std::size_t>& from) {
      return builder.add(fmt::format("{} of {}", group, batch), work, from, group);
    };
    std::size_t x = add("words", {0, kTokens * kWidth * kFloat, kWords * kWidth}, {});
    for (int layer = 0; layer < kLayers; ++layer) {
      const std::string l = fmt::format("layer {} ", layer);
      const std::size_t keys = add(l + "keys", product(kWidth, 3 * kWidth), {x});
      const std::size_t looked = add(l + "attention", attention, {keys});
      const std::size_t mixed = add(l + "mix", product(kWidth, kWidth), {looked, x});
      const std::size_t wide = add(l + "wide", product(kWidth, 4 * kWidth), {mixed});
      x = add(l + "narrow", product(4 * kWidth, kWidth), {wide, mixed});
    }
    // The loss needs only a number of each word, so that is what stays.
    add("predict", {2 * kTokens * kWidth * kWords, kTokens * kFloat, kWidth * kWords}, {x});
  }
  return builder.finish();
}

const std::vector<NamedGraph>& sample_graphs() {
  static const std::vector<NamedGraph> all = {
      {"inception", "an image network with parallel branches, like Inception-v3", inception},
      {"rnn", "translation by LSTM layers with attention, unrolled over 20 words", attention_rnn},
      {"transformer", "12 layers on 4 micro-batches", transformer},
  };
  return all;
}

}  // namespace rubato::graph
