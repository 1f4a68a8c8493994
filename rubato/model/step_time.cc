#include "rubato/model/step_time.h"

#include <algorithm>
#include <cmath>

#include "rubato/base/check.h"

namespace rubato::model {

double StepTime::sync(const Footprint& place) const {
  CHECK(place.nodes >= 1 && place.nodes <= place.gpus);
  if (place.gpus == 1) return 0;
  if (place.nodes == 1) return node_sync + node_sync_per_gpu * (place.gpus - 2);
  return network_sync + network_sync_per_gpu * (place.gpus - 2);
}

double StepTime::optim(double grad, double sync) const {
  const auto [shorter, longer] = std::minmax(grad, sync);
  if (shorter == 0) return longer;
  if (overlap == 1) return grad + sync;
  // Factors out the longer one, so that no power overflows or underflows.
  return longer * std::pow(1 + std::pow(shorter / longer, overlap), 1 / overlap);
}

double StepTime::iteration(const Footprint& place, const Batch& batch) const {
  CHECK(batch.per_gpu >= 1 && batch.accumulation >= 0);
  const double pass = grad(batch.per_gpu);
  return batch.accumulation * pass + optim(pass, sync(place));
}

}  // namespace rubato::model
