// What an opportunistic job (the guest) gets on the GPUs of a guaranteed job (its host).
//
// The guest computes only a share of the time. The host then loses that share of what it would lose
// beside an unlimited guest. The share is as large as the allowed loss permits, so the guest gets
// what the host leaves, and nothing where the host needs everything.
//
// The share is our reading of AntMan (policy/antman.h); nothing is known about the published
// controller. Pure.
#pragma once

#include <algorithm>

#include "rubato/core/speed.h"

namespace rubato::model {

// How much slower the host may become.
inline constexpr double kHostMayLose = 0.05;

// `kept`: the part of its speed that the host keeps beside an unlimited guest.
[[nodiscard]] inline double guest_share(double kept, double may_lose = kHostMayLose) {
  return kept >= 1 - may_lose ? 1 : may_lose / (1 - std::max(kept, 0.0));
}

struct GuestPair {
  double share = 0;   // of the time that the guest computes
  WorkRate host = 0;  // both 0 if the two cannot share these GPUs, or were not measured
  WorkRate guest = 0;
};

// Speed: a SpeedModel, or a BatchSpeed.
template <class Speed>
[[nodiscard]] GuestPair guest_pair(const Speed& host, const Speed& guest, const Shape& shape) {
  const WorkRate alone = host.rate(shape);
  const WorkRate slowed = host.beside(shape, guest);
  const WorkRate unlimited = guest.beside(shape, host);
  if (!(alone > 0) || !(slowed > 0) || !(unlimited > 0)) return {};
  const double kept = std::min(1.0, slowed / alone);
  const double share = guest_share(kept);
  return {share, alone * (1 - share * (1 - kept)), share * unlimited};
}

}  // namespace rubato::model
