#include "rubato/model/measured_speed.h"

#include <algorithm>

#include "rubato/base/check.h"

namespace rubato::model {

MeasuredSpeed::MeasuredSpeed(const std::map<int, WorkRate>& rates, int most) : most_(most) {
  CHECK(!rates.empty());
  for (const auto& [gpus, rate] : rates) {
    counts_.push_back(gpus);
    rates_.push_back(rate);
  }
}

WorkRate MeasuredSpeed::rate(const Shape& shape) const {
  if (shape.gpus < 1 || shape.gpus > most_) return 0;
  const auto above = std::lower_bound(counts_.begin(), counts_.end(), shape.gpus);
  const auto at = static_cast<std::size_t>(above - counts_.begin());
  const double gpus = shape.gpus;
  if (above == counts_.end()) return rates_.back() * gpus / counts_.back();
  if (*above == shape.gpus) return rates_[at];
  const int low = at == 0 ? 0 : counts_[at - 1];
  const WorkRate low_rate = at == 0 ? 0 : rates_[at - 1];
  return low_rate + (rates_[at] - low_rate) * (gpus - low) / (counts_[at] - low);
}

std::map<int, WorkRate> MeasuredSpeed::rates() const {
  std::map<int, WorkRate> rates;
  for (std::size_t i = 0; i < counts_.size(); ++i) rates[counts_[i]] = rates_[i];
  return rates;
}

}  // namespace rubato::model
