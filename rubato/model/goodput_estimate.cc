#include "rubato/model/goodput_estimate.h"

#include <algorithm>

namespace rubato::model {

WorkRate GoodputEstimate::rate(const Shape& shape) const {
  if (!seen_) return shape.gpus * one_gpu(shape.type);
  const Footprint place{std::max(shape.nodes, 1), shape.gpus};
  const Goodput there = goodput(shape.type);
  const auto tuned = owners_batch_ ? there.fixed(place, *owners_batch_) : there.best(place);
  return tuned ? tuned->goodput / limits_.initial : 0;
}

double GoodputEstimate::one_gpu(GpuType type) const {
  return type.index() < types_.size() ? types_[type.index()].one_gpu : 1;
}

StepTime GoodputEstimate::time_on(GpuType type) const {
  if (type.index() >= types_.size()) return seen_->time;
  if (const auto& own = types_[type.index()].time) return *own;
  const auto seen =
      std::max_element(types_.begin(), types_.end(), [](const OnType& a, const OnType& b) {
        return (a.time ? a.most_gpus : 0) < (b.time ? b.most_gpus : 0);
      });
  if (!seen->time) return seen_->time;
  return seen->time->slowed_by(seen->one_gpu / types_[type.index()].one_gpu);
}

std::optional<Batch> GoodputEstimate::batch_at(const Footprint& place) const {
  return batch_at(place, seen_ ? std::optional(goodput()) : std::nullopt);
}

std::optional<Batch> GoodputEstimate::batch_at(GpuType type, const Footprint& place) const {
  return batch_at(place, seen_ ? std::optional(goodput(type)) : std::nullopt);
}

std::optional<Batch> GoodputEstimate::batch_at(const Footprint& place,
                                               const std::optional<Goodput>& goodput) const {
  if (owners_batch_) return spread_batch(limits_, place.gpus, *owners_batch_);
  if (!goodput) {
    const double filled = 1.0 * limits_.per_gpu_min * place.gpus;
    return spread_batch(limits_, place.gpus, std::max(1.0 * limits_.initial, filled));
  }
  const auto tuned = goodput->best(place);
  return tuned ? std::optional(tuned->batch) : std::nullopt;
}

}  // namespace rubato::model
