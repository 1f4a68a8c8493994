#include "rubato/base/units.h"

#include <cstdint>
#include <gtest/gtest.h>

#include "rubato/base/random.h"

namespace rubato::base {
namespace {

TEST(GpuTime, AddsUpExactlyHoweverItIsCut) {
  Random random(1);
  for (int round = 0; round < 200; ++round) {
    const int gpus = 1 + static_cast<int>(random.below(1000));
    GpuTime sum;
    Duration held{};
    for (int i = 0; i < 50; ++i) {
      const Duration more(static_cast<std::int64_t>(random.below(1'000'000'007)));
      held += more;
      sum += GpuTime::of(gpus, more);
    }
    EXPECT_EQ(sum, GpuTime::of(gpus, held));
  }
  EXPECT_EQ(GpuTime::of(8, from_seconds(0.5)).gpu_seconds(), 4);
  EXPECT_EQ(GpuTime::from_gpu_seconds(3250).gpu_micros(), 3'250'000'000);
  EXPECT_EQ(GpuTime::micros(7) - GpuTime::micros(9), GpuTime::micros(-2));
  EXPECT_LT(GpuTime(), GpuTime::micros(1));
}

TEST(GpuTime, IsReachedAtTheFirstMicrosecondThatSuffices) {
  for (int gpus : {1, 2, 3, 7, 8, 64, 4096}) {
    for (std::int64_t micros : {0, 1, 2, 3, 6, 7, 8, 9, 63, 64, 65, 4096, 4097, 1'000'003}) {
      const Duration held = GpuTime::micros(micros).held_by(gpus);
      EXPECT_GE(GpuTime::of(gpus, held), GpuTime::micros(micros)) << micros << " by " << gpus;
      EXPECT_LT(GpuTime::of(gpus, held - Duration(1)), GpuTime::micros(micros))
          << micros << " by " << gpus;
    }
  }
}

TEST(GpuTime, StopsAtTheLargestInsteadOfOverflowing) {
  const GpuTime most = GpuTime::of(4096, from_seconds(kLongestSeconds));
  EXPECT_GT(most, GpuTime::of(200, from_seconds(kLongestSeconds)));
  EXPECT_EQ(most + most, most);
  EXPECT_EQ(most + GpuTime::micros(1), most);
  EXPECT_GT(most.held_by(3), from_seconds(kLongestSeconds));
}

}  // namespace
}  // namespace rubato::base
