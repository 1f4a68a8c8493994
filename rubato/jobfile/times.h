// Times and spans as people write them in a job file or on a command line.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "rubato/base/time.h"
#include "rubato/base/wall_time.h"

namespace rubato::jobfile {

inline constexpr double kLongestSpan = 3.15576e8;  // seconds; ten years, exact in a double
inline constexpr int kFirstYear = 1970;
inline constexpr int kLastYear = 9000;  // exclusive

// "90", "90s", "15m", "2h", "3d"; "1h30m". At most ten years.
[[nodiscard]] std::optional<Duration> parse_span(std::string_view text);
// Reads back exactly.
[[nodiscard]] std::string to_text(Duration span);
// ISO 8601 with an offset or Z, from 1970 on. Without an offset, the time zone would be ambiguous.
[[nodiscard]] std::optional<WallTime> parse_wall_time(std::string_view given);
// In UTC; reads back exactly.
[[nodiscard]] std::string to_text(WallTime time);

// The same without the limits: for a sentence that says what is out of range.
[[nodiscard]] std::optional<double> any_seconds(std::string_view text);
[[nodiscard]] std::optional<WallTime> any_moment(std::string_view given);

}  // namespace rubato::jobfile
