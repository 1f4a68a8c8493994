#include "rubato/sim/learn_ppo.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>

#include "rubato/base/json.h"
#include "rubato/base/json_reader.h"
#include "rubato/policy/all.h"

namespace rubato::sim {
namespace {

constexpr int kEpochs = 4;
constexpr std::size_t kBatch = 1024;      // choices of a step
constexpr std::size_t kMostBatches = 12;  // of an epoch
constexpr double kRate = 3e-4, kImitationRate = 2e-3, kValueRate = 1e-3;
constexpr double kLambda = 0.97;
constexpr double kMostDivergence = 0.01;
constexpr double kFirstEntropy = 0.01;
constexpr double kLongestGradient = 1;
constexpr int kValueEpochs = 20;

constexpr std::size_t kValueInputs = 6;
using ValueInputs = std::array<double, kValueInputs>;

math::Network value_network() { return math::Network({kValueInputs, 16, 1}); }

// One choice: what could be chosen, and what was.
struct ChoiceMade {
  std::size_t first = 0, candidates = 0;  // in Episode::inputs
  std::size_t chosen = 0;                 // candidates: it waits
  std::size_t moment = 0;
  double log_probability = 0;
};

// One decision, with all its choices.
struct Moment {
  Time now = kStart;
  double jobs = 0;
  ValueInputs inputs{};
  double advantage = 0, value_target = 0;
};

struct Episode {
  std::vector<Inputs> inputs;
  std::vector<ChoiceMade> choices;
  std::vector<Moment> moments;
  double entropy = 0;  // summed over the choices
  double cost = 0;
};

// How many jobs were there, over time.
struct Presence {
  std::vector<std::pair<Time, double>> steps;
};

// The integral of the number of jobs over a span, in job-seconds.
double integral(const Presence& presence, Time from, Time to) {
  const auto& steps = presence.steps;
  const auto after = [](Time t, const std::pair<Time, double>& step) { return t < step.first; };
  auto at = std::upper_bound(steps.begin(), steps.end(), from, after);
  double sum = 0;
  while (from < to) {
    const double jobs = at == steps.begin() ? 0 : std::prev(at)->second;
    const Time next = at == steps.end() ? to : std::min(to, at->first);
    sum += jobs * seconds(next - from);
    from = next;
    if (at != steps.end()) ++at;
  }
  return sum;
}

// Adds what happens at each decision to a record, and leaves the decision to another policy.
class Watched final : public Policy {
 public:
  Watched(Policy& policy, std::function<void(const Snapshot&)> see)
      : policy_(policy), see_(std::move(see)) {}
  Result<Decision> decide(const Snapshot& snapshot) override {
    see_(snapshot);
    return policy_.decide(snapshot);
  }
  [[nodiscard]] int least_gpus(const JobSpec& spec, const SpeedModel& speed) const override {
    return policy_.least_gpus(spec, speed);
  }
  [[nodiscard]] Json save() const override { return policy_.save(); }
  [[nodiscard]] Result<void> load(const Json& json) override { return policy_.load(json); }

 private:
  Policy& policy_;
  std::function<void(const Snapshot&)> see_;
};

// The scores of all candidates and of waiting, as probabilities.
void probabilities_of(const math::Network& network, const Episode& episode,
                      const ChoiceMade& choice, math::Network::Pass& pass, std::vector<double>& p) {
  p.clear();
  for (std::size_t i = 0; i < choice.candidates; ++i)
    p.push_back(network.forward(episode.inputs[choice.first + i], pass)[0]);
  p.push_back(0);
  math::softmax(p);
}

double entropy_of(const std::vector<double>& p) {
  double entropy = 0;
  for (const double one : p) entropy -= one > 0 ? one * std::log(one) : 0;
  return entropy;
}

struct Iteration {
  const PpoOptions& options;
  const math::Network& network;
  bool imitates = false;
};

// Chooses by the network with chance, or as the linear scorer does, and keeps a record.
class Recording final : public Chooser {
 public:
  Recording(const Iteration& iteration, Random random, Episode& episode)
      : iteration_(iteration), random_(random), episode_(episode) {}

  std::size_t choose(std::span<const Inputs> candidates, bool may_wait) override {
    ChoiceMade choice{episode_.inputs.size(), candidates.size(), 0, episode_.moments.size() - 1, 0};
    episode_.inputs.insert(episode_.inputs.end(), candidates.begin(), candidates.end());
    probabilities_of(iteration_.network, episode_, choice, pass_, p_);
    choice.chosen = iteration_.imitates
                        ? linear_choice(candidates, iteration_.options.imitated, may_wait)
                        : math::draw_index(p_, random_);
    if (!may_wait && choice.chosen == candidates.size()) {
      // To wait was not possible, so nothing can be learned from this one.
      episode_.inputs.resize(choice.first);
      return static_cast<std::size_t>(std::max_element(p_.begin(), p_.end() - 1) - p_.begin());
    }
    choice.log_probability = std::log(std::max(p_[choice.chosen], 1e-300));
    episode_.entropy += entropy_of(p_);
    episode_.choices.push_back(choice);
    return choice.chosen;
  }

 private:
  const Iteration& iteration_;
  Random random_;
  Episode& episode_;
  math::Network::Pass pass_;
  std::vector<double> p_;
};

Moment moment_of(const Snapshot& snapshot, const Presence& base, std::size_t all_jobs) {
  Moment moment;
  moment.now = snapshot.now;
  moment.jobs = static_cast<double>(snapshot.jobs.size());
  double waiting = 0, wanted = 0, busy = 0;
  for (const JobView& job : snapshot.jobs) {
    if (job.target.empty()) {
      ++waiting;
      wanted += job.spec->requested;
    } else {
      busy += job.target.gpus();
    }
  }
  const double gpus = std::max(1, snapshot.cluster.usable());
  const double others = integral(base, snapshot.now, snapshot.now + Duration(1'000'000));
  moment.inputs = {moment.jobs / 20,
                   waiting / 20,
                   std::min(4.0, wanted / gpus),
                   busy / gpus,
                   (moment.jobs - others) / 10,
                   moment.jobs / static_cast<double>(all_jobs)};
  return moment;
}

// Rewards, and from them the advantage of each decision (Schulman et al. 2016).
void judge(Episode& episode, const Presence& base, const math::Network& value, double scale) {
  math::Network::Pass pass;
  double next_value = 0, advantage = 0;
  for (std::size_t i = episode.moments.size(); i-- > 0;) {
    Moment& moment = episode.moments[i];
    const bool last = i + 1 == episode.moments.size();
    const Time until =
        last ? std::max(moment.now, base.steps.back().first) : episode.moments[i + 1].now;
    const double own = last ? 0 : moment.jobs * seconds(until - moment.now);
    const double reward = (integral(base, moment.now, until) - own) * scale;
    const double here = value.forward(moment.inputs, pass)[0];
    advantage = reward + next_value - here + kLambda * advantage;
    moment.advantage = advantage;
    moment.value_target = advantage + here;
    next_value = here;
  }
}

Result<Episode> play(const Iteration& iteration, const LearnScene& scene,
                     const math::Network& value, Random random) {
  const LearnOptions& options = iteration.options.scenes;
  Presence base;
  const auto srsf = parse_policies("srsf").value().front().make({});
  if (!srsf) return srsf.error();
  Watched rule(**srsf, [&](const Snapshot& snapshot) {
    base.steps.emplace_back(snapshot.now, static_cast<double>(snapshot.jobs.size()));
  });
  if (auto jct = scene_jct(options, scene, rule, Placement::netpack); !jct) return jct.error();
  Episode episode;
  Learned::Config config;
  config.weights = iteration.options.imitated;
  config.hidden = options.hidden;
  config.chooser = std::make_shared<Recording>(iteration, random, episode);
  const auto learned = erase(Learned(std::move(config)));
  Watched watched(*learned, [&](const Snapshot& snapshot) {
    episode.moments.push_back(moment_of(snapshot, base, scene.workload.jobs.size()));
  });
  const auto jct = scene_jct(options, scene, watched);
  if (!jct) return jct.error();
  episode.cost = *jct / scene.srsf_jct_s;
  if (!episode.moments.empty()) {
    // So that all scenes count alike: in hundredths of the sum of JCTs under srsf.
    judge(episode, base, value,
          100 / (scene.srsf_jct_s * static_cast<double>(scene.workload.jobs.size())));
  }
  return episode;
}

// All choices of all episodes, by index.
struct Memory {
  std::vector<Episode> episodes;
  std::vector<std::pair<std::size_t, std::size_t>> choices;  // episode, choice

  explicit Memory(std::vector<Episode> all) : episodes(std::move(all)) {
    double mean = 0, square = 0;
    for (std::size_t e = 0; e < episodes.size(); ++e) {
      for (std::size_t c = 0; c < episodes[e].choices.size(); ++c) {
        choices.emplace_back(e, c);
        const double advantage = moment_of_choice(e, c).advantage;
        mean += advantage;
        square += advantage * advantage;
      }
    }
    const auto count = static_cast<double>(std::max<std::size_t>(1, choices.size()));
    mean /= count;
    const double spread = std::sqrt(std::max(1e-12, square / count - mean * mean));
    for (Episode& episode : episodes) {
      for (Moment& moment : episode.moments) moment.advantage = (moment.advantage - mean) / spread;
    }
  }
  [[nodiscard]] const Moment& moment_of_choice(std::size_t e, std::size_t c) const {
    return episodes[e].moments[episodes[e].choices[c].moment];
  }
  void shuffle(Random& random) {
    for (std::size_t i = choices.size(); i > 1; --i)
      std::swap(choices[i - 1], choices[static_cast<std::size_t>(random.below(i))]);
  }
};

// One step of gradient ascent on some choices. Returns how far the policy has moved on them.
double climb_choices(const Memory& memory, std::size_t from, std::size_t to, bool imitates,
                     double entropy, math::Network& network, math::Adam& adam) {
  std::vector<double> gradient(network.weights().size()), p, slope;
  math::Network::Pass pass;
  double divergence = 0;
  for (std::size_t i = from; i < to; ++i) {
    const auto [e, c] = memory.choices[i];
    const Episode& episode = memory.episodes[e];
    const ChoiceMade& choice = episode.choices[c];
    probabilities_of(network, episode, choice, pass, p);
    const double now = std::log(std::max(p[choice.chosen], 1e-300));
    divergence += choice.log_probability - now;
    slope.resize(p.size());
    math::clipped_slope(p, choice.chosen, imitates ? now : choice.log_probability,
                        imitates ? 1 : memory.moment_of_choice(e, c).advantage, {0.2, entropy},
                        slope);
    for (std::size_t k = 0; k < choice.candidates; ++k) {
      const double one = slope[k] / static_cast<double>(to - from);
      if (std::abs(one) < 1e-9) continue;
      network.forward(episode.inputs[choice.first + k], pass);
      network.backward(pass, {&one, 1}, gradient);
    }
  }
  math::limit_length(gradient, kLongestGradient);
  adam.climb(network.weights(), gradient, imitates ? kImitationRate : kRate);
  return divergence / static_cast<double>(to - from);
}

void climb_value(const Memory& memory, math::Network& value) {
  math::Adam adam(value.weights().size());
  math::Network::Pass pass;
  for (int epoch = 0; epoch < kValueEpochs; ++epoch) {
    for (const Episode& episode : memory.episodes) {
      std::vector<double> gradient(value.weights().size());
      for (const Moment& moment : episode.moments) {
        const double off = (moment.value_target - value.forward(moment.inputs, pass)[0]) /
                           static_cast<double>(episode.moments.size());
        value.backward(pass, {&off, 1}, gradient);
      }
      math::limit_length(gradient, kLongestGradient);
      adam.climb(value.weights(), gradient, kValueRate);
    }
  }
}

// The first ones of `scorer` are those of the order.
NetworkWeights rounded(const std::vector<double>& network, std::span<const double> scorer) {
  NetworkWeights weights;
  for (std::size_t i = 0; i < kJobFeatures; ++i) weights.order[i] = static_cast<float>(scorer[i]);
  for (const double weight : network) weights.network.push_back(static_cast<float>(weight));
  return weights;
}

std::vector<double> read_numbers(const JsonValue& value, std::size_t count) {
  std::vector<double> numbers;
  if (value.is_row(count))
    value.each([&](const JsonValue& one) { numbers.push_back(one.number(-1e6, 1e6)); });
  return numbers;
}

}  // namespace

PpoState first_ppo_state(std::uint64_t seed) {
  Random random = Random(seed).split(77);
  math::Network network = empty_network(), value = value_network();
  network.draw(random);
  value.draw(random);
  PpoState state;
  state.network = network.weights();
  state.value = value.weights();
  state.best = rounded(state.network, shipped_weights());
  return state;
}

std::string PpoState::to_text() const {
  Json points = Json::array();
  for (const Point& point : curve) points.push_back({point.cost, point.drawn_cost, point.entropy});
  const Json json = {{"iteration", iteration}, {"network", network},  {"value", value},
                     {"best", best.network},   {"order", best.order}, {"best_cost", best_cost},
                     {"curve", points}};
  return json.dump() + "\n";
}

Result<PpoState> PpoState::parse(std::string_view text, const std::string& source) {
  const auto json = parse_json(text, source);
  if (!json) return json.error();
  JsonTrouble trouble;
  JsonFields fields(JsonValue(*json, trouble));
  PpoState state;
  const std::size_t weights = empty_network().weights().size();
  state.iteration = static_cast<int>(fields["iteration"].integer(0, 1'000'000));
  state.network = read_numbers(fields["network"], weights);
  state.value = read_numbers(fields["value"], value_network().weights().size());
  // Older versions always began from the shipped weights, and did not write the order.
  const Weights shipped = shipped_weights();
  std::vector<double> order(shipped.begin(), shipped.end());
  if (json->contains("order")) order = read_numbers(fields["order"], kJobFeatures);
  order.resize(kJobFeatures);
  state.best = rounded(read_numbers(fields["best"], weights), order);
  state.best_cost = fields["best_cost"].number(0, 1e6);
  const JsonValue curve = fields["curve"];
  curve.each([&](const JsonValue& point) {
    const auto numbers = read_numbers(point, 3);
    if (numbers.size() == 3) state.curve.push_back({numbers[0], numbers[1], numbers[2]});
  });
  curve.must_be(state.curve.size() == static_cast<std::size_t>(state.iteration),
                "as long as there were iterations");
  fields.finish();
  if (!trouble.ok()) return trouble.error(source);
  return state;
}

Result<std::unique_ptr<PpoLearner>> PpoLearner::make(const PpoOptions& options) {
  std::unique_ptr<PpoLearner> learner(new PpoLearner(options));
  auto scenes = draw_scenes(options.scenes, Random(options.scenes.seed));
  if (!scenes) return scenes.error();
  learner->scenes_ = std::move(*scenes);
  return learner;
}

Result<double> PpoLearner::cost(const NetworkWeights& weights,
                                std::atomic<std::size_t>* done) const {
  std::vector<std::optional<Result<double>>> results(scenes_.size());
  in_parallel(scenes_.size(), options_.scenes.threads, [&](std::size_t i) {
    Learned::Config config = network_config(weights);
    config.hidden = options_.scenes.hidden;
    const auto policy = erase(Learned(std::move(config)));
    results[i].emplace(scene_jct(options_.scenes, scenes_[i], *policy));
    if (done != nullptr) done->fetch_add(1, std::memory_order_relaxed);
  });
  double cost = 0;
  for (std::size_t i = 0; i < scenes_.size(); ++i) {
    if (!*results[i]) return results[i]->error();
    cost += **results[i] / scenes_[i].srsf_jct_s / static_cast<double>(scenes_.size());
  }
  return cost;
}

Result<PpoState> PpoLearner::step(PpoState state, std::atomic<std::size_t>* done) const {
  Random random = Random(options_.scenes.seed)
                      .split(2'000'003)
                      .split(static_cast<std::uint64_t>(state.iteration));
  LearnOptions drawn = options_.scenes;
  drawn.scenes = options_.drawn_scenes;
  const auto scenes = draw_scenes(drawn, random.split(1));
  if (!scenes) return scenes.error();
  math::Network network = empty_network(), value = value_network();
  network.weights() = state.network;
  value.weights() = state.value;
  const bool imitates = state.iteration < options_.imitations;
  const Iteration iteration{options_, network, imitates};
  std::vector<std::optional<Result<Episode>>> played(scenes->size());
  in_parallel(scenes->size(), drawn.threads, [&](std::size_t i) {
    played[i].emplace(play(iteration, (*scenes)[i], value, random.split(100 + i)));
    if (done != nullptr) done->fetch_add(1, std::memory_order_relaxed);
  });
  std::vector<Episode> episodes;
  PpoState::Point point;
  for (auto& one : played) {
    if (!*one) return one->error();
    episodes.push_back(std::move(**one));
    point.drawn_cost += episodes.back().cost / static_cast<double>(scenes->size());
    point.entropy += episodes.back().entropy;
  }
  Memory memory(std::move(episodes));
  point.entropy /= static_cast<double>(std::max<std::size_t>(1, memory.choices.size()));
  const double entropy =
      imitates ? 0
               : kFirstEntropy * (1 - static_cast<double>(state.iteration) / options_.iterations);
  math::Adam adam(network.weights().size());
  Random order = random.split(2);
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    memory.shuffle(order);
    double divergence = 0;
    std::size_t batches = 0;
    for (std::size_t from = 0; from < memory.choices.size() && batches < kMostBatches; ++batches) {
      const std::size_t to = std::min(memory.choices.size(), from + kBatch);
      divergence += climb_choices(memory, from, to, imitates, entropy, network, adam);
      from = to;
    }
    if (!imitates &&
        divergence / static_cast<double>(std::max<std::size_t>(1, batches)) > kMostDivergence)
      break;
  }
  climb_value(memory, value);
  state.network = network.weights();
  state.value = value.weights();
  const NetworkWeights found = rounded(state.network, options_.imitated);
  const auto greedy = cost(found, done);
  if (!greedy) return greedy.error();
  point.cost = *greedy;
  if (state.iteration == 0 || point.cost < state.best_cost) {
    state.best = found;
    state.best_cost = point.cost;
  }
  state.curve.push_back(point);
  ++state.iteration;
  return state;
}

}  // namespace rubato::sim
