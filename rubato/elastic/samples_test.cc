#include "rubato/elastic/samples.h"

#include <cmath>
#include <cstdlib>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <vector>

#include "rubato/base/random.h"

namespace rubato::elastic {
namespace {

bool is_bijection(const SampleOrder& order, std::int64_t epoch) {
  std::vector<bool> seen(static_cast<std::size_t>(order.samples()));
  for (std::int64_t p = 0; p < order.samples(); ++p) {
    const auto index = order.index(epoch, p);
    if (index < 0 || index >= order.samples() || seen[static_cast<std::size_t>(index)])
      return false;
    seen[static_cast<std::size_t>(index)] = true;
  }
  return true;
}

TEST(SampleOrder, EverySmallSizeIsABijection) {
  for (std::int64_t samples = 1; samples <= 300; ++samples)
    for (std::int64_t epoch = 0; epoch < 3; ++epoch)
      ASSERT_TRUE(is_bijection(SampleOrder(samples, 7), epoch)) << samples;
}

RC_GTEST_PROP(SampleOrder, IsABijection, (std::uint64_t seed)) {
  Random random(seed);
  const SampleOrder order(static_cast<std::int64_t>(random.log_uniform(1, 20'000)), random.next());
  RC_ASSERT(is_bijection(order, static_cast<std::int64_t>(random.below(1'000'000))));
}

TEST(SampleOrder, LooksRandom) {
  // The identity would move no sample. A random order moves a sample by N/3 on average, and about
  // two neighbours stay neighbours.
  const SampleOrder order(100'000, 1);
  double moved = 0;
  int neighbours = 0;
  int unmoved = 0;
  int as_in_next_epoch = 0;
  for (std::int64_t p = 0; p < order.samples(); ++p) {
    const auto index = order.index(5, p);
    moved += static_cast<double>(std::abs(index - p)) / static_cast<double>(order.samples());
    unmoved += index == p ? 1 : 0;
    as_in_next_epoch += index == order.index(6, p) ? 1 : 0;
    if (p > 0) neighbours += std::abs(index - order.index(5, p - 1)) == 1 ? 1 : 0;
  }
  EXPECT_NEAR(moved / static_cast<double>(order.samples()), 1.0 / 3, 0.005);
  EXPECT_LT(neighbours, 12);
  EXPECT_LT(unmoved, 10);
  EXPECT_LT(as_in_next_epoch, 10);
}

TEST(SampleOrder, EverySampleIsEquallyLikelyAtEveryPosition) {
  for (const std::int64_t samples : {2, 3, 5, 12, 40}) {
    const SampleOrder order(samples, 3);
    constexpr int kEpochs = 20'000;
    for (const std::int64_t position : {std::int64_t{0}, samples / 2, samples - 1}) {
      std::vector<int> count(static_cast<std::size_t>(samples));
      for (std::int64_t epoch = 0; epoch < kEpochs; ++epoch)
        ++count[static_cast<std::size_t>(order.index(epoch, position))];
      const double expected = 1.0 * kEpochs / static_cast<double>(samples);
      double chi_square = 0;
      for (const int c : count) chi_square += (c - expected) * (c - expected) / expected;
      const auto freedom = static_cast<double>(samples - 1);
      EXPECT_LT(chi_square, freedom + 5 * std::sqrt(2 * freedom)) << samples << " at " << position;
    }
  }
}

TEST(SampleOrder, SeedsAndEpochsDiffer) {
  const SampleOrder one(1000, 1);
  const SampleOrder two(1000, 2);
  int equal = 0;
  for (std::int64_t p = 0; p < 1000; ++p) equal += one.index(0, p) == two.index(0, p) ? 1 : 0;
  EXPECT_LT(equal, 10);
  EXPECT_EQ(one.index(3, 17), SampleOrder(1000, 1).index(3, 17));
}

TEST(Leaves, KnownSplits) {
  EXPECT_EQ(leaf_positions({0, 100, 32}, 8, 3), (Positions{112, 116}));
  EXPECT_EQ(leaf_positions({0, 100, 10}, 4, 0), (Positions{100, 103}));
  EXPECT_EQ(leaf_positions({0, 100, 10}, 4, 1), (Positions{103, 106}));
  EXPECT_EQ(leaf_positions({0, 100, 10}, 4, 2), (Positions{106, 108}));
  EXPECT_EQ(leaf_positions({0, 100, 10}, 4, 3), (Positions{108, 110}));
  EXPECT_TRUE(leaf_positions({0, 0, 3}, 8, 3).empty());
  EXPECT_EQ(existing_leaves({0, 0, 3}, 8), 3);
  EXPECT_EQ(existing_leaves({0, 0, 30}, 8), 8);
}

RC_GTEST_PROP(Leaves, SplitInOrderEvenlyAndNeverAboveTheFullSize, (std::uint64_t seed)) {
  Random random(seed);
  const int leaves = 1 + static_cast<int>(random.below(70));
  const auto full = static_cast<std::int64_t>(1 + random.below(40));
  const auto cursor = static_cast<std::int64_t>(random.below(1000));
  const Slice step{0, cursor, 1 + static_cast<std::int64_t>(random.below(leaves * full))};
  auto at = step.cursor;
  auto before = full;
  for (int v = 0; v < leaves; ++v) {
    const auto positions = leaf_positions(step, leaves, v);
    RC_ASSERT(positions.first == at && positions.size() >= 0 && positions.size() <= before);
    RC_ASSERT(positions.empty() == (v >= existing_leaves(step, leaves)));
    before = positions.size();
    at = positions.last;
  }
  RC_ASSERT(at == step.cursor + step.samples);
}

TEST(Steps, TheLastOfAnEpochIsShort) {
  const SampleOrder order(100, 1);
  EXPECT_EQ(order.first(48), (Slice{0, 0, 48}));
  EXPECT_EQ(order.next({0, 0, 48}, 48), (Slice{0, 48, 48}));
  EXPECT_EQ(order.next({0, 48, 48}, 48), (Slice{0, 96, 4}));
  EXPECT_EQ(order.next({0, 96, 4}, 48), (Slice{1, 0, 48}));
  EXPECT_EQ(order.next({0, 48, 52}, 48), (Slice{1, 0, 48})) << "no empty step";
  EXPECT_EQ(order.first(1000), (Slice{0, 0, 100}));
}

RC_GTEST_PROP(Steps, EverySampleOnceAnEpochWhateverTheBatchesAndLeaves, (std::uint64_t seed)) {
  Random random(seed);
  const auto samples = static_cast<std::int64_t>(random.log_uniform(1, 3000));
  const SampleOrder order(samples, random.next());
  const auto batch = [&] {
    return static_cast<std::int64_t>(random.log_uniform(1, 2.0 * static_cast<double>(samples)));
  };
  Slice step = order.first(batch());
  for (std::int64_t epoch = 0; epoch < 2; ++epoch) {
    std::vector<int> used(static_cast<std::size_t>(samples));
    std::uint64_t mark = 0;
    for (; step.epoch == epoch; step = order.next(step, batch())) {
      RC_ASSERT(step.samples >= 1);
      const int leaves = 1 + static_cast<int>(random.below(20));
      for (int v = 0; v < leaves; ++v) {
        const auto [first, last] = leaf_positions(step, leaves, v);
        for (auto p = first; p < last; ++p) {
          const auto index = order.index(epoch, p);
          ++used[static_cast<std::size_t>(index)];
          mark += sample_mark(epoch, index);
        }
      }
    }
    for (const int count : used) RC_ASSERT(count == 1);
    RC_ASSERT(mark == order.epoch_mark(epoch));
  }
}

TEST(Marks, SeeWhatWasUsedTwiceOrNotAtAll) {
  const SampleOrder order(1000, 1);
  const auto mark = order.epoch_mark(4);
  EXPECT_NE(mark - sample_mark(4, 17), mark);
  EXPECT_NE(mark - sample_mark(4, 17) + sample_mark(4, 18), mark);
  EXPECT_NE(sample_mark(4, 17), sample_mark(5, 17));
  EXPECT_NE(order.epoch_mark(5), mark);
}

TEST(Samples, WithoutShufflingTheyComeInOrderAndAnEpochMayEndEarly) {
  const SampleOrder order(10, 1, false, 8);
  EXPECT_EQ(order.samples(), 8);
  EXPECT_EQ(order.index(3, 5), 5);
  EXPECT_EQ(order.next({0, 4, 4}, 4), (Slice{1, 0, 4}));
  const SampleOrder shuffled(10, 1, true, 8);
  std::uint64_t used = 0;
  for (std::int64_t p = 0; p < 8; ++p) used += sample_mark(2, shuffled.index(2, p));
  EXPECT_EQ(used, shuffled.epoch_mark(2));
}

}  // namespace
}  // namespace rubato::elastic
