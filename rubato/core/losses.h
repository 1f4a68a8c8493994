// What a job has shown of its convergence so far. Nobody tells a policy when the job will end: it
// may fit these points and guess.
#pragma once

#include <vector>

#include "rubato/base/units.h"

namespace rubato::core {

struct LossPoint {
  Work done = 0;
  double loss = 0;
};

struct ShownLosses {
  std::vector<LossPoint> points;  // ascending in done
  // The owner's rule: training ends when a pass over the data, which is `epoch` of work, lowers the
  // loss by less than `threshold`.
  Work epoch = 0;
  double threshold = 0;
};

}  // namespace rubato::core
