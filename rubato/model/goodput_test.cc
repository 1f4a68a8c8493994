#include "rubato/model/goodput.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "rubato/model/testing.h"

namespace rubato::model {
namespace {

// About ResNet-50 on ImageNet.
const Goodput kGoodput{
    {0.064, 0.0045, 0.044, 0.0001, 0.29, 0.0055, 2.3}, {1.0, 5.0}, {200, 12800, 20, 200, true}};

TEST(Efficiency, IsThePublishedFormula) {
  const double phi = kGoodput.noise.scale(200);
  EXPECT_DOUBLE_EQ(phi, 1000);
  for (const double batch : {200.0, 201.0, 400.0, 12800.0})
    EXPECT_NEAR(kGoodput.efficiency(batch), (phi + 200) / (phi + batch), 1e-15) << batch;
  EXPECT_EQ(kGoodput.efficiency(100), 1) << "below M0 counts as M0";
}

TEST(Efficiency, Extremes) {
  Goodput goodput = kGoodput;
  goodput.noise = {0, 1};
  EXPECT_EQ(goodput.efficiency(12800), 1) << "nothing but noise: every sample helps";
  goodput.noise = {1, 0};
  EXPECT_DOUBLE_EQ(goodput.efficiency(12800), 1.0 / 64) << "no noise: one sample would do";
  goodput.noise = {0, 0};
  EXPECT_DOUBLE_EQ(goodput.efficiency(12800), 1.0 / 64) << "nothing known: stay with M0";
}

RC_GTEST_PROP(Efficiency, IsOneAtTheInitialBatchAndFalls, (std::uint64_t seed)) {
  Random random(seed);
  const Goodput goodput = random_goodput(random);
  const double initial = goodput.limits.initial;
  RC_ASSERT(goodput.efficiency(initial) == 1.0);
  double last = 1;
  for (double batch = initial * 1.01; batch < initial * 1e3; batch *= 1.3) {
    const double efficiency = goodput.efficiency(batch);
    RC_ASSERT(efficiency > 0 && efficiency < last);
    RC_ASSERT(efficiency * batch > initial * (1 - 1e-12));  // a larger batch is not worth less
    last = efficiency;
  }
}

TEST(SpreadBatch, KnownValues) {
  const BatchLimits limits{100, 1000, 10, 50, true};
  EXPECT_EQ(spread_batch(limits, 4, 100), (Batch{25, 0}));
  EXPECT_EQ(spread_batch(limits, 3, 100), (Batch{34, 0})) << "rounded up";
  EXPECT_EQ(spread_batch(limits, 2, 100), (Batch{50, 0}));
  EXPECT_EQ(spread_batch(limits, 1, 100), (Batch{50, 1})) << "memory ends";
  EXPECT_EQ(spread_batch(limits, 4, 1000), (Batch{50, 4}));
  EXPECT_EQ(spread_batch(limits, 3, 1000), (Batch{47, 6})) << "987: the next would exceed 1000";
  EXPECT_EQ(spread_batch(limits, 20, 100), std::nullopt) << "5 a GPU is below the least";
  EXPECT_EQ(spread_batch({100, 1000, 10, 50, false}, 1, 100), std::nullopt);
  EXPECT_EQ(spread_batch({100, 1000, 10, 50, false}, 2, 100), (Batch{50, 0}));
}

TEST(SpreadBatch, AloneAboveTheInitialBatchItAccumulates) {
  const BatchLimits limits{32, 1000, 8, 500, true};
  EXPECT_EQ(spread_batch(limits, 1, 32), (Batch{32, 0}));
  EXPECT_EQ(spread_batch(limits, 1, 64), (Batch{32, 1})) << "one gradient a step says no noise";
  EXPECT_EQ(spread_batch(limits, 2, 64), (Batch{32, 0}));
}

TEST(BestBatch, GrowsWithGpusAndWithNoise) {
  double last = 0;
  for (const int gpus : {1, 2, 4, 8, 16, 32, 64}) {
    const auto best = kGoodput.best({(gpus + 3) / 4, gpus});
    ASSERT_TRUE(best.has_value());
    const double size = best->batch.global(gpus);
    EXPECT_GE(size, last) << gpus;
    EXPECT_NEAR(best->goodput, kGoodput.at({(gpus + 3) / 4, gpus}, best->batch),
                1e-12 * best->goodput);
    last = size;
  }
  Goodput noisy = kGoodput;
  noisy.noise.var *= 100;
  EXPECT_GT(noisy.best({4, 16})->batch.global(16), kGoodput.best({4, 16})->batch.global(16));
}

TEST(BestBatch, NoGpusThatCannotBeFilled) {
  EXPECT_TRUE(kGoodput.best({160, 640}).has_value());
  EXPECT_FALSE(kGoodput.best({161, 641}).has_value()) << "641 x 20 > 12800";
  Goodput frozen = kGoodput;
  frozen.limits.largest = frozen.limits.initial;
  EXPECT_EQ(frozen.best({1, 4})->batch, (Batch{50, 0}));
  EXPECT_FALSE(frozen.best({3, 11}).has_value());
  EXPECT_FALSE(frozen.best({1, 3}).has_value()) << "3 x 66 < 200 < 3 x 67";
}

TEST(FixedBatch, IsTheOwnersChoice) {
  const auto tuned = kGoodput.fixed({2, 8}, 1600);
  ASSERT_TRUE(tuned.has_value());
  EXPECT_EQ(tuned->batch, (Batch{200, 0}));
  EXPECT_EQ(tuned->goodput, kGoodput.at({2, 8}, {200, 0}));
  EXPECT_EQ(kGoodput.fixed({1, 1}, 1600)->batch, (Batch{200, 7}));
  EXPECT_FALSE(kGoodput.fixed({3, 11}, 200).has_value());
}

// Tries all candidates by the plain rule. Returns the first of the best.
std::optional<TunedBatch> by_full_scan(const Goodput& goodput, const Footprint& place) {
  const auto& limits = goodput.limits;
  const double low = std::max<double>(limits.initial, limits.per_gpu_min * place.gpus);
  if (low > limits.largest) return {};
  std::optional<TunedBatch> best;
  for (int i = 0; i < 50; ++i) {
    const auto batch =
        spread_batch(limits, place.gpus, low * std::pow(limits.largest / low, i / 49.0));
    if (!batch || batch->global(place.gpus) < limits.initial) continue;
    const double value = goodput.at(place, *batch);
    if (!best || value > best->goodput) best = {*batch, value};
  }
  return best;
}

RC_GTEST_PROP(BestBatch, IsTheBestOfAllCandidates, (std::uint64_t seed)) {
  Random random(seed);
  const Goodput goodput = random_goodput(random);
  const Footprint place = random_place(random, 64);
  const auto expected = by_full_scan(goodput, place);
  const auto best = goodput.best(place);
  RC_ASSERT(best.has_value() == expected.has_value());
  if (!best) return;
  RC_ASSERT(std::abs(best->goodput / expected->goodput - 1) < 1e-9);
}

RC_GTEST_PROP(BestBatch, StaysWithinTheLimits, (std::uint64_t seed)) {
  Random random(seed);
  const Goodput goodput = random_goodput(random);
  const Footprint place = random_place(random, 64);
  const auto& limits = goodput.limits;
  const auto best = goodput.best(place);
  if (!best) return;
  const auto& [batch, value] = *best;
  RC_ASSERT(batch.per_gpu >= limits.per_gpu_min && batch.per_gpu <= limits.per_gpu_max);
  RC_ASSERT(batch.accumulation == 0 || limits.accumulate);
  RC_ASSERT(batch.global(place.gpus) >= limits.initial);
  RC_ASSERT(batch.global(place.gpus) <= limits.largest);
  // Goodput is throughput at some efficiency of at most 1.
  RC_ASSERT(value > 0 && value <= goodput.time.throughput(place, batch) * (1 + 1e-12));
}

// If the batch is free, one GPU can imitate N GPUs by accumulation in N times the time.
RC_GTEST_PROP(Speedup, IsAtMostTheNumberOfGpus, (std::uint64_t seed)) {
  Random random(seed);
  Goodput goodput = random_goodput(random);
  goodput.limits = {64, 8192, 1, 256, true};
  GoodputTable table(goodput, 64);
  const Footprint place = random_place(random, 64);
  const double speedup = table.speedup(place, {1, 1});
  // The best batch for one GPU may be between two candidates, which are 10% apart.
  RC_ASSERT(speedup > 0 && speedup < place.gpus * 1.05);
  RC_ASSERT(table.speedup(place, place) == 1.0);
}

TEST(Speedup, TheNetworkIsWorseThanANode) {
  GoodputTable table(kGoodput, 4);
  EXPECT_GT(table.at({1, 4}), table.at({2, 4}));
  EXPECT_EQ(table.at({2, 4}), table.at({4, 4}));
}

TEST(GoodputTable, RemembersWhatBestSays) {
  GoodputTable table(kGoodput, 64);
  for (int round = 0; round < 2; ++round) {
    for (int gpus = 1; gpus <= 64; ++gpus) {
      EXPECT_EQ(table.at({1, gpus}), kGoodput.best({1, gpus})->goodput);
      const Footprint across{std::min(gpus, 2), gpus};
      EXPECT_EQ(table.at(across), kGoodput.best(across)->goodput);
    }
  }
  GoodputTable fixed(kGoodput, 64, 1600);
  EXPECT_EQ(fixed.at({2, 8}), kGoodput.fixed({2, 8}, 1600)->goodput);
  Goodput small = kGoodput;
  small.limits.largest = 400;
  GoodputTable cannot(small, 64);
  EXPECT_EQ(cannot.at({6, 21}), 0);
  EXPECT_EQ(cannot.speedup({1, 2}, {6, 21}), 0);
}

TEST(GoodputTableDeathTest, KnowsItsSize) {
  GoodputTable table(kGoodput, 4);
  EXPECT_DEATH(static_cast<void>(table.at({2, 5})), "CHECK");
  EXPECT_DEATH(static_cast<void>(table.at({0, 0})), "CHECK");
}

TEST(WorthSwitching, OnlyForMoreThanFivePercent) {
  EXPECT_FALSE(worth_switching(100, 100));
  EXPECT_FALSE(worth_switching(100, 105));
  EXPECT_TRUE(worth_switching(100, 105.1));
  EXPECT_TRUE(worth_switching(0, 1));
}

}  // namespace
}  // namespace rubato::model
