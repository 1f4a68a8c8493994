// When a policy may be asked, where decisions keep an interval. Time is cut into intervals from
// kStart on; there is at most one decision in each. An interval of 0 means no limit.
//
// The simulator, whose time jumps, decides at the beginning of an interval; the daemon at any
// moment of one.
#pragma once

#include <algorithm>
#include <optional>

#include "rubato/base/time.h"

namespace rubato::loop {

// The first moment from `t` on that is in a later interval than the last decision.
[[nodiscard]] inline Time decision_allowed_from(Time t, Duration interval,
                                                std::optional<Time> last_decision) {
  if (interval == Duration(0) || !last_decision) return t;
  const auto before = (*last_decision - kStart) / interval;
  return std::max(t, kStart + (before + 1) * interval);
}

// The first beginning of an interval from `t` on.
[[nodiscard]] inline Time next_interval(Time t, Duration interval) {
  if (interval == Duration(0)) return t;
  return kStart + (t - kStart + interval - Duration(1)) / interval * interval;
}

}  // namespace rubato::loop
