// How long one training step takes, by placement and batch (Pollux, Qiao et al., OSDI'21, section
// 3.2). Computation is linear in the batch, synchronisation is linear in the GPUs, and the
// parameter g says how much the two overlap.
//
//   T_grad = a_c + b_c m
//   T_sync = 0 on one GPU; a_r + b_r (N - 2) inside one node; a_n + b_n (N - 2) across nodes
//   T_iter = s T_grad + (T_grad^g + T_sync^g)^(1/g)
//
// Pure and immutable: any thread may use it. Parameters come from model/fit.h.
#pragma once

#include "rubato/base/units.h"
#include "rubato/core/batch.h"

namespace rubato::model {

// Where a job runs, as far as its speed depends on it.
struct Footprint {
  int nodes = 1;  // K
  int gpus = 1;   // N >= K
};

struct StepTime {
  double grad_fixed = 0;            // a_c, seconds
  double grad_per_sample = 0;       // b_c
  double node_sync = 0;             // a_r, two GPUs of one node
  double node_sync_per_gpu = 0;     // b_r, each GPU more
  double network_sync = 0;          // a_n, two GPUs of two nodes
  double network_sync_per_gpu = 0;  // b_n
  double overlap = 1;               // g: 1 = one after the other, 10 = the longer hides the other

  // One forward and backward pass over m samples, in seconds.
  [[nodiscard]] double grad(int per_gpu) const { return grad_fixed + grad_per_sample * per_gpu; }
  // Averaging the gradients over all GPUs.
  [[nodiscard]] double sync(const Footprint& place) const;
  // The last pass of a step, during which gradients are averaged.
  [[nodiscard]] double optim(double grad, double sync) const;
  // A whole step.
  [[nodiscard]] double iteration(const Footprint& place, const Batch& batch) const;
  // Samples per second.
  [[nodiscard]] WorkRate throughput(const Footprint& place, const Batch& batch) const {
    return batch.global(place.gpus) / iteration(place, batch);
  }
  // Everything takes so many times as long.
  [[nodiscard]] StepTime slowed_by(double factor) const {
    return {factor * grad_fixed,
            factor * grad_per_sample,
            factor * node_sync,
            factor * node_sync_per_gpu,
            factor * network_sync,
            factor * network_sync_per_gpu,
            overlap};
  }
};

}  // namespace rubato::model
