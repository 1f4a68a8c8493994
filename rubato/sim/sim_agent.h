// The agent of a simulated job (Pollux, Qiao et al., OSDI'21, section 4.1). It measures the true
// steps and gradients, without noise, and fits the model that policies see.
//
// As in the published simulation, only the first measurement of each (nodes, GPUs, local batch) is
// kept, although two placements with the same key may differ. Each new key gives a new fit.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "rubato/model/goodput_estimate.h"
#include "rubato/model/step_measurement.h"
#include "rubato/sim/profiles.h"

namespace rubato::sim {

class SimAgent {
 public:
  // A job that may not change its batch trains with `owners_batch`.
  SimAgent(const Application& application, std::optional<int> owners_batch)
      : limits_(application.limits()), owners_batch_(owners_batch) {}

  // What is known now. It is the same object until something new is observed.
  [[nodiscard]] const std::shared_ptr<const GoodputEstimate>& estimate();

  void observe(const Footprint& place, const Batch& batch, const StepSeconds& seconds,
               const GradientNoise& noise);

 private:
  BatchLimits limits_;
  std::optional<int> owners_batch_;
  std::vector<StepMeasurement> measured_;
  std::optional<GoodputEstimate::Seen> seen_;
  std::shared_ptr<const GoodputEstimate> estimate_;
};

}  // namespace rubato::sim
