// Speed models made of numbers: a constant for rigid jobs, a measured curve for elastic ones.
#pragma once

#include <span>
#include <vector>

#include "rubato/core/speed.h"

namespace rubato::model {

// A job that is known at only one GPU count. The rate does not depend on its GPUs.
class ConstantSpeed final : public SpeedModel {
 public:
  explicit ConstantSpeed(WorkRate rate) : rate_(rate) {}
  [[nodiscard]] WorkRate rate(const Shape& /*shape*/) const override { return rate_; }

 private:
  WorkRate rate_;
};

struct CurvePoint {
  int gpus = 0;
  WorkRate rate = 0;
};

// Measured rates at some GPU counts: interpolated linearly between them, proportional below the
// first, and unusable (0) above the last. `network` is the slowdown of a job on more nodes than it
// needs: rate / (1 + network x (1 - least_nodes/nodes)).
class CurveSpeed final : public SpeedModel {
 public:
  // Points ascending in gpus, rates above 0; not necessarily monotone. At most 4,096 GPUs.
  explicit CurveSpeed(std::span<const CurvePoint> points, double network = 0);

  [[nodiscard]] WorkRate rate(const Shape& shape) const override;
  [[nodiscard]] std::span<const int> measured() const override { return measured_; }

  [[nodiscard]] std::vector<CurvePoint> points() const;
  [[nodiscard]] double network() const { return network_; }

 private:
  std::vector<WorkRate> rate_by_gpus_;  // for every count up to the last: rate() is a look-up
  std::vector<int> measured_;
  double network_;
};

// The idealised jobs of scheduling theory (heSRPT): rate `one` on one GPU, and k^q times that on k.
// Known at powers of two.
class PowerSpeed final : public SpeedModel {
 public:
  // 0 < q <= 1; unusable (0) above `most` GPUs.
  PowerSpeed(double q, int most, WorkRate one = 1);

  [[nodiscard]] WorkRate rate(const Shape& shape) const override;
  [[nodiscard]] std::span<const int> measured() const override { return measured_; }

  [[nodiscard]] double q() const { return q_; }
  [[nodiscard]] int most() const { return most_; }
  [[nodiscard]] WorkRate one() const { return one_; }

 private:
  double q_;
  int most_;
  WorkRate one_;
  std::vector<int> measured_;
};

}  // namespace rubato::model
