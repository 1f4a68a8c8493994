// Goodput: how fast a job really learns (Pollux, Qiao et al., OSDI'21). It is samples per second,
// times how much each sample is worth at that batch size:
//
//   goodput = throughput x EFF(M),   EFF(M) = (phi + M0) / (phi + M),   phi = M0 var/sqr,  M >= M0
//
// EFF is 1 at M0 and falls as the batch grows; the noisier the gradients, the more slowly it falls.
//
// The model chooses the batch: of 50 global batch sizes, evenly spaced on a logarithmic scale from
// M0 (or the smallest that fills the GPUs) to the largest allowed, it takes the one with the
// highest goodput. A batch that does not fit into the memory of the GPUs is accumulated. A single
// GPU with a batch above M0 accumulates at least once, because one gradient per step says little
// about the gradient noise, and so about the learning rate.
//
// Deviates: published candidates may be rounded up above the largest batch and cut afterwards; ours
// are cut before they are compared. If everything is 0 (no gradient seen yet), a larger batch is
// worth nothing, as published.
//
// Pure; GoodputTable caches its results and belongs to one thread.
#pragma once

#include <optional>
#include <vector>

#include "rubato/core/batch.h"
#include "rubato/model/gradient_noise.h"
#include "rubato/model/step_time.h"

namespace rubato::model {

struct TunedBatch {
  Batch batch;
  double goodput = 0;  // samples per second, each worth one at M0
};

struct Goodput {
  StepTime time;
  GradientNoise noise;
  BatchLimits limits;

  // The efficiency of a global batch, in (0, 1]. Batches below M0 count as M0.
  [[nodiscard]] double efficiency(double batch) const;
  [[nodiscard]] double at(const Footprint& place, const Batch& batch) const {
    return time.throughput(place, batch) * efficiency(batch.global(place.gpus));
  }

  // The batch with the highest goodput; nullopt if these GPUs cannot be filled within the limits.
  [[nodiscard]] std::optional<TunedBatch> best(const Footprint& place) const;
  // For a job whose owner has chosen the global batch: it is rounded up to equal passes, but never
  // above the largest.
  [[nodiscard]] std::optional<TunedBatch> fixed(const Footprint& place, int batch) const;
};

// How to spread a global batch: the fewest passes, of equal size. nullopt if the limits do not
// allow it.
[[nodiscard]] std::optional<Batch> spread_batch(const BatchLimits& limits, int gpus, double batch);

// A running job changes its batch only for a gain that is larger than the noise of the estimates.
constexpr double kGainWorthSwitching = 1.05;
[[nodiscard]] inline bool worth_switching(double goodput_now, double goodput_then) {
  return goodput_then > kGainWorthSwitching * goodput_now;
}

// The best goodputs of one job, each computed on first use. Of the nodes, it matters only whether
// there is more than one.
class GoodputTable {
 public:
  // Up to `most_gpus`; with a fixed batch if one is given.
  GoodputTable(const Goodput& goodput, int most_gpus, std::optional<int> fixed_batch = {});

  // 0 if the job cannot run there.
  [[nodiscard]] double at(const Footprint& place);
  // Relative to another placement, such as a fair share; 0 if the job cannot run there.
  [[nodiscard]] double speedup(const Footprint& place, const Footprint& reference);

 private:
  Goodput goodput_;
  std::optional<int> fixed_batch_;
  std::vector<double> known_;  // by 2 gpus + crosses nodes; negative = not computed yet
};

}  // namespace rubato::model
