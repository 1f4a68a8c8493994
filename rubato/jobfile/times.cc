#include "rubato/jobfile/times.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "rubato/base/text.h"

namespace rubato::jobfile {
std::optional<double> any_seconds(std::string_view text) {
  constexpr std::string_view kNumber = "0123456789.";
  double total = 0;
  double unit_before = INFINITY;
  while (!text.empty()) {
    const auto end = std::min(text.find_first_not_of(kNumber), text.size());
    const auto number = parse_double(text.substr(0, end));
    const char unit = end == text.size() ? 's' : text[end];
    const double in_seconds = unit == 's'   ? 1
                              : unit == 'm' ? 60
                              : unit == 'h' ? 3600
                              : unit == 'd' ? 86400
                                            : 0;
    // Each unit at most once, and the larger first: "30m1h" is probably a mistake.
    if (!number || in_seconds == 0 || in_seconds >= unit_before) return std::nullopt;
    unit_before = in_seconds;
    total += *number * in_seconds;
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return unit_before == INFINITY ? std::nullopt : std::optional(total);
}

std::optional<Duration> parse_span(std::string_view text) {
  const auto total = any_seconds(text);
  if (!total || !(*total <= kLongestSpan)) return std::nullopt;
  return from_seconds(*total);
}

std::string to_text(Duration span) {
  constexpr std::int64_t kSecond = 1'000'000;
  const std::int64_t rest = span.count() % kSecond;
  return fmt::format("{}{}s", span.count() / kSecond, rest == 0 ? "" : fmt::format(".{:06}", rest));
}

namespace {

// Reads a text from its front. What does not fit stays there, and done() is false.
class Taker {
 public:
  explicit Taker(std::string_view text) : rest_(text) {}

  bool take(std::string_view any) {
    if (rest_.empty() || any.find(rest_.front()) == std::string_view::npos) return false;
    taken_ = rest_.front();
    rest_.remove_prefix(1);
    return true;
  }
  // A number of exactly `count` digits, at most `most`.
  std::optional<int> digits(int count, int most) {
    int value = 0;
    for (int i = 0; i < count; ++i) {
      if (!take("0123456789")) return std::nullopt;
      value = value * 10 + (taken_ - '0');
    }
    return value <= most ? std::optional(value) : std::nullopt;
  }
  // The digits after a point, as microseconds. Further digits are ignored.
  std::int64_t fraction() {
    std::int64_t value = 0;
    for (std::int64_t unit = 100'000; take("0123456789"); unit /= 10)
      value += unit * (taken_ - '0');
    return value;
  }
  [[nodiscard]] char taken() const { return taken_; }
  [[nodiscard]] bool done() const { return rest_.empty(); }

 private:
  std::string_view rest_;
  char taken_ = 0;
};

std::optional<Duration> take_clock(Taker& text) {
  const auto hour = text.digits(2, 23);
  if (!hour || !text.take(":")) return std::nullopt;
  const auto minute = text.digits(2, 59);
  if (!minute) return std::nullopt;
  Duration clock = std::chrono::hours(*hour) + std::chrono::minutes(*minute);
  if (!text.take(":")) return clock;
  const auto second = text.digits(2, 59);
  if (!second) return std::nullopt;
  clock += std::chrono::seconds(*second);
  if (text.take(".")) clock += Duration(text.fraction());
  return clock;
}

std::optional<Duration> take_offset(Taker& text) {
  if (text.take("Zz")) return Duration();
  if (!text.take("+-")) return std::nullopt;
  const int sign = text.taken() == '-' ? -1 : 1;
  const auto hours = text.digits(2, 23);
  text.take(":");
  const auto minutes = text.digits(2, 59);
  if (!hours || !minutes) return std::nullopt;
  return sign * (std::chrono::hours(*hours) + std::chrono::minutes(*minutes));
}

}  // namespace

std::optional<WallTime> any_moment(std::string_view given) {
  Taker text(given);
  const auto year = text.digits(4, 9999);
  if (!year || !text.take("-")) return std::nullopt;
  const auto month = text.digits(2, 12);
  if (!month || !text.take("-")) return std::nullopt;
  const auto day = text.digits(2, 31);
  if (!day || !text.take("Tt ")) return std::nullopt;
  const auto clock = take_clock(text);
  if (!clock) return std::nullopt;
  const auto offset = take_offset(text);
  const std::chrono::year_month_day date{std::chrono::year{*year},
                                         std::chrono::month{static_cast<unsigned>(*month)},
                                         std::chrono::day{static_cast<unsigned>(*day)}};
  if (!offset || !text.done() || !date.ok()) return std::nullopt;
  return std::chrono::sys_days{date} + *clock - *offset;
}

std::optional<WallTime> parse_wall_time(std::string_view given) {
  constexpr std::chrono::sys_days kBegin{std::chrono::year{kFirstYear} / 1 / 1};
  constexpr std::chrono::sys_days kEnd{std::chrono::year{kLastYear} / 1 / 1};
  const auto time = any_moment(given);
  return time && *time >= kBegin && *time < kEnd ? time : std::nullopt;
}

std::string to_text(WallTime time) {
  const auto day = std::chrono::floor<std::chrono::days>(time);
  const std::chrono::year_month_day date(day);
  const std::chrono::hh_mm_ss clock(time - day);
  const auto micros = clock.subseconds().count();
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}{}Z", static_cast<int>(date.year()),
                     static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()),
                     clock.hours().count(), clock.minutes().count(), clock.seconds().count(),
                     micros == 0 ? "" : fmt::format(".{:06}", micros));
}

}  // namespace rubato::jobfile
