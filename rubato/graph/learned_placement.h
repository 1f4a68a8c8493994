// Placements that are learned by trying them: a policy chooses a device for one group after the
// other, the simulation says what a step takes, and the policy changes. Two methods, with the same
// policy, so that only the method differs:
//
//   reinforce  the policy gradient of Mirhoseini et al. (Device Placement Optimization with
//              Reinforcement Learning, ICML'17): REINFORCE with the reward -sqrt(seconds of a
//              step), a constant reward for placements that do not fit, and a moving average of the
//              rewards as the baseline
//   ppo        the method of Spotlight (Gao, Chen, Li, ICML'18): the placement of a graph is a
//              Markov decision process with one stage per group, and each batch of placements is
//              used for several steps of proximal policy optimisation
//
// Deviations from both papers. Their policies are recurrent networks, and their seconds were
// measured on machines. Here the score of a device is a small network of 10 features of this stage
// (where its inputs are, when it could end there, load and memory of the device; see stage_features
// in the .cc), plus one number for each pair of group and device. So the policy is told more about
// the devices than theirs. Advantages are divided by their spread and the entropy of the policy is
// rewarded, in both methods. The papers train with several workers; this is one thread.
//
// Deterministic: the same seed gives the same placements. No clock.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "rubato/graph/schedule.h"

namespace rubato::graph {

enum class Method : std::uint8_t { reinforce, ppo };

struct TrialOptions {
  Method method = Method::ppo;
  int samples = 4000;  // placements to try
  int batch = 10;      // of them before each change of the policy
  std::uint64_t seed = 1;
};

struct Trials {
  Placement best;
  double best_seconds = Problem::kNever;
  std::vector<double> curve;  // the best seconds after each sample

  // How many samples it took to get to this; 0 if it never did.
  [[nodiscard]] std::size_t samples_until(double seconds) const;
};

// `done` counts samples.
[[nodiscard]] Trials try_placements(const Problem& problem, const TrialOptions& options,
                                    std::atomic<std::size_t>* done = nullptr);

}  // namespace rubato::graph
