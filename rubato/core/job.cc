#include "rubato/core/job.h"

#include <algorithm>

namespace rubato::core {

bool GpuLimits::legal(int gpus) const {
  if (gpus < min || gpus > max) return false;
  return allowed.empty() || std::binary_search(allowed.begin(), allowed.end(), gpus);
}

std::optional<int> GpuLimits::above(int gpus) const {
  if (allowed.empty()) {
    const int next = std::max(gpus + 1, min);
    return next <= max ? std::optional(next) : std::nullopt;
  }
  const auto at = std::upper_bound(allowed.begin(), allowed.end(), gpus);
  return at != allowed.end() ? std::optional(*at) : std::nullopt;
}

}  // namespace rubato::core
