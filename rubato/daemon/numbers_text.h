// Many records as one text of numbers, because a snapshot may have a hundred thousand of them.
// Texts that records share are written once.
#pragma once

#include <charconv>
#include <cmath>
#include <cstdint>
#include <fmt/format.h>
#include <iterator>
#include <map>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "rubato/base/json.h"
#include "rubato/base/wall_time.h"
#include "rubato/core/ids.h"

namespace rubato::daemon {

class NumbersWriter {
 public:
  void put(std::int64_t number) {
    if (!numbers_.empty()) numbers_ += ' ';
    fmt::format_to(std::back_inserter(numbers_), "{}", number);
  }
  void put(WallTime at) { put(at.time_since_epoch().count()); }
  void put(const std::string& text) {
    const auto [at, fresh] = known_.emplace(text, texts_.size());
    if (fresh) texts_.push_back(text);
    put(static_cast<std::int64_t>(at->second));
  }
  // Exactly, in the fewest digits. Must be finite.
  void put_real(double value) {
    if (!numbers_.empty()) numbers_ += ' ';
    fmt::format_to(std::back_inserter(numbers_), "{}", value);
  }
  [[nodiscard]] Json json() && { return {{"numbers", std::move(numbers_)}, {"texts", texts_}}; }

 private:
  std::string numbers_;
  std::vector<std::string> texts_;
  std::map<std::string, std::size_t> known_;
};

// `put(out, record)` writes one of them.
template <class Records, class Put>
Json numbers_text(const Records& records, const Put& put) {
  NumbersWriter out;
  for (const auto& record : records) put(out, record);
  return std::move(out).json();
}

// Throws what nlohmann::json throws if it is not what the writer wrote; load() catches it.
class NumbersReader {
 public:
  explicit NumbersReader(const Json& saved)
      : numbers_(saved.at("numbers").get_ref<const std::string&>()), texts_(saved.at("texts")) {}

  [[nodiscard]] bool done() const { return at_ >= numbers_.size(); }
  [[nodiscard]] bool broken() const { return broken_; }
  std::int64_t number() { return next<std::int64_t>(); }
  double real() {
    const auto value = next<double>();
    broken_ = broken_ || !std::isfinite(value);
    return value;
  }
  template <class T>
  T number_in(std::int64_t most) {
    const std::int64_t value = number();
    broken_ = broken_ || value < 0 || value > most;
    return broken_ ? T() : static_cast<T>(value);
  }
  WallTime time() { return WallTime(Duration(number())); }
  JobId job() { return JobId(number_in<JobId::rep>(UINT32_MAX)); }
  std::string text() { return texts_.at(static_cast<std::size_t>(number())).get<std::string>(); }

 private:
  template <class T>
  T next() {
    T value = 0;
    const char* begin = numbers_.data() + at_;
    const char* end = numbers_.data() + numbers_.size();
    const auto [stop, problem] = std::from_chars(begin, end, value);
    broken_ = broken_ || problem != std::errc();
    at_ = problem == std::errc() ? static_cast<std::size_t>(stop - numbers_.data()) + 1
                                 : numbers_.size();
    return value;
  }

  const std::string& numbers_;
  const Json& texts_;
  std::size_t at_ = 0;
  bool broken_ = false;
};

}  // namespace rubato::daemon
