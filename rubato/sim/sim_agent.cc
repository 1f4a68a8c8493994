#include "rubato/sim/sim_agent.h"

#include <algorithm>

#include "rubato/model/fit.h"

namespace rubato::sim {

const std::shared_ptr<const GoodputEstimate>& SimAgent::estimate() {
  if (!estimate_)
    estimate_ = std::make_shared<GoodputEstimate>(limits_, owners_batch_, seen_, types_);
  return estimate_;
}

Result<StepTime> SimAgent::fit(std::optional<GpuType> type) const {
  std::vector<StepMeasurement> steps;
  for (const auto& measured : measured_) {
    if (!type || measured.type == *type) steps.push_back(measured.step);
  }
  return fit_step_time(steps);
}

void SimAgent::observe(GpuType type, const Footprint& place, const Batch& batch,
                       const StepSeconds& seconds, const GradientNoise& noise) {
  estimate_.reset();
  if (types_.empty()) type = GpuType();
  const bool known = std::any_of(measured_.begin(), measured_.end(), [&](const Measured& m) {
    return m.type == type && m.step.place.nodes == place.nodes && m.step.place.gpus == place.gpus &&
           m.step.batch.per_gpu == batch.per_gpu;
  });
  if (known) {
    seen_->noise = noise;
    return;
  }
  measured_.push_back(
      {type, StepMeasurement::of_sync(place, batch.per_gpu, seconds.step, seconds.sync)});
  const auto fitted = fit(std::nullopt);
  if (!fitted) {  // if no model fits, nothing is learned
    measured_.pop_back();
    return;
  }
  const int most = std::max(seen_ ? seen_->most_gpus : 0, place.gpus);
  seen_ = GoodputEstimate::Seen{*fitted, noise, most};
  if (types_.empty()) return;
  auto& here = types_[type.index()];
  here.most_gpus = std::max(here.most_gpus, place.gpus);
  if (const auto own = fit(type)) here.time = *own;
}

}  // namespace rubato::sim
