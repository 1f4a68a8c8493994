// A built-in catalogue of scaling profiles, so that elastic policies can run traces without
// measured curves. We chose the numbers ourselves: they are plausible shapes, not measurements of
// any machine. With a fixed global batch, a step on k GPUs takes this long, relative to a step on
// one GPU:
//
//   t(k) = serial + (1 - serial)/k + exchange (k-1)/k + latency (k-1)
//
// The terms are: work that does not scale, work that scales, the volume of a ring all-reduce, and
// its hops.
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
  double gpu_hours = 1;  // of a typical training, for traces without durations

  [[nodiscard]] double speedup(int gpus) const;
  [[nodiscard]] WorkRate rate(int gpus) const { return steps_per_s * speedup(gpus); }
};

[[nodiscard]] std::span<const Profile> catalogue();

// Finds a profile by a model's name as traces write it ("ResNet-50", "yolov3", "LM"); nullptr if
// the name is unknown.
[[nodiscard]] const Profile* find_profile(std::string_view model);

// The idealised jobs of scheduling theory: the model "power:0.5" has speed k^0.5 on k GPUs. The
// exponent is above 0 and at most 1. nullopt for other names.
[[nodiscard]] std::optional<double> power_exponent(std::string_view model);

[[nodiscard]] const Profile& draw_profile(Random random);

// The profiles as curves over 1, 2, 4, ... GPUs. Jobs of one profile share one curve.
class CatalogueCurves {
 public:
  // The largest count to which a curve can be extended.
  static constexpr int kMostGpus = 4096;

  // Ends at the profile's largest count, or at the next power of two at or above `gpus` if that is
  // larger.
  [[nodiscard]] std::shared_ptr<const CurveSpeed> curve(const Profile& profile, int gpus);

 private:
  std::map<std::pair<std::string_view, int>, std::shared_ptr<const CurveSpeed>> made_;
};

}  // namespace rubato::sim
