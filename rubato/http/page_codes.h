// One-time codes of `rubato page`. A code stands for the user who asked for it, can be used once,
// and only for two minutes. Codes are kept in memory alone, as hashes. No I/O; the clock is an
// input.
#pragma once

#include <chrono>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "rubato/api/request.h"
#include "rubato/journal/digest.h"

namespace rubato::http {

class PageCodes {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr std::chrono::seconds kHolds{120};
  // Of one user. Beyond it, the oldest code of the user is dropped.
  static constexpr std::size_t kMost = 16;

  [[nodiscard]] std::string make(const Caller& caller, Time now);
  // The user who made the code; nullopt if it is unknown, used or too old.
  [[nodiscard]] std::optional<Caller> take(std::string_view code, Time now);

 private:
  struct Entry {
    Caller caller;
    Time until;
  };
  void drop_old(Time now);

  std::map<Digest, Entry> codes_;
};

}  // namespace rubato::http
