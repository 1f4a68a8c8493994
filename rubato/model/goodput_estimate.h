// An estimate of a job's goodput from its own measurements, for policies that choose batches
// (Pollux, Qiao et al., OSDI'21, section 4.1). A value: each new measurement makes a new one.
//
// Rates are in steps at the initial batch M0: goodput / M0. The work of such a job is counted in
// the same unit. Before the first measurement nothing is known, and the job is assumed to do one
// such step per second on each GPU.
//
// On a cluster with several GPU types, the estimate has a part for each type. A type on which the
// job has run has its own fit. For any other type B, the speed is that of a type A on which it has
// run, times the ratio of the speeds on one GPU, which is known in advance (Sia, Jayaram
// Subramanya et al., SOSP'23):
//
//   throughput_B(N) = throughput_B(1) / throughput_A(1) x throughput_A(N)
//
// A is the type on which it ran on most GPUs. Whoever does not ask for a type gets the fit to all
// measurements together.
//
// Pure and immutable.
#pragma once

#include <optional>
#include <utility>
#include <vector>

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

  // What is known about one GPU type.
  struct OnType {
    double one_gpu = 1;            // throughput on one GPU, relative to the other types
    std::optional<StepTime> time;  // fitted to what was measured there
    int most_gpus = 0;             // the most GPUs it has run on there
  };

  // `owners_batch` is the global batch of a job that may not change it. `types`: by GPU type; empty
  // if all are alike.
  GoodputEstimate(const BatchLimits& limits, std::optional<int> owners_batch,
                  const std::optional<Seen>& seen = std::nullopt, std::vector<OnType> types = {})
      : limits_(limits), owners_batch_(owners_batch), seen_(seen), types_(std::move(types)) {}

  [[nodiscard]] WorkRate rate(const Shape& shape) const override;

  [[nodiscard]] const BatchLimits& limits() const { return limits_; }
  [[nodiscard]] std::optional<int> owners_batch() const { return owners_batch_; }
  // nullopt until something was measured.
  [[nodiscard]] const std::optional<Seen>& seen() const { return seen_; }
  // By GPU type; empty if all are alike.
  [[nodiscard]] const std::vector<OnType>& types() const { return types_; }

  // The goodput model. Something must have been measured.
  [[nodiscard]] Goodput goodput() const { return {seen_->time, seen_->noise, limits_}; }
  [[nodiscard]] Goodput goodput(GpuType type) const {
    return {time_on(type), seen_->noise, limits_};
  }
  // The throughput on one GPU of a type, relative to the other types.
  [[nodiscard]] double one_gpu(GpuType type) const;
  // The batch to train with at a placement: the owner's, or the one of highest goodput. Before the
  // first measurement it is M0, or the smallest batch that fills the GPUs. nullopt if the limits do
  // not allow that many GPUs.
  [[nodiscard]] std::optional<Batch> batch_at(const Footprint& place) const;
  [[nodiscard]] std::optional<Batch> batch_at(GpuType type, const Footprint& place) const;

 private:
  [[nodiscard]] StepTime time_on(GpuType type) const;
  [[nodiscard]] std::optional<Batch> batch_at(const Footprint& place,
                                              const std::optional<Goodput>& goodput) const;

  BatchLimits limits_;
  std::optional<int> owners_batch_;
  std::optional<Seen> seen_;
  std::vector<OnType> types_;
};

}  // namespace rubato::model
