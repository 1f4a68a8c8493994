#include "rubato/sim/sim_agent.h"

#include <algorithm>

#include "rubato/base/check.h"
#include "rubato/model/fit.h"

namespace rubato {

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
  if (!seen_) seen_.emplace();
  seen_->noise = noise;
  if (known) return;
  measured_.push_back(StepMeasurement::of_sync(place, batch.per_gpu, seconds.step, seconds.sync));
  seen_->most_gpus = std::max(seen_->most_gpus, place.gpus);
  auto fitted = fit_step_time(measured_);
  CHECK(fitted.ok());  // profiles were checked when they were read
  seen_->time = *fitted;
}

}  // namespace rubato
