// The losses that a job has shown so far. A policy does not know when the job will end. It may fit
// these points and estimate the end.
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
  // The owner's rule: training ends when one epoch (`epoch` units of work) lowers the loss by less
  // than `threshold`.
  Work epoch = 0;
  double threshold = 0;
};

}  // namespace rubato::core
