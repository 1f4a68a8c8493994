#include "rubato/core/job.h"

#include <algorithm>
#include <cmath>

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

double JobSpec::worth(Time submitted, Time end) const {
  if (!utility) return !deadline || end <= *deadline ? weight : 0;
  const double late = seconds(end - submitted - utility->target);
  return utility->value / (1 + std::exp(utility->decay * late));
}

}  // namespace rubato::core
