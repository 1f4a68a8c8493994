// An estimate of a job's goodput from its own measurements, for policies that choose batches
// (Pollux, Qiao et al., OSDI'21, section 4.1). A value: each new measurement makes a new one.
//
// Rates are in steps at the initial batch M0: goodput / M0. The work of such a job is counted in
// the same unit. Before the first measurement nothing is known, and the job is assumed to do one
// such step per second on each GPU.
//
// Pure and immutable.
#pragma once

#include <optional>

#include "rubato/core/batch.h"
#include "rubato/core/speed.h"
#include "rubato/model/goodput.h"

namespace rubato::model {

class GoodputEstimate final : public SpeedModel {
 public:
  struct Seen {
    StepTime time;
    GradientNoise noise;
    int most_gpus = 0;  // the most GPUs it has run on
  };

  // `owners_batch` is the global batch of a job that may not change it.
  GoodputEstimate(const BatchLimits& limits, std::optional<int> owners_batch,
                  const std::optional<Seen>& seen = std::nullopt)
      : limits_(limits), owners_batch_(owners_batch), seen_(seen) {}

  [[nodiscard]] WorkRate rate(const Shape& shape) const override;

  [[nodiscard]] const BatchLimits& limits() const { return limits_; }
  [[nodiscard]] std::optional<int> owners_batch() const { return owners_batch_; }
  // nullopt until something was measured.
  [[nodiscard]] const std::optional<Seen>& seen() const { return seen_; }

  // The goodput model. Something must have been measured.
  [[nodiscard]] Goodput goodput() const { return {seen_->time, seen_->noise, limits_}; }
  // The batch to train with at a placement: the owner's, or the one of highest goodput. Before the
  // first measurement it is M0, or the smallest batch that fills the GPUs. nullopt if the limits do
  // not allow that many GPUs.
  [[nodiscard]] std::optional<Batch> batch_at(const Footprint& place) const;

 private:
  BatchLimits limits_;
  std::optional<int> owners_batch_;
  std::optional<Seen> seen_;
};

}  // namespace rubato::model
