// How fast a job trains on a given shape of allocation. What policies see is an estimate of this
// kind; the simulator's truth is one too, but in a type that policy/ cannot include.
#pragma once

#include <limits>
#include <span>

#include "rubato/base/units.h"
#include "rubato/core/ids.h"

namespace rubato::core {

struct Shape {
  GpuType type;
  int gpus = 0;
  int nodes = 0;        // nodes the GPUs are on; 0 = the placement does not matter
  int least_nodes = 0;  // nodes they would need at least
};

class SpeedModel {
 public:
  SpeedModel() = default;
  SpeedModel(const SpeedModel&) = delete;
  SpeedModel& operator=(const SpeedModel&) = delete;
  virtual ~SpeedModel() = default;

  // 0 where the job cannot run.
  [[nodiscard]] virtual WorkRate rate(const Shape& shape) const = 0;

  // The rate while another job shares these GPUs; 0 where the two cannot, or nobody measured it.
  [[nodiscard]] virtual WorkRate beside(const Shape& /*shape*/, const SpeedModel& /*other*/) const {
    return 0;
  }

  // Seconds that the last `left` of the job's work takes; infinite where it cannot run. More than a
  // division for who knows that the rate will change.
  [[nodiscard]] virtual double seconds_left(const Shape& shape, Work left) const {
    const WorkRate now = rate(shape);
    return now > 0 ? left / now : std::numeric_limits<double>::infinity();
  }

  // GPU counts that were measured, ascending; empty if the job knows only one count (rigid).
  [[nodiscard]] virtual std::span<const int> measured() const { return {}; }

  [[nodiscard]] WorkRate on(GpuType type, int gpus) const { return rate({type, gpus, 0, 0}); }
};

}  // namespace rubato::core
