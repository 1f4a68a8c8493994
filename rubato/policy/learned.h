// A learned policy: scores decide which job comes first, and how many GPUs on which nodes it gets.
// `rubato learn` finds the weights (sim/learn.h, sim/learn_ppo.h); docs/learning.md reports what
// they give.
//
// All jobs, running or waiting, are taken in the order of the job's part of the score. Each gets
// the candidate (count, node set) with the highest rest of the score, or waits if no rest is 0 or
// more. Counts: the one asked for, that times 1/4, 1/2, 2 and 4, the present and the smallest one,
// if they are legal. Node sets: the present GPUs; the tightest fit on idle GPUs; the same on nodes
// where nobody uses the network; the emptiest nodes; and, if the idle GPUs do not suffice or would
// scatter the job, the same without regard to running jobs that come later in the order, which must
// then move or wait. So the weights decide about preemption, moves and resizes as well. If nothing
// would run, the first job gets its best candidate whatever the score.
//
// There are two scorers. The linear one has a weight for each feature. The network (24-64-32-1)
// sees all features of a candidate at once, also those of the job, and a few of the cluster. The
// order of the jobs is linear with both.
//
// Knows: work left, speed curve, restart cost; contention only by what jobs report about their own
// speed (SeenContention), unless contention=oracle.
// Pure: decide() is const; State is what it remembers between calls.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rubato/math/network.h"
#include "rubato/model/contention.h"
#include "rubato/policy/policy.h"

namespace rubato::policy {

// The features in the order of the weights. The first ones are about the job alone.
inline constexpr std::size_t kJobFeatures = 5;
inline constexpr auto kFeatures = std::to_array<std::string_view>({
    "service_left",     // log2 of GPU-seconds left at the count asked for, / 10
    "time_left",        // log2 of seconds left there, / 10
    "waited",           // log2 of seconds without GPUs since it came or last ran, / 10
    "attained",         // log2 of GPU-seconds that it had, / 10
    "runs",             // 1 if it has GPUs
    "constant",         // 1
    "size",             // log2 of count / count asked for
    "gain",             // log2 of its speed / its speed at the count asked for
    "size_in_a_crowd",  // size x (GPUs that waiting jobs ask for / all GPUs, at most 2)
    "extra_nodes",      // nodes beyond the fewest, / the fewest
    "fragments",        // share of its nodes that stays idle
    "own_loss",         // share of its speed that it will lose to neighbours
    "others_loss",      // the sum of what each neighbour will lose more than now
    "weighted_loss",    // the same, each x (time left / the neighbour's time left, at most 4)
    "loss_in_a_crowd",  // own_loss x the crowd of size_in_a_crowd
    "stays",            // 1 if it keeps exactly the GPUs that it has
    "restart",          // for others with GPUs: restart cost / time left, at most 1
    "displaces",        // share of the GPUs that running jobs later in the order have now
});
inline constexpr std::size_t kWeights = kFeatures.size();
using Weights = std::array<double, kWeights>;

// What a network sees of a candidate: the features above, and then
//   log2 of its count, / 6; 1 if it spans nodes; the share of GPUs that are idle; the crowd of
//   size_in_a_crowd; log2 of the number of jobs, / 10; the share of jobs that come later
inline constexpr std::size_t kInputs = kWeights + 6;
using Inputs = std::array<double, kInputs>;

// Chooses one of a job's candidates, in the order in which they are considered.
class Chooser {
 public:
  Chooser() = default;
  Chooser(const Chooser&) = delete;
  Chooser& operator=(const Chooser&) = delete;
  virtual ~Chooser() = default;

  // An index, or candidates.size(): the job waits. If it may not wait, there is a candidate.
  [[nodiscard]] virtual std::size_t choose(std::span<const Inputs> candidates, bool may_wait) = 0;
};

[[nodiscard]] math::Network empty_network();

// Shortest remaining service first on the fewest nodes, with some care for neighbours: where the
// search for weights begins.
[[nodiscard]] Weights first_weights();
// The weights that `rubato learn` has found, with the command in learned_weights.h.
[[nodiscard]] Weights shipped_weights();

[[nodiscard]] std::string to_text(const Weights& weights);
[[nodiscard]] Result<Weights> parse_weights(std::string_view text, const std::string& source);

// A network and the weights of the order. Both are rounded to the precision of `float`, so that a
// file is read back as it was written.
struct NetworkWeights {
  std::array<double, kJobFeatures> order{};
  std::vector<double> network;
  friend bool operator==(const NetworkWeights&, const NetworkWeights&) = default;
};
// Found by `rubato learn --method ppo`, with the command in learned_network.h.
[[nodiscard]] NetworkWeights shipped_network();
[[nodiscard]] std::string to_text(const NetworkWeights& weights);
[[nodiscard]] Result<NetworkWeights> parse_network(std::string_view text,
                                                   const std::string& source);

class Learned {
 public:
  struct Config {
    Weights weights = shipped_weights();
    bool hidden = false;                                // it does not look at contention
    std::shared_ptr<const ContentionModel> contention;  // an oracle's; else nullptr
    // Chooses instead of the weights; then only those of the order count.
    std::shared_ptr<Chooser> chooser = nullptr;
  };
  struct State {
    SeenContention seen;
    [[nodiscard]] Json save() const;
    [[nodiscard]] static Result<State> load(const Json& json);
  };

  explicit Learned(Config config) : config_(std::move(config)) {}

  [[nodiscard]] Decision decide(const Snapshot& snapshot, State& state) const;
  [[nodiscard]] int least_gpus(const JobSpec& spec, const SpeedModel& speed) const {
    return speed.measured().empty() ? spec.requested : spec.limits.smallest();
  }

 private:
  Config config_;
};

// The policy with a network for its scores.
[[nodiscard]] Learned::Config network_config(const NetworkWeights& weights);
// The choice of the linear scorer.
[[nodiscard]] std::size_t linear_choice(std::span<const Inputs> candidates, const Weights& weights,
                                        bool may_wait);

[[nodiscard]] std::vector<PolicyEntry> learned_rows();

}  // namespace rubato::policy
