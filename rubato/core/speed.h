// How fast a job trains on an allocation of a given shape. Policies see an estimate of this kind.
// The simulator's truth is one, too, but in a type that policy/ cannot include.
#pragma once

#include <limits>
#include <span>

#include "rubato/base/units.h"
#include "rubato/core/ids.h"

namespace rubato::core {

struct Shape {
  GpuType type;
  int gpus = 0;
  int nodes = 0;        // nodes of the GPUs; 0 = the placement does not matter
  int least_nodes = 0;  // the fewest nodes that could hold them
};

class SpeedModel {
 public:
  SpeedModel() = default;
  SpeedModel(const SpeedModel&) = delete;
  SpeedModel& operator=(const SpeedModel&) = delete;
  virtual ~SpeedModel() = default;

  // 0 if the job cannot run there.
  [[nodiscard]] virtual WorkRate rate(const Shape& shape) const = 0;

  // The rate while another job shares these GPUs; 0 if the two cannot share them, or if this was
  // not measured.
  [[nodiscard]] virtual WorkRate beside(const Shape& /*shape*/, const SpeedModel& /*other*/) const {
    return 0;
  }

  // Seconds for the last `left` of the job's work; infinite if it cannot run there. Not only a
  // division if the model knows that the rate will change.
  [[nodiscard]] virtual double seconds_left(const Shape& shape, Work left) const {
    const WorkRate now = rate(shape);
    return now > 0 ? left / now : std::numeric_limits<double>::infinity();
  }

  // The measured GPU counts, ascending; empty if only one count is known (rigid job).
  [[nodiscard]] virtual std::span<const int> measured() const { return {}; }

  [[nodiscard]] WorkRate on(GpuType type, int gpus) const { return rate({type, gpus, 0, 0}); }
};

}  // namespace rubato::core
