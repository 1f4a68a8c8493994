// Finds weights for the policy learned (policy/learned.h) by the cross-entropy method: draw sets of
// weights around a mean, simulate each on the same generated scenes, and move mean and spread
// towards the best ones.
//
// A scene is a cluster, a contention model and a generated workload. Its cost for some weights is
// the average JCT divided by that of srsf with placement pack on the same jobs. The scenes cover
// several cluster shapes, loads and mixes of GPU counts, with rigid and with elastic jobs.
//
// Deterministic: the draws depend only on the seed and the generation, so a search that is
// continued from a checkpoint gives the same bytes as one that was never interrupted, with any
// number of threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "rubato/base/random.h"
#include "rubato/base/result.h"
#include "rubato/policy/learned.h"
#include "rubato/sim/simulation.h"

namespace rubato::sim {

struct LearnOptions {
  std::uint64_t seed = 1;
  int generations = 20;
  int population = 24;
  int elite = 6;
  int scenes = 12;
  int jobs = 100;                   // of each scene
  unsigned threads = 0;             // 0: one per core
  bool hidden = false;              // the policy does not look at contention
  std::vector<std::string> models;  // the networks that jobs train
  std::shared_ptr<const ContentionModel> contention;
};

// Where a search stands after some generations. It can be written to a file and read back.
struct LearnState {
  int generation = 0;
  Weights mean{};
  Weights spread{};
  Weights best{};
  double best_cost = 0;  // of `best`; 0 before the first generation
  struct Point {
    double mean_cost = 0;  // of the mean's weights
    double best_cost = 0;  // in this generation
  };
  std::vector<Point> curve;  // by generation

  [[nodiscard]] std::string to_text() const;
  [[nodiscard]] static Result<LearnState> parse(std::string_view text, const std::string& source);
};

[[nodiscard]] LearnState first_state();

struct LearnScene {
  Cluster cluster;
  Workload workload;
  double srsf_jct_s = 0;
};

// Generates as many scenes as the options say, and simulates srsf on them.
[[nodiscard]] Result<std::vector<LearnScene>> draw_scenes(const LearnOptions& options,
                                                          const Random& root);
// The average JCT of a policy on a scene.
[[nodiscard]] Result<double> scene_jct(const LearnOptions& options, const LearnScene& scene,
                                       Policy& policy, Placement placement = Placement::pack);
// run(i) for 0 to runs - 1, in so many threads; 0: one per core.
void in_parallel(std::size_t runs, unsigned threads, const std::function<void(std::size_t)>& run);

class Learner {
 public:
  // Generates the scenes, and simulates srsf on them.
  [[nodiscard]] static Result<std::unique_ptr<Learner>> make(const LearnOptions& options);

  // One generation. `done` counts simulations.
  [[nodiscard]] Result<LearnState> step(LearnState state, std::atomic<std::size_t>* done) const;
  // The mean cost over all scenes.
  [[nodiscard]] Result<double> cost(const Weights& weights) const;

 private:
  explicit Learner(LearnOptions options) : options_(std::move(options)) {}
  [[nodiscard]] Result<std::vector<double>> costs(const std::vector<Weights>& all,
                                                  std::atomic<std::size_t>* done) const;

  LearnOptions options_;
  std::vector<LearnScene> scenes_;
};

}  // namespace rubato::sim
