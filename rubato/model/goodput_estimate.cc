#include "rubato/model/goodput_estimate.h"

#include <algorithm>

namespace rubato::model {

WorkRate GoodputEstimate::rate(const Shape& shape) const {
  if (!seen_) return shape.gpus;
  const Footprint place{std::max(shape.nodes, 1), shape.gpus};
  const auto tuned = owners_batch_ ? goodput().fixed(place, *owners_batch_) : goodput().best(place);
  return tuned ? tuned->goodput / limits_.initial : 0;
}

std::optional<Batch> GoodputEstimate::batch_at(const Footprint& place) const {
  if (owners_batch_) return spread_batch(limits_, place.gpus, *owners_batch_);
  if (!seen_) {
    const double filled = 1.0 * limits_.per_gpu_min * place.gpus;
    return spread_batch(limits_, place.gpus, std::max(1.0 * limits_.initial, filled));
  }
  const auto tuned = goodput().best(place);
  return tuned ? std::optional(tuned->batch) : std::nullopt;
}

}  // namespace rubato::model
