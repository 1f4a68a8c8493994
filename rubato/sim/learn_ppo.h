// Trains the network of the policy learned (policy/learned.h) by proximal policy optimisation
// (PPO, Schulman et al. 2017) on generated scenes (sim/learn.h).
//
// First the network imitates a linear scorer: it is trained to give high probability to the same
// choices. That scorer's order of the jobs stays. Then each iteration draws new scenes, and
// simulates the policy on them with choices that are drawn by softmax; to wait has the score 0. The
// reward is minus the number of jobs that are there, integrated over time, so that its sum is the
// sum of all JCTs. Of it the same integral is taken away for srsf with placement netpack on the
// same arrivals. All choices of one decision have the same advantage: generalised advantage
// estimation (lambda 0.97, no discount) with a small network for the value. An iteration ends early
// if the policy has moved too far.
//
// After each iteration the policy is simulated without chance on scenes that are always the same;
// the best so far is the result.
//
// Deterministic like sim/learn.h: by seed and iteration, with any number of threads, and from a
// checkpoint. Adam begins anew in each iteration, so a checkpoint has only weights.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "rubato/math/network.h"
#include "rubato/sim/learn.h"

namespace rubato::sim {

struct PpoOptions {
  LearnOptions scenes;                   // `scenes`: for the comparison of iterations
  int imitations = 4;                    // iterations that imitate
  int iterations = 24;                   // all of them
  int drawn_scenes = 6;                  // new ones in each iteration
  Weights imitated = shipped_weights();  // the linear scorer to imitate
};

struct PpoState {
  int iteration = 0;
  std::vector<double> network, value;
  NetworkWeights best;
  double best_cost = 0;  // 0 before the first iteration
  struct Point {
    double cost = 0;        // average JCT relative to srsf with pack, without chance
    double drawn_cost = 0;  // the same on the new scenes, with chance
    double entropy = 0;     // mean of the choices
  };
  std::vector<Point> curve;

  [[nodiscard]] std::string to_text() const;
  [[nodiscard]] static Result<PpoState> parse(std::string_view text, const std::string& source);
};

[[nodiscard]] PpoState first_ppo_state(std::uint64_t seed);

class PpoLearner {
 public:
  [[nodiscard]] static Result<std::unique_ptr<PpoLearner>> make(const PpoOptions& options);
  // One iteration. `done` counts simulations: drawn_scenes + scenes.
  [[nodiscard]] Result<PpoState> step(PpoState state, std::atomic<std::size_t>* done) const;

 private:
  explicit PpoLearner(PpoOptions options) : options_(std::move(options)) {}
  [[nodiscard]] Result<double> cost(const NetworkWeights& weights,
                                    std::atomic<std::size_t>* done) const;

  PpoOptions options_;
  std::vector<LearnScene> scenes_;
};

}  // namespace rubato::sim
