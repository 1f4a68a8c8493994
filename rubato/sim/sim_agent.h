// The agent of a simulated job (Pollux, Qiao et al., OSDI'21, section 4.1). It measures the true
// steps and gradients, without noise, and fits the model that policies see.
//
// As in the published simulation, only the first measurement of each (nodes, GPUs, local batch) is
// kept, although two placements with the same key may differ. Each new key gives a new fit. If GPU
// types differ in speed, the key has the type, and each type also has a fit of its own. The ratios
// of the speeds on one GPU are known from the start, as if every job had been measured for a moment
// on one GPU of each type (Sia, SOSP'23, section 3.2). This takes no simulated time.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "rubato/base/result.h"
#include "rubato/model/goodput_estimate.h"
#include "rubato/model/step_measurement.h"
#include "rubato/sim/profiles.h"

namespace rubato::sim {

class SimAgent {
 public:
  // A job that may not change its batch trains with `owners_batch`.
  SimAgent(const Application& application, std::optional<int> owners_batch)
      : limits_(application.limits()), owners_batch_(owners_batch) {
    for (const double speed : application.type_speeds()) types_.push_back({speed, {}, 0});
  }

  // What is known now. It is the same object until something new is observed.
  [[nodiscard]] const std::shared_ptr<const GoodputEstimate>& estimate();

  void observe(GpuType type, const Footprint& place, const Batch& batch, const StepSeconds& seconds,
               const GradientNoise& noise);

 private:
  BatchLimits limits_;
  std::optional<int> owners_batch_;
  struct Measured {
    GpuType type;  // the first if all are alike
    StepMeasurement step;
  };
  // Fits the steps measured on a type, or all if nullopt.
  [[nodiscard]] Result<StepTime> fit(std::optional<GpuType> type) const;

  std::vector<Measured> measured_;
  std::vector<GoodputEstimate::OnType> types_;  // empty if all are alike
  std::optional<GoodputEstimate::Seen> seen_;
  std::shared_ptr<const GoodputEstimate> estimate_;
};

}  // namespace rubato::sim
