#include "rubato/model/scaling.h"

#include <algorithm>
#include <vector>

#include "rubato/base/check.h"
#include "rubato/math/nnls.h"

namespace rubato::model {

ScalingModel fit_scaling(std::span<const StepRate> shown) {
  std::vector<StepRate> usable;
  for (const StepRate& point : shown) {
    if (point.gpus > 0 && point.rate > 0) usable.push_back(point);
  }
  CHECK(!usable.empty());
  const std::size_t terms = std::min<std::size_t>(usable.size(), 3);
  std::vector<double> a;
  for (const auto& [gpus, rate] : usable) {
    const double k = gpus;
    const double row[] = {1 / k, 1, k};
    for (std::size_t term = 0; term < terms; ++term) a.push_back(row[term] * rate);
  }
  const std::vector<double> ones(usable.size(), 1);  // each row is divided by its step time
  auto x = non_negative_least_squares(a, terms, ones).x;
  x.resize(3, 0);
  return {x[0], x[1], x[2]};
}

}  // namespace rubato::model
