#include "rubato/base/random.h"

#include <cmath>
#include <cstdint>
#include <gtest/gtest.h>
#include <set>

namespace rubato::base {
namespace {

TEST(Random, IsSplitMix64) {
  Random random(1234567);  // the vector that the reference implementation publishes
  EXPECT_EQ(random.next(), 6457827717110365317ULL);
  EXPECT_EQ(random.next(), 3203168211198807973ULL);
  EXPECT_EQ(random.next(), 9817491932198370423ULL);
}

TEST(Random, TheSameSeedGivesTheSameNumbers) {
  Random one(42);
  Random two(42);
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(one.next(), two.next());
  EXPECT_NE(Random(42).next(), Random(43).next());
}

TEST(Random, StreamsAreTheirOwn) {
  Random parent(42);
  Random child = parent.split(1);
  const std::uint64_t first = child.next();
  EXPECT_EQ(parent.split(1).next(), first) << "splitting draws nothing from the parent";
  EXPECT_EQ(parent.next(), Random(42).next());
  std::set<std::uint64_t> firsts;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    for (std::uint64_t stream = 0; stream < 100; ++stream) {
      firsts.insert(Random(seed).split(stream).next());
    }
  }
  EXPECT_EQ(firsts.size(), 10'000U) << "no two streams begin alike";
}

TEST(Random, UniformNumbersFillTheirRangeEvenly) {
  Random random(7);
  double sum = 0;
  std::uint64_t seen[10] = {};
  for (int i = 0; i < 100'000; ++i) {
    const double u = random.uniform();
    ASSERT_TRUE(u >= 0 && u < 1);
    sum += u;
    const std::uint64_t die = random.below(10);
    ASSERT_LT(die, 10U);
    ++seen[die];
    const double v = random.uniform(-2, 3);
    ASSERT_TRUE(v >= -2 && v <= 3);
  }
  EXPECT_NEAR(sum / 100'000, 0.5, 0.005);
  for (const std::uint64_t count : seen) EXPECT_NEAR(static_cast<double>(count), 10'000, 500);
  EXPECT_EQ(random.below(1), 0U);
}

TEST(Random, LogUniformStaysInItsBoundsAndHalvesEachDecade) {
  Random random(9);
  int below_ten = 0;
  for (int i = 0; i < 100'000; ++i) {
    const double v = random.log_uniform(1, 100);
    ASSERT_TRUE(v >= 1 && v <= 100) << v;
    below_ten += v < 10 ? 1 : 0;
  }
  EXPECT_NEAR(below_ten, 50'000, 1000);
  EXPECT_EQ(random.log_uniform(5, 5), 5);
}

TEST(Random, ExponentialHasItsMeanAndIsNeverNegative) {
  Random random(11);
  double sum = 0;
  for (int i = 0; i < 100'000; ++i) {
    const double v = random.exponential(3);
    ASSERT_TRUE(v >= 0 && std::isfinite(v));
    sum += v;
  }
  EXPECT_NEAR(sum / 100'000, 3, 0.05);
}

}  // namespace
}  // namespace rubato::base
