#include "rubato/sim/sim_agent.h"

#include <algorithm>

#include "rubato/model/fit.h"

namespace rubato::sim {

const std::shared_ptr<const GoodputEstimate>& SimAgent::estimate() {
  if (!estimate_) estimate_ = std::make_shared<GoodputEstimate>(limits_, owners_batch_, seen_);
  return estimate_;
}

void SimAgent::observe(const Footprint& place, const Batch& batch, const StepSeconds& seconds,
                       const GradientNoise& noise) {
  estimate_.reset();
  const bool known = std::any_of(measured_.begin(), measured_.end(), [&](const StepMeasurement& m) {
    return m.place.nodes == place.nodes && m.place.gpus == place.gpus &&
           m.batch.per_gpu == batch.per_gpu;
  });
  if (known) {
    seen_->noise = noise;
    return;
  }
  measured_.push_back(StepMeasurement::of_sync(place, batch.per_gpu, seconds.step, seconds.sync));
  const auto fitted = fit_step_time(measured_);
  if (!fitted) {  // if no model fits, nothing is learned
    measured_.pop_back();
    return;
  }
  const int most = std::max(seen_ ? seen_->most_gpus : 0, place.gpus);
  seen_ = GoodputEstimate::Seen{*fitted, noise, most};
}

}  // namespace rubato::sim
