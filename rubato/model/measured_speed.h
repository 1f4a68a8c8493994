// An estimate from some measured counts: interpolated between them, and perfect scaling beyond
// them. This is CoDDL's method (Hwang et al., NSDI'21): overestimate first, correct when more is
// measured.
#pragma once

#include <map>
#include <span>
#include <vector>

#include "rubato/core/speed.h"

namespace rubato::model {

class MeasuredSpeed final : public SpeedModel {
 public:
  // At least one rate must be above 0. `most` is the largest count that the job can use.
  MeasuredSpeed(const std::map<int, WorkRate>& rates, int most);

  [[nodiscard]] WorkRate rate(const Shape& shape) const override;
  [[nodiscard]] std::span<const int> measured() const override { return counts_; }

  [[nodiscard]] std::map<int, WorkRate> rates() const;
  [[nodiscard]] int most() const { return most_; }

 private:
  std::vector<int> counts_;
  std::vector<WorkRate> rates_;
  int most_;
};

}  // namespace rubato::model
