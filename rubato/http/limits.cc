#include "rubato/http/limits.h"

#include <algorithm>

namespace rubato::http {

double RateLimits::take(const std::string& bucket, double rate, double burst, Time now) {
  auto& [level, filled] = buckets_.try_emplace(bucket, Bucket{burst, now}).first->second;
  level = std::min(burst, level + rate * std::chrono::duration<double>(now - filled).count());
  filled = now;
  if (level < 1) return (1 - level) / rate;
  level -= 1;
  return 0;
}

StreamPlaces::Place StreamPlaces::take(const std::string& user, std::size_t most) {
  auto& crowd = crowds_[user];
  if (static_cast<std::size_t>(crowd.use_count()) >= most) return nullptr;
  auto place = crowd.lock();
  if (!place) place = std::make_shared<const Crowd>();
  crowd = place;
  return place;
}

}  // namespace rubato::http
