#include "rubato/sim/trace_record.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <fmt/format.h>

#include "rubato/base/text.h"
#include "rubato/base/time.h"

namespace rubato::sim {
namespace {

// Days since 1970-01-01 of a day in the Gregorian calendar, counted in years that begin in March so
// that the leap day comes last.
std::int64_t days_since_1970(int year, int month, int day) {
  const std::int64_t y = month <= 2 ? year - 1 : year;
  const std::int64_t march_month = (month + 9) % 12;
  const std::int64_t leap_days = y / 4 - y / 100 + y / 400;
  constexpr std::int64_t kDaysTo1970 = 719468;
  return y * 365 + leap_days + (march_month * 153 + 2) / 5 + day - 1 - kDaysTo1970;
}

int days_in(int year, int month) {
  if (month == 2) return year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) ? 29 : 28;
  return month == 4 || month == 6 || month == 9 || month == 11 ? 30 : 31;
}

// Reads digits from the front of a text.
class Digits {
 public:
  explicit Digits(std::string_view text) : rest_(text) {}

  // Exactly `digits` digits; nullopt if they are not there.
  std::optional<int> number(std::size_t digits) {
    if (rest_.size() < digits) return std::nullopt;
    int value = 0;
    for (const char c : rest_.substr(0, digits)) {
      if (c < '0' || c > '9') return std::nullopt;
      value = value * 10 + (c - '0');
    }
    rest_.remove_prefix(digits);
    return value;
  }
  // One of these characters; 0 if none of them is there.
  char one_of(std::string_view characters) {
    if (rest_.empty() || characters.find(rest_.front()) == std::string_view::npos) return 0;
    const char found = rest_.front();
    rest_.remove_prefix(1);
    return found;
  }
  [[nodiscard]] std::string_view rest() const { return rest_; }

 private:
  std::string_view rest_;
};

// Seconds since 1970 of "2017-10-09"; removes it.
std::optional<double> take_date(Digits& text) {
  const auto year = text.number(4);
  if (!year || text.one_of("-") == 0) return std::nullopt;
  const auto month = text.number(2);
  if (!month || text.one_of("-") == 0) return std::nullopt;
  const auto day = text.number(2);
  if (!day || *month < 1 || *month > 12 || *day < 1 || *day > days_in(*year, *month))
    return std::nullopt;
  return static_cast<double>(days_since_1970(*year, *month, *day)) * 86400;
}

// Seconds since midnight of "07:01:55"; removes it.
std::optional<double> take_time_of_day(Digits& text) {
  const auto hour = text.number(2);
  if (!hour || text.one_of(":") == 0) return std::nullopt;
  const auto minute = text.number(2);
  if (!minute || text.one_of(":") == 0) return std::nullopt;
  const auto second = text.number(2);
  if (!second || *hour > 23 || *minute > 59 || *second > 59) return std::nullopt;
  return *hour * 3600.0 + *minute * 60 + *second;
}

// Seconds east of UTC of "+08:00", "Z" or an empty text.
std::optional<double> offset_of(std::string_view text) {
  if (text.empty() || text == "Z") return 0;
  Digits digits(text);
  const char sign = digits.one_of("+-");
  const auto hours = digits.number(2);
  if (sign == 0 || !hours || digits.one_of(":") == 0) return std::nullopt;
  const auto minutes = digits.number(2);
  if (!minutes || *minutes > 59 || !digits.rest().empty()) return std::nullopt;
  return (sign == '-' ? -1 : 1) * (*hours * 3600.0 + *minutes * 60);
}

std::optional<double> whole_number(std::string_view text) {
  const auto value = parse_double(text);
  if (!value || !std::isfinite(*value) || *value < 0 || *value != std::floor(*value))
    return std::nullopt;
  return value;
}

// States in which Slurm has not finished with a job.
constexpr auto kUnended = std::to_array<std::string_view>(
    {"PENDING", "RUNNING", "SUSPENDED", "CONFIGURING", "COMPLETING", "STOPPED", "SIGNALING",
     "STAGE_OUT", "RESIZING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD",
     "SPECIAL_EXIT"});

}  // namespace

std::optional<std::string> drop(const TraceRecord& record) {
  if (record.step) return "are steps of jobs that have their own row";
  if (std::find(kUnended.begin(), kUnended.end(), record.state) != kUnended.end())
    return "had not ended, so their duration is not known";
  if (!record.start_s) return "never started, so their duration is not known";
  if (!record.end_s && !record.elapsed_s) return "have no end, so their duration is not known";
  if (record.allocated.value_or(record.asked_for.value_or(0)) == 0) return "had no GPU";
  if (!record.elapsed_s && *record.end_s < *record.start_s) return "ended before they started";
  return std::nullopt;
}

void take_record(const TraceRecord& record, TraceJob& job) {
  job.gpus = record.allocated.value_or(record.asked_for.value_or(0));
  job.duration_s = record.elapsed_s ? *record.elapsed_s : *record.end_s - *record.start_s;
}

bool states_otherwise(const TraceRecord& record) {
  if (!record.stated_s || !record.start_s || !record.end_s) return false;
  return std::abs(*record.stated_s - (*record.end_s - *record.start_s)) > 1;
}

std::optional<double> parse_timestamp(std::string_view text) {
  if (const auto seconds = whole_number(text)) {
    if (*seconds <= kLongestSeconds) return seconds;
    return std::nullopt;
  }
  Digits digits(text);
  const auto date = take_date(digits);
  if (!date || digits.one_of(" T") == 0) return std::nullopt;
  const auto time = take_time_of_day(digits);
  if (!time) return std::nullopt;
  double fraction = 0;
  if (digits.one_of(".") != 0) {
    double unit = 0.1;
    auto digit = digits.number(1);
    if (!digit) return std::nullopt;
    for (; digit; digit = digits.number(1), unit /= 10) fraction += *digit * unit;
  }
  const auto offset = offset_of(digits.rest());
  if (!offset) return std::nullopt;
  return *date + *time + fraction - *offset;
}

std::optional<double> parse_elapsed(std::string_view text) {
  if (const auto seconds = whole_number(text)) return seconds;
  double days = 0;
  const auto dash = text.find('-');
  if (dash != std::string_view::npos) {
    const auto number = whole_number(text.substr(0, dash));
    if (!number) return std::nullopt;
    days = *number;
    text.remove_prefix(dash + 1);
  }
  Digits digits(text);
  const auto time = take_time_of_day(digits);
  if (!time || !digits.rest().empty()) return std::nullopt;
  return days * 86400 + *time;
}

Result<double> gpus_of_tres(std::string_view text) {
  constexpr std::string_view kGpu = "gres/gpu";
  std::optional<double> total;
  double typed = 0;
  for (const auto item : split(text, ',')) {
    const auto equals = item.find('=');
    if (equals == std::string_view::npos) {
      return Error{"is not a list of resources such as cpu=8,gres/gpu=4"};
    }
    const auto name = item.substr(0, equals);
    const bool of_type = name.substr(0, kGpu.size() + 1) == "gres/gpu:";
    if (name != kGpu && !of_type) continue;
    const auto count = whole_number(item.substr(equals + 1));
    if (!count) return Error{"has a number of GPUs that is not whole"};
    if (of_type) {
      typed += *count;
    } else {
      total = total.value_or(0) + *count;
    }
  }
  return total.value_or(typed);
}

}  // namespace rubato::sim
