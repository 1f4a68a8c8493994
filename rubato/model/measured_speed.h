// The estimate made of some known counts: interpolated, and perfect scaling beyond them. That is
// CoDDL's way (Hwang et al., NSDI'21): overestimate first, re-adjust when more was measured.
#pragma once

#include <map>
#include <span>
#include <vector>

#include "rubato/core/speed.h"

namespace rubato::model {

class MeasuredSpeed final : public SpeedModel {
 public:
  // At least one rate above 0; `most` is the largest count the job can use.
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
