// Limits for each caller of the HTTP server: requests a second, and streams that are open at the
// same time. For one thread; the clock is an input.
#pragma once

#include <chrono>
#include <cstddef>
#include <map>
#include <memory>
#include <string>

namespace rubato::http {

// Token buckets by name. A bucket fills with `rate` tokens a second up to `burst`; a request takes
// one.
class RateLimits {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // How many seconds the caller must wait; 0: go on.
  [[nodiscard]] double take(const std::string& bucket, double rate, double burst, Time now);

 private:
  struct Bucket {
    double level;
    Time filled;
  };

  std::map<std::string, Bucket> buckets_;
};

// Counts the open streams of each user.
class StreamPlaces {
 public:
  struct Crowd {};
  // A stream keeps its place as long as it keeps this.
  using Place = std::shared_ptr<const Crowd>;

  // nullptr: the user has `most` streams already.
  [[nodiscard]] Place take(const std::string& user, std::size_t most);

 private:
  std::map<std::string, std::weak_ptr<const Crowd>> crowds_;
};

}  // namespace rubato::http
