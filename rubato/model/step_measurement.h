// A measured training step. Jobs report it, and model/fit.h uses it.
#pragma once

#include "rubato/core/batch.h"
#include "rubato/model/step_time.h"

namespace rubato::model {

// Mean times of steps at one placement and batch.
struct StepMeasurement {
  Footprint place;
  Batch batch;
  double step_seconds = 0;  // T_iter: the whole step with all its passes
  double grad_seconds = 0;  // T_grad: one pass without synchronisation

  // For jobs that measure the time spent waiting for synchronisation instead of the pass. For a
  // step without accumulation.
  [[nodiscard]] static StepMeasurement of_sync(const Footprint& place, int per_gpu,
                                               double step_seconds, double sync_seconds) {
    return {place, {per_gpu, 0}, step_seconds, step_seconds - sync_seconds};
  }
  // The pass that synchronises: T_optim.
  [[nodiscard]] double optim_seconds() const {
    return step_seconds - batch.accumulation * grad_seconds;
  }
};

}  // namespace rubato::model
