#include "rubato/graph/learned_placement.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "rubato/base/random.h"
#include "rubato/math/network.h"

namespace rubato::graph {
namespace {

constexpr std::size_t kFeatures = 10;
constexpr std::size_t kHidden = 16;
constexpr double kRate = 0.03;
constexpr int kEpochs = 4;
constexpr double kClip = 0.2;
constexpr double kMostDivergence = 0.05;  // of the new policy from the old one, in an epoch
constexpr double kFirstEntropy = 0.1;     // falls to 0
constexpr double kLongestGradient = 10;
constexpr double kBaselineDecay = 0.9;
// A placement that does not fit counts as so many times all operators one after the other.
constexpr double kInfeasible = 4;

using Features = std::array<double, kFeatures>;

double squash(double x) { return x == Problem::kNever ? 1 : x / (1 + x); }

struct Stage {
  std::size_t group = 0;
  std::vector<Features> features;  // by device
  std::size_t device = 0;
  double log_probability = 0;
};

struct Sample {
  std::vector<Stage> stages;
  double seconds = 0;
  double advantage = 0;
};

class Policy {
 public:
  explicit Policy(const Problem& problem, std::uint64_t seed)
      : devices_(problem.devices()),
        network_({kFeatures, kHidden, 1}),
        table_begin_(network_.weights().size()),
        gradient_(table_begin_ + problem.groups() * devices_) {
    Random random(seed);
    network_.draw(random);
    table_.resize(gradient_.size() - table_begin_);
  }

  std::vector<double> probabilities(const Stage& stage) {
    std::vector<double> scores(devices_);
    for (std::size_t d = 0; d < devices_; ++d)
      scores[d] =
          network_.forward(stage.features[d], pass_)[0] + table_[stage.group * devices_ + d];
    math::softmax(scores);
    return scores;
  }

  void clear() { std::fill(gradient_.begin(), gradient_.end(), 0); }

  // Adds the gradient of one choice.
  void add(const Stage& stage, std::span<const double> slope, double scale) {
    for (std::size_t d = 0; d < devices_; ++d) {
      const double one = slope[d] * scale;
      network_.forward(stage.features[d], pass_);
      network_.backward(pass_, {&one, 1}, std::span(gradient_).first(table_begin_));
      gradient_[table_begin_ + stage.group * devices_ + d] += one;
    }
  }

  void climb() {
    math::limit_length(gradient_, kLongestGradient);
    const std::span<const double> gradient(gradient_);
    network_steps_.climb(network_.weights(), gradient.first(table_begin_), kRate);
    table_steps_.climb(table_, gradient.subspan(table_begin_), kRate);
  }

 private:
  std::size_t devices_;
  math::Network network_;
  math::Network::Pass pass_;
  std::size_t table_begin_;
  std::vector<double> table_;  // a number for each pair of group and device
  std::vector<double> gradient_;
  math::Adam network_steps_{table_begin_};
  math::Adam table_steps_{gradient_.size() - table_begin_};
};

// A placement in the making, with a rough schedule of the operators so far, in the order of ranks.
class Draft {
 public:
  explicit Draft(const Problem& problem)
      : problem_(problem),
        placement(problem.groups()),
        placed_(problem.groups()),
        end_(problem.graph().operators.size()),
        free_(problem.devices()),
        load_(problem.devices()),
        memory_(problem.devices()) {
    for (std::size_t g = 0; g < problem.groups(); ++g) {
      double fastest = Problem::kNever;
      for (std::size_t d = 0; d < problem.devices(); ++d)
        fastest = std::min(fastest, problem.group_seconds(g, d));
      if (fastest != Problem::kNever) total_ += fastest;
    }
    total_ = std::max(total_, 1e-12);
  }

  [[nodiscard]] bool is_placed(std::size_t group) const { return placed_[group] != 0; }

  // The features of each device for the first operator of a group.
  [[nodiscard]] std::vector<Features> stage_features(std::size_t op) const {
    const Operator& node = problem_.graph().operators[op];
    const std::size_t group = node.group, devices = problem_.devices();
    std::vector<double> ends(devices);
    double fastest = Problem::kNever, all_bytes = 0;
    for (std::size_t d = 0; d < devices; ++d) {
      ends[d] = std::max(free_[d], inputs_there(op, d)) + problem_.seconds(op, d);
      fastest = std::min(fastest, problem_.group_seconds(group, d));
    }
    for (const Input& input : node.inputs) all_bytes += input.bytes;
    const double first = *std::min_element(ends.begin(), ends.end());
    std::vector<Features> all(devices);
    for (std::size_t d = 0; d < devices; ++d) {
      const double seconds = problem_.seconds(op, d);
      double bytes = 0, transfers = 0;
      for (const Input& input : node.inputs) {
        if (device_of(input.from) == d) {
          bytes += input.bytes;
        } else {
          transfers += problem_.machine().transfer_s(input.bytes);
        }
      }
      const double memory =
          (memory_[d] + problem_.group_memory(group)) / problem_.machine().devices[d].memory;
      const bool runs = seconds != Problem::kNever;
      all[d] = {
          runs ? squash((ends[d] - first) / std::max(1e-12, seconds)) : 1,
          load_[d] / total_ * static_cast<double>(devices),
          std::min(2.0, memory),
          memory > 1 || !runs ? 1.0 : 0.0,
          all_bytes > 0 ? bytes / all_bytes : 0,
          runs && transfers > 0 ? transfers / (transfers + seconds) : 0,
          squash(fastest > 0 ? problem_.group_seconds(group, d) / fastest - 1 : 0),
          any_ && last_ == d ? 1.0 : 0.0,
          runs ? squash(std::max(0.0, ends[d] - seconds - free_[d]) / std::max(1e-12, seconds)) : 1,
          static_cast<double>(d) / static_cast<double>(devices),
      };
    }
    return all;
  }

  void place(std::size_t group, std::size_t device) {
    placement[group] = static_cast<std::uint8_t>(device);
    placed_[group] = 1;
    memory_[device] += problem_.group_memory(group);
    const double seconds = problem_.group_seconds(group, device);
    if (seconds != Problem::kNever) load_[device] += seconds;
    any_ = true;
    last_ = device;
  }

  // Its group is placed.
  void schedule(std::size_t op) {
    const std::size_t device = device_of(op);
    const double seconds = problem_.seconds(op, device);
    end_[op] = std::max(free_[device], inputs_there(op, device)) +
               (seconds == Problem::kNever ? 0 : seconds);
    free_[device] = end_[op];
  }

 private:
  [[nodiscard]] std::size_t device_of(std::size_t op) const {
    return placement[problem_.graph().operators[op].group];
  }
  [[nodiscard]] double inputs_there(std::size_t op, std::size_t device) const {
    double there = 0;
    for (const Input& input : problem_.graph().operators[op].inputs) {
      const bool here = device_of(input.from) == device;
      there = std::max(there,
                       end_[input.from] + (here ? 0 : problem_.machine().transfer_s(input.bytes)));
    }
    return there;
  }

  const Problem& problem_;

 public:
  Placement placement;

 private:
  std::vector<char> placed_;
  std::vector<double> end_;   // by operator
  std::vector<double> free_;  // from when on, by device
  std::vector<double> load_, memory_;
  double total_ = 0;
  bool any_ = false;
  std::size_t last_ = 0;
};

class Search {
 public:
  Search(const Problem& problem, const TrialOptions& options)
      : problem_(problem), options_(options), policy_(problem, options.seed) {
    for (std::size_t op = 0; op < problem.graph().operators.size(); ++op) {
      double slowest = 0;
      for (std::size_t d = 0; d < problem.devices(); ++d) {
        if (problem.seconds(op, d) != Problem::kNever)
          slowest = std::max(slowest, problem.seconds(op, d));
      }
      infeasible_ += kInfeasible * slowest;
    }
    infeasible_ = std::max(infeasible_, 1e-12);
  }

  Trials run(std::atomic<std::size_t>* done) {
    const auto samples = static_cast<std::size_t>(options_.samples);
    while (trials_.curve.size() < samples) {
      const double progress =
          static_cast<double>(trials_.curve.size()) / static_cast<double>(samples);
      std::vector<Sample> batch;
      for (int i = 0; i < options_.batch && trials_.curve.size() < samples; ++i) {
        batch.push_back(draw(trials_.curve.size()));
        if (done != nullptr) done->fetch_add(1, std::memory_order_relaxed);
      }
      weigh(batch);
      learn(batch, kFirstEntropy * (1 - progress));
    }
    return std::move(trials_);
  }

 private:
  Sample draw(std::size_t number) {
    Random random = Random(options_.seed).split(number);
    Draft draft(problem_);
    Sample sample;
    for (const std::size_t op : problem_.by_rank()) {
      if (sample.stages.size() == problem_.groups()) break;
      const std::size_t group = problem_.graph().operators[op].group;
      if (!draft.is_placed(group)) {
        Stage stage{group, draft.stage_features(op), 0, 0};
        const auto p = policy_.probabilities(stage);
        stage.device = math::draw_index(p, random);
        stage.log_probability = std::log(std::max(p[stage.device], 1e-300));
        draft.place(group, stage.device);
        sample.stages.push_back(std::move(stage));
      }
      draft.schedule(op);
    }
    sample.seconds = problem_.step_seconds(draft.placement);
    if (sample.seconds < trials_.best_seconds || trials_.best.empty()) {
      trials_.best_seconds = sample.seconds;
      trials_.best = draft.placement;
    }
    trials_.curve.push_back(trials_.best_seconds);
    if (sample.seconds == Problem::kNever) sample.seconds = infeasible_;
    return sample;
  }

  [[nodiscard]] static double reward(const Sample& sample) { return -std::sqrt(sample.seconds); }

  // The advantage of each sample over the moving average, in units of their spread.
  void weigh(std::vector<Sample>& batch) {
    double mean = 0, square = 0;
    for (const Sample& sample : batch) mean += reward(sample) / static_cast<double>(batch.size());
    if (first_) baseline_ = mean;
    first_ = false;
    for (Sample& sample : batch) {
      sample.advantage = reward(sample) - baseline_;
      square += sample.advantage * sample.advantage / static_cast<double>(batch.size());
    }
    for (Sample& sample : batch) sample.advantage /= std::max(std::sqrt(square), 1e-12);
    baseline_ = kBaselineDecay * baseline_ + (1 - kBaselineDecay) * mean;
  }

  void learn(const std::vector<Sample>& batch, double entropy) {
    const int epochs = options_.method == Method::ppo ? kEpochs : 1;
    const math::ClippedObjective objective{kClip, entropy};
    std::vector<double> slope(problem_.devices());
    for (int epoch = 0; epoch < epochs; ++epoch) {
      policy_.clear();
      double divergence = 0;
      std::size_t choices = 0;
      for (const Sample& sample : batch) {
        for (const Stage& stage : sample.stages) {
          const auto p = policy_.probabilities(stage);
          divergence += stage.log_probability - std::log(std::max(p[stage.device], 1e-300));
          ++choices;
          math::clipped_slope(p, stage.device, stage.log_probability, sample.advantage, objective,
                              slope);
          policy_.add(stage, slope, 1 / static_cast<double>(batch.size()));
        }
      }
      if (divergence / static_cast<double>(choices) > kMostDivergence) break;
      policy_.climb();
    }
  }

  const Problem& problem_;
  const TrialOptions& options_;
  Policy policy_;
  Trials trials_;
  double infeasible_ = 0;
  double baseline_ = 0;
  bool first_ = true;
};

}  // namespace

std::size_t Trials::samples_until(double seconds) const {
  const auto at =
      std::find_if(curve.begin(), curve.end(), [&](double best) { return best <= seconds; });
  return at == curve.end() ? 0 : static_cast<std::size_t>(at - curve.begin()) + 1;
}

Trials try_placements(const Problem& problem, const TrialOptions& options,
                      std::atomic<std::size_t>* done) {
  return Search(problem, options).run(done);
}

}  // namespace rubato::graph
