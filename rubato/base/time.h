// Time on the project's own clock: integer microseconds since the start of a run or journal.
// Nothing here reads a clock; time is always an input.
#pragma once

#include <chrono>
#include <cmath>
#include <cstdint>
#include <limits>

#include "rubato/base/namespaces.h"

namespace rubato::base {

struct RubatoClock {
  using rep = std::int64_t;
  using period = std::micro;
  using duration = std::chrono::duration<rep, period>;
  using time_point = std::chrono::time_point<RubatoClock>;
  static constexpr bool is_steady = true;
};

using Duration = RubatoClock::duration;
using Time = RubatoClock::time_point;

inline constexpr Time kStart{};
inline constexpr Time kNever = Time::max();

// The longest time an input may name: 1,000 years, so that sums of two never overflow.
inline constexpr double kLongestSeconds = 3.15576e10;

constexpr double seconds(Duration d) { return static_cast<double>(d.count()) / 1e6; }
constexpr double seconds(Time t) { return seconds(t.time_since_epoch()); }

// Rounds to the nearest microsecond; saturates at kLongestSeconds, so it is safe for infinities.
inline Duration from_seconds(double s) {
  if (!(s < kLongestSeconds)) s = kLongestSeconds;
  if (s < -kLongestSeconds) s = -kLongestSeconds;
  return Duration(std::llround(s * 1e6));
}
inline Time time_at(double s) { return kStart + from_seconds(s); }

}  // namespace rubato::base
