// A measured training step: what a job reports and model/fit.h learns from.
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

  // Where the wait for synchronisation is measured rather than the pass: of a step without
  // accumulation.
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
