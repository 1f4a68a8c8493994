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

// What the owner of a job allows.
struct BatchLimits {
  int initial = 1;      // M0: the batch the learning rate was tuned for; no batch is smaller
  int largest = 1;      // of the global batch
  int per_gpu_min = 1;  // below, a GPU idles or normalisation breaks
  int per_gpu_max = 1;  // above, memory ends
  bool accumulate = true;
};

}  // namespace rubato::core
