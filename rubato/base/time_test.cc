#include "rubato/base/time.h"

#include <cstdint>
#include <gtest/gtest.h>
#include <limits>

namespace rubato::base {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(Time, SecondsRoundToTheNearestMicrosecond) {
  struct Case {
    double s;
    std::int64_t micros;
  };
  for (const auto& [s, micros] :
       {Case{0, 0}, Case{1, 1'000'000}, Case{0.1, 100'000}, Case{1e-6, 1}, Case{0.4e-6, 0},
        Case{0.6e-6, 1}, Case{1.5e-6, 2}, Case{-2.25, -2'250'000}, Case{-0.4e-6, 0},
        Case{86400.000001, 86'400'000'001}}) {
    EXPECT_EQ(from_seconds(s).count(), micros) << s;
    EXPECT_EQ(time_at(s), kStart + from_seconds(s)) << s;
  }
  EXPECT_EQ(seconds(Duration(2'500'000)), 2.5);
  EXPECT_EQ(seconds(kStart + Duration(1)), 1e-6);
}

TEST(Time, FarTimesSaturateInsteadOfOverflowing) {
  const Duration longest(static_cast<std::int64_t>(kLongestSeconds * 1e6));
  for (const double s : {kLongestSeconds, kLongestSeconds * 2, 1e300, kInfinity,
                         std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_EQ(from_seconds(s), longest) << s;
  }
  for (const double s : {-kLongestSeconds, -1e300, -kInfinity}) {
    EXPECT_EQ(from_seconds(s), -longest) << s;
  }
  EXPECT_LT(time_at(kInfinity) + longest, kNever) << "the sum of two is still before never";
  EXPECT_GT(time_at(-kInfinity) - longest, Time::min());
}

TEST(Time, WholeMicrosecondsSurviveTheWayThroughSeconds) {
  // Exact while a double holds all the microseconds: 2^53 of them are 285 years.
  for (std::int64_t micros = 1; micros < (std::int64_t{1} << 53U); micros = micros * 3 + 1) {
    EXPECT_EQ(from_seconds(seconds(Duration(micros))).count(), micros);
  }
}

}  // namespace
}  // namespace rubato::base
