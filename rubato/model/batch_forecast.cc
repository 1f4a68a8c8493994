#include "rubato/model/batch_forecast.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace rubato::model {

BatchForecast::BatchForecast(std::vector<Mode> modes, std::size_t now, Work work, Work epoch)
    : modes_(std::move(modes)), now_(now), work_(work), epoch_(epoch) {
  for (const Mode& mode : modes_) before_ += mode.epochs_before;
}

WorkRate BatchForecast::beside(const Shape& shape, const SpeedModel& other) const {
  const auto* changing = dynamic_cast<const BatchForecast*>(&other);
  const SpeedModel& steps =
      changing != nullptr ? *changing->modes_[changing->now_].speed.steps : other;
  return modes_[now_].speed.factor * modes_[now_].speed.steps->beside(shape, steps);
}

double BatchForecast::epochs_with(std::size_t mode, Work left) const {
  const double done = std::max(work_ - left, 0.0) / epoch_;
  return modes_[mode].epochs_before + (mode == now_ ? std::max(done - before_, 0.0) : 0);
}

double BatchForecast::seconds_left(const Shape& shape, Work left) const {
  const double epochs = std::ceil(work_ / epoch_);
  const double prior = epochs / static_cast<double>(modes_.size());
  double posteriors = 0;
  for (std::size_t m = 0; m < modes_.size(); ++m)
    posteriors += prior + epochs_with(m, left) + (m == now_ ? 1 : 0);
  double weights = 0, seconds = 0;
  for (std::size_t m = 0; m < modes_.size(); ++m) {
    const WorkRate rate = modes_[m].speed.rate(shape);
    if (!(rate > 0)) continue;  // it will not use a batch that cannot run there
    const double seen = epochs_with(m, left) + (m == now_ ? 1 : 0);
    const double rest = std::max(epochs * (prior + seen) / posteriors - seen, 0.0);
    weights += rest;
    seconds += rest * epoch_ / rate;
  }
  if (weights > 0) return left / epoch_ * seconds / weights;
  const WorkRate now = rate(shape);
  return now > 0 ? left / now : std::numeric_limits<double>::infinity();
}

double BatchForecast::seconds_done(const Shape& shape, Work left) const {
  double seconds = 0;
  for (std::size_t m = 0; m < modes_.size(); ++m) {
    const WorkRate rate = modes_[m].speed.rate(shape);
    if (rate > 0) seconds += epochs_with(m, left) * epoch_ / rate;
  }
  return seconds;
}

}  // namespace rubato::model
