#include "rubato/elastic/accumulator.h"

#include <gtest/gtest.h>
#include <numeric>
#include <vector>

#include "rubato/base/random.h"

namespace rubato::elastic {
namespace {

constexpr int kSummedLeaves = 5;
const std::vector<std::size_t> kCounts = {3, 20'000, 70};

Layout three_parameters() { return make_layout(kCounts, 2, 64); }

std::vector<float> gradient_of(int leaf, std::size_t parameter) {
  Random random(static_cast<std::uint64_t>(leaf * 10) + parameter);
  std::vector<float> values(kCounts[parameter]);
  for (float& value : values) value = static_cast<float>(random.uniform(-1, 1));
  return values;
}

// Leaf by leaf in whole vectors, as the tree says.
std::vector<float> plain_sum(const Layout& layout, float weight, bool with_last_parameter) {
  const SummationOrder order = summation_order(0, kSummedLeaves);
  std::vector<std::vector<float>> slots(static_cast<std::size_t>(order.slots),
                                        std::vector<float>(layout.total));
  for (const LeafStep& step : order.steps) {
    std::vector<float> whole(layout.total);
    for (std::size_t i = 0; i < kCounts.size(); ++i) {
      if (i == 2 && !with_last_parameter) continue;
      const std::vector<float> values = gradient_of(step.leaf, i);
      for (std::size_t k = 0; k < values.size(); ++k) {
        whole[layout.parameters[i].offset + k] = values[k] * weight;
      }
    }
    whole[layout.buckets.back().offset] = static_cast<float>(step.leaf);
    auto& into = slots[static_cast<std::size_t>(step.slot)];
    for (std::size_t k = 0; k < whole.size(); ++k) {
      into[k] = step.fresh ? whole[k] : into[k] + whole[k];
    }
    for (int n = step.merge_from; n > step.merge_to; --n) {
      for (std::size_t k = 0; k < whole.size(); ++k) {
        slots[static_cast<std::size_t>(n - 1)][k] += slots[static_cast<std::size_t>(n)][k];
      }
    }
  }
  return slots[0];
}

std::vector<float> accumulated(Accumulator& accumulator, float weight, bool with_last_parameter,
                               bool measure = true) {
  for (const LeafStep& step : summation_order(0, kSummedLeaves).steps) {
    accumulator.begin(step, measure, nullptr);
    for (const int parameter : {1, 0, 2}) {
      if (parameter == 2 && !with_last_parameter) continue;
      accumulator.add(parameter, gradient_of(step.leaf, static_cast<std::size_t>(parameter)),
                      weight);
    }
    const std::vector<float> tail = {static_cast<float>(step.leaf), 0};
    EXPECT_EQ(accumulator.finish(tail).sqr_norm > 0, measure);
  }
  const auto sum = accumulator.slot(0);
  return {sum.begin(), sum.end()};
}

TEST(Accumulator, AddsUpAsTheTreeSaysToTheBit) {
  for (const bool all : {true, false}) {
    for (const bool measure : {true, false}) {
      Accumulator accumulator(three_parameters());
      EXPECT_EQ(accumulated(accumulator, 0.3F, all, measure),
                plain_sum(accumulator.layout(), 0.3F, all));
    }
  }
}

TEST(Accumulator, AWeightOfOneChangesNothing) {
  Accumulator accumulator(three_parameters());
  EXPECT_EQ(accumulated(accumulator, 1, true), plain_sum(accumulator.layout(), 1, true));
}

TEST(Accumulator, SaysInOrderWhichBucketsAreReady) {
  Accumulator accumulator(three_parameters());
  std::vector<int> ready;
  accumulator.begin(summation_order(0, 1).steps[0], false, [&](int b) { ready.push_back(b); });
  accumulator.add(0, gradient_of(0, 0), 1);
  EXPECT_TRUE(ready.empty()) << "the first bucket holds the last parameters";
  accumulator.add(2, gradient_of(0, 2), 1);
  EXPECT_EQ(ready, (std::vector<int>{0}));
  const std::vector<float> tail(2);
  accumulator.finish(tail);
  std::vector<int> all(accumulator.layout().buckets.size());
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(ready, all);
  EXPECT_FALSE(accumulator.running());
}

}  // namespace
}  // namespace rubato::elastic
