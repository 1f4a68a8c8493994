// Limits for each caller of the HTTP server: requests per second, and the number of open streams.
// For one thread. The clock is an input.
#pragma once

#include <chrono>
#include <cstddef>
#include <map>
#include <memory>
#include <string>

namespace rubato::http {

// Token buckets by name. A bucket gains `rate` tokens per second, up to `burst`. A request takes
// one token.
class RateLimits {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // How many seconds the caller must wait. 0: none.
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
  // A stream holds its place as long as it holds this pointer.
  using Place = std::shared_ptr<const Crowd>;

  // nullptr: the user already has `most` streams.
  [[nodiscard]] Place take(const std::string& user, std::size_t most);

 private:
  std::map<std::string, std::weak_ptr<const Crowd>> crowds_;
};

}  // namespace rubato::http
