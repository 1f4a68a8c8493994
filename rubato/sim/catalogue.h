// A built-in catalogue of model scaling profiles, so that elastic policies can run traces that
// carry no measured curve. The numbers are of our own making: plausible shapes, not measurements
// of any machine. A step at a fixed global batch on k GPUs takes, as a share of the step on one,
//
//   t(k) = serial + (1 - serial)/k + exchange (k-1)/k + latency (k-1)
//
// that is: what does not shrink, what does, the volume of a ring all-reduce, and its hops.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "rubato/base/random.h"
#include "rubato/base/units.h"
#include "rubato/model/curve.h"

namespace rubato::sim {

struct Profile {
  std::string_view name;
  WorkRate steps_per_s = 1;  // on one GPU
  double serial = 0;
  double exchange = 0;
  double latency = 0;
  int largest = 64;      // the last GPU count of its curve
  double network = 0;    // see CurveSpeed
  double gpu_hours = 1;  // a typical whole training, for traces that do not say

  [[nodiscard]] double speedup(int gpus) const;
  [[nodiscard]] WorkRate rate(int gpus) const { return steps_per_s * speedup(gpus); }
};

[[nodiscard]] std::span<const Profile> catalogue();

// By a model's name as traces spell it ("ResNet-50", "yolov3", "LM"); nullptr if it is unknown.
[[nodiscard]] const Profile* find_profile(std::string_view model);

// Beside the profiles, the jobs of theory: the model "power:0.5" has speed k^0.5 on k GPUs, for any
// exponent above 0 and up to 1. nullopt for other names.
[[nodiscard]] std::optional<double> power_exponent(std::string_view model);

[[nodiscard]] const Profile& draw_profile(Random random);

// The profiles as curves over 1, 2, 4, ... GPUs. Jobs of one profile share one curve.
class CatalogueCurves {
 public:
  // The largest count a curve can be extended to.
  static constexpr int kMostGpus = 4096;

  // Reaches the profile's largest count, or the next power of two at or above `gpus` if more.
  [[nodiscard]] std::shared_ptr<const CurveSpeed> curve(const Profile& profile, int gpus);

 private:
  std::map<std::pair<std::string_view, int>, std::shared_ptr<const CurveSpeed>> made_;
};

}  // namespace rubato::sim
