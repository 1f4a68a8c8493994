// How a job's global batch M is spread over its GPUs: M = gpus x per_gpu x (accumulation + 1).
#pragma once

namespace rubato::core {

struct Batch {
  int per_gpu = 1;       // m: samples of one forward and backward pass on one GPU
  int accumulation = 0;  // s: passes before the one that synchronises

  [[nodiscard]] double global(int gpus) const {
    return static_cast<double>(gpus) * per_gpu * (accumulation + 1.0);
  }
  friend bool operator==(const Batch&, const Batch&) = default;
};

// The limits that the owner of a job has set.
struct BatchLimits {
  int initial = 1;      // M0: the batch that the learning rate was tuned for; the smallest one
  int largest = 1;      // of the global batch
  int per_gpu_min = 1;  // below this, a GPU is idle or normalisation breaks
  int per_gpu_max = 1;  // above this, memory is not enough
  bool accumulate = true;
};

}  // namespace rubato::core
