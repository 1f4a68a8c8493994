#include <cmath>
#include <fmt/format.h>

#include "cmd/command_line.h"
#include "rubato/base/text.h"

namespace rubato::cmd {

Result<std::pair<double, double>> parse_tightness(const char* flag, const std::string& text) {
  const auto ends = split(text, ':');
  const auto low = parse_double(ends[0]);
  const auto high = ends.size() == 2 ? parse_double(ends[1]) : std::nullopt;
  if (!low || !high) {
    return Error{
        fmt::format("{} {}: write LOW:HIGH, for example 0.5:1.5", flag, base::quoted(text))};
  }
  if (!(*low > 0) || !(*high >= *low) || !std::isfinite(*high)) {
    return Error{
        fmt::format("{} {}: write LOW:HIGH with 0 < LOW <= HIGH", flag, base::quoted(text))};
  }
  return std::pair(*low, *high);
}

}  // namespace rubato::cmd
