#include "rubato/policy/learned.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <fmt/format.h>
#include <limits>
#include <optional>
#include <utility>

#include "rubato/base/json_reader.h"
#include "rubato/base/text.h"
#include "rubato/policy/learned_network.h"
#include "rubato/policy/learned_weights.h"

namespace rubato::policy {
namespace {

// Waiting jobs that got nothing, after which the others are not tried at this decision.
constexpr int kMostTries = 64;
constexpr double kMostCrowd = 2;

// NOLINTBEGIN(readability-identifier-naming): they are used as constants.
enum FeatureIndex : std::size_t {
  kServiceLeft,
  kTimeLeft,
  kWaited,
  kAttained,
  kRuns,
  kConstant,
  kSize,
  kGain,
  kSizeInACrowd,
  kExtraNodes,
  kFragments,
  kOwnLoss,
  kOthersLoss,
  kWeightedLoss,
  kLossInACrowd,
  kStays,
  kRestart,
  kDisplaces,
  kFeatureCount,
  kGpuCount = kFeatureCount,
  kSpans,
  kIdle,
  kCrowd,
  kJobCount,
  kJobsLater,
  kInputCount
};
// NOLINTEND(readability-identifier-naming)
static_assert(kFeatureCount == kWeights && kConstant == kJobFeatures && kInputCount == kInputs);

double log_tenth(double x) { return std::log2(1 + std::max(0.0, x)) / 10; }

// One job of the decision, in its order.
struct Entrant {
  const JobView* job = nullptr;
  GpuType type;  // the first on which it runs at the count asked for
  WorkRate asked_rate = 1;
  double time_left = 1;  // seconds there
  std::array<double, kJobFeatures> features{};
  double score = 0;  // the job's part
};

std::uint64_t lowest_bits(std::uint64_t mask, int gpus) {
  std::uint64_t taken = 0;
  for (; gpus > 0; --gpus, mask &= mask - 1) taken |= mask & (~mask + 1);
  return taken;
}

Entrant entrant_of(const JobView& job, const Snapshot& snapshot, const Weights& weights) {
  Entrant entrant;
  entrant.job = &job;
  const int asked = job.spec->requested;
  for (int t = 0; t < snapshot.cluster.types(); ++t) {
    const GpuType type(static_cast<GpuType::rep>(t));
    const WorkRate rate = job.speed->on(type, asked);
    if (!(rate > 0)) continue;
    entrant.type = type;
    entrant.asked_rate = rate;
    break;
  }
  const Time now = snapshot.now;
  entrant.time_left = std::max(1e-6, job.progress.left(now) / entrant.asked_rate);
  const bool runs = !job.target.empty();
  const Time since = job.has_run() ? job.last_ran : job.submitted;
  entrant.features = {log_tenth(entrant.time_left * asked), log_tenth(entrant.time_left),
                      runs ? 0 : log_tenth(seconds(now - since)),
                      log_tenth(static_cast<double>(job.attained(now).gpu_micros()) / 1e6),
                      runs ? 1.0 : 0.0};
  for (std::size_t i = 0; i < kJobFeatures; ++i) entrant.score += weights[i] * entrant.features[i];
  return entrant;
}

// The counts to consider, the one asked for first.
std::vector<int> counts_of(const JobView& job) {
  const int asked = job.spec->requested;
  if (job.speed->measured().empty()) return {asked};
  std::vector<int> counts;
  for (const int gpus : {asked, job.target.gpus(), asked / 2, 2 * asked, asked / 4, 4 * asked,
                         job.spec->limits.smallest()}) {
    if (gpus > 0 && job.spec->limits.legal(gpus) &&
        std::find(counts.begin(), counts.end(), gpus) == counts.end())
      counts.push_back(gpus);
  }
  return counts;
}

// One decision in the making: which GPUs are taken, by whom, and who is still to come.
class Round {
 public:
  Round(const Snapshot& snapshot, const Learned::Config& config, const SeenContention& seen)
      : snapshot_(snapshot),
        config_(config),
        contention_(config.contention != nullptr ? *config.contention
                                                 : static_cast<const ContentionModel&>(seen)),
        tenants_(snapshot.cluster.nodes().size()) {
    for (const Node& node : snapshot.cluster.nodes()) {
      open_.push_back(node.usable());
      idle_.push_back(node.usable());
    }
    double wanted = 0;
    for (const JobView& job : snapshot.jobs) {
      entrants_.push_back(entrant_of(job, snapshot, config.weights));
      by_id_.resize(std::max(by_id_.size(), job.id.index() + 1));
      if (job.target.empty()) {
        wanted += job.spec->requested;
        continue;
      }
      room_of(job.id) = &job.target;
      tenants_.put(job.id.index(), job.target);
      mark(idle_, job.target, false);
    }
    crowd_ = std::min(kMostCrowd, wanted / std::max(1, snapshot.cluster.usable()));
    std::sort(entrants_.begin(), entrants_.end(), [](const Entrant& a, const Entrant& b) {
      return a.score != b.score ? a.score > b.score : a.job->id < b.job->id;
    });
    places_.resize(entrants_.size());
  }

  Decision decide() {
    int tries = 0;
    for (std::size_t i = 0; i < entrants_.size(); ++i) {
      const bool runs = !entrants_[i].job->target.empty();
      if (!runs && tries >= kMostTries) continue;
      if (!place(i, true) && !runs) ++tries;
    }
    const auto placed = [](const Allocation& gpus) { return !gpus.empty(); };
    for (std::size_t i = 0; i < entrants_.size(); ++i) {
      if (std::any_of(places_.begin(), places_.end(), placed)) break;
      place(i, false);
    }
    Decision decision;
    for (std::size_t i = 0; i < entrants_.size(); ++i) {
      if (placed(places_[i])) decision.run.push_back({entrants_[i].job->id, Exact{places_[i]}});
    }
    return decision;
  }

 private:
  using Masks = std::vector<std::uint64_t>;

  // Gives a job one of its candidates, or none.
  bool place(std::size_t i, bool may_wait) {
    const JobView& job = *entrants_[i].job;
    if (room_of(job.id) != nullptr) {  // its present GPUs are no longer its own
      tenants_.take(job.id.index(), job.target);
      mark_if_open(job.target);
      room_of(job.id) = nullptr;
    }
    candidates_.clear();
    inputs_.clear();
    for (const int gpus : counts_of(job)) {
      for (int t = 0; t < snapshot_.cluster.types(); ++t)
        consider(i, GpuType(static_cast<GpuType::rep>(t)), gpus);
    }
    if (candidates_.empty()) return false;
    const std::size_t chosen = config_.chooser != nullptr
                                   ? config_.chooser->choose(inputs_, may_wait)
                                   : linear_choice(inputs_, config_.weights, may_wait);
    if (chosen == candidates_.size()) return false;
    places_[i] = std::move(candidates_[chosen]);
    mark(open_, places_[i], false);
    mark(idle_, places_[i], false);
    tenants_.put(job.id.index(), places_[i]);
    room_of(job.id) = &places_[i];
    return true;
  }

  void consider(std::size_t i, GpuType type, int gpus) {
    const JobView& job = *entrants_[i].job;
    const int node = snapshot_.cluster.node_size(type);
    if (node == 0 || !(job.speed->on(type, gpus) > 0)) return;
    const int least = (gpus + node - 1) / node;
    const auto keep = [&](std::optional<Allocation> where) {
      if (!where) return 0;
      inputs_.push_back(inputs_of(i, *where, least));
      candidates_.push_back(*where);
      return where->nodes();
    };
    if (job.target.gpus() == gpus && job.target.type() == type && within(job.target, open_))
      keep(job.target);
    const int nodes = tightest(idle_, type, gpus, false, keep);
    if (nodes > 1) {
      keep(fit(idle_, type, gpus, true, false));
      keep(fit(idle_, type, gpus, false, true));
    }
    if (nodes == 0 || nodes > least) {
      if (tightest(open_, type, gpus, false, keep) > 1) keep(fit(open_, type, gpus, true, false));
    }
  }

  template <class Keep>
  int tightest(const Masks& masks, GpuType type, int gpus, bool undisturbed, const Keep& keep) {
    return keep(fit(masks, type, gpus, undisturbed, false));
  }

  // GPUs of these masks: the tightest fit, or the emptiest nodes first.
  std::optional<Allocation> fit(const Masks& masks, GpuType type, int gpus, bool undisturbed,
                                bool emptiest) const {
    Allocation all(type);
    while (gpus > 0) {
      std::size_t best = masks.size();
      std::pair<int, int> best_rank;
      for (std::size_t i = 0; i < masks.size(); ++i) {
        const NodeId node(static_cast<NodeId::rep>(i));
        const int here = std::popcount(masks[i]);
        if (here == 0 || snapshot_.cluster.node(node).type != type || all.mask_on(node) != 0)
          continue;
        if (undisturbed && disturbed(node)) continue;
        const bool fits = here >= gpus && !emptiest;
        const std::pair rank(fits ? 0 : 1, fits ? here : -here);
        if (best == masks.size() || rank < best_rank) {
          best = i;
          best_rank = rank;
        }
      }
      if (best == masks.size()) return std::nullopt;
      const int taken = std::min(gpus, std::popcount(masks[best]));
      all.add({NodeId(static_cast<NodeId::rep>(best)), lowest_bits(masks[best], taken)});
      gpus -= taken;
    }
    return all;
  }

  [[nodiscard]] bool disturbed(NodeId node) const {
    const auto& here = tenants_.on(node);
    return std::any_of(here.begin(), here.end(),
                       [&](std::size_t id) { return by_id_[id]->nodes() > 1; });
  }

  [[nodiscard]] Inputs inputs_of(std::size_t i, const Allocation& gpus, int least) const {
    const Entrant& entrant = entrants_[i];
    const JobView& job = *entrant.job;
    Inputs f{};
    std::copy(entrant.features.begin(), entrant.features.end(), f.begin());
    f[kConstant] = 1;
    f[kSize] = std::log2(static_cast<double>(gpus.gpus()) / job.spec->requested);
    const WorkRate rate = job.speed->rate({gpus.type(), gpus.gpus(), gpus.nodes(), least});
    f[kGain] = std::log2(std::max(1e-3, rate / entrant.asked_rate));
    f[kSizeInACrowd] = f[kSize] * crowd_;
    f[kExtraNodes] = static_cast<double>(gpus.nodes() - least) / least;
    int touched = 0, left = 0, displaced = 0;
    for (const Slice& slice : gpus.slices()) {
      const std::uint64_t idle = idle_[slice.node.index()];
      touched += snapshot_.cluster.node(slice.node).gpus;
      left += std::popcount(idle & ~slice.mask);
      displaced += std::popcount(slice.mask & ~idle);
    }
    f[kFragments] = static_cast<double>(left) / touched;
    if (!config_.hidden && gpus.nodes() > 1) losses(entrant, gpus, f);
    f[kLossInACrowd] = f[kOwnLoss] * crowd_;
    const bool stays = gpus == job.target;
    f[kStays] = stays ? 1 : 0;
    if (!stays && !job.target.empty())
      f[kRestart] = std::min(1.0, seconds(job.spec->restart_cost) / entrant.time_left);
    f[kDisplaces] = static_cast<double>(displaced) / gpus.gpus();
    f[kGpuCount] = std::log2(static_cast<double>(gpus.gpus())) / 6;
    f[kSpans] = gpus.nodes() > 1 ? 1 : 0;
    int idle = 0;
    for (const std::uint64_t mask : idle_) idle += std::popcount(mask);
    f[kIdle] = static_cast<double>(idle) / std::max(1, snapshot_.cluster.usable());
    f[kCrowd] = crowd_;
    const auto jobs = static_cast<double>(entrants_.size());
    f[kJobCount] = std::log2(1 + jobs) / 10;
    f[kJobsLater] = (jobs - 1 - static_cast<double>(i)) / jobs;
    return f;
  }

  // What the job and its neighbours would lose. Jobs whose GPUs it takes are not there any more.
  void losses(const Entrant& entrant, const Allocation& gpus, Inputs& f) const {
    const auto tenant = [&](std::size_t id) {
      return Tenant{snapshot_.jobs.find(JobId(static_cast<JobId::rep>(id)))->spec->model,
                    by_id_[id]};
    };
    const Tenant own{entrant.job->spec->model, &gpus};
    std::vector<std::size_t> neighbours = tenants_.neighbours(entrant.job->id.index(), gpus);
    std::erase_if(neighbours, [&](std::size_t id) { return !common(*by_id_[id], gpus).empty(); });
    std::vector<Tenant> others;
    others.reserve(neighbours.size());
    for (const std::size_t id : neighbours) others.push_back(tenant(id));
    if (others.empty()) return;
    f[kOwnLoss] = 1 - contention_.kept(own, others);
    for (const std::size_t id : neighbours) {
      std::vector<Tenant> theirs;
      for (const std::size_t other : tenants_.neighbours(id, *by_id_[id]))
        theirs.push_back(tenant(other));
      const double before = theirs.empty() ? 1 : contention_.kept(tenant(id), theirs);
      theirs.push_back(own);
      const double lost = before - contention_.kept(tenant(id), theirs);
      const JobView& other = *snapshot_.jobs.find(JobId(static_cast<JobId::rep>(id)));
      const double rate = other.speed->on(by_id_[id]->type(), by_id_[id]->gpus());
      const double left = rate > 0 ? other.progress.left(snapshot_.now) / rate : 0;
      f[kOthersLoss] += lost;
      f[kWeightedLoss] += lost * std::min(4.0, entrant.time_left / std::max(1e-6, left));
    }
  }

  [[nodiscard]] static bool within(const Allocation& gpus, const Masks& masks) {
    return std::all_of(gpus.slices().begin(), gpus.slices().end(), [&](const Slice& slice) {
      return (slice.mask & ~masks[slice.node.index()]) == 0;
    });
  }
  static void mark(Masks& masks, const Allocation& gpus, bool free) {
    for (const Slice& slice : gpus.slices()) {
      std::uint64_t& mask = masks[slice.node.index()];
      mask = free ? mask | slice.mask : mask & ~slice.mask;
    }
  }
  // Of these GPUs, those are idle from now on that nobody in this decision has.
  void mark_if_open(const Allocation& gpus) {
    for (const Slice& slice : gpus.slices())
      idle_[slice.node.index()] |= slice.mask & open_[slice.node.index()];
  }
  const Allocation*& room_of(JobId job) { return by_id_[job.index()]; }

  const Snapshot& snapshot_;
  const Learned::Config& config_;
  const ContentionModel& contention_;
  Masks open_;  // GPUs that no job has in this decision
  Masks idle_;  // of these, those that no job still to come has now
  NodeTenants tenants_;
  std::vector<Entrant> entrants_;
  std::vector<Allocation> places_;        // by entrant
  std::vector<Allocation> candidates_;    // of the job that is being placed
  std::vector<Inputs> inputs_;            // of the candidates
  std::vector<const Allocation*> by_id_;  // where a job is or will be; nullptr: nowhere
  double crowd_ = 0;
};

// The candidate with the highest score, if that is 0 or more.
class NetworkChooser final : public Chooser {
 public:
  explicit NetworkChooser(math::Network network) : network_(std::move(network)) {}

  std::size_t choose(std::span<const Inputs> candidates, bool may_wait) override {
    std::size_t best = candidates.size();
    double most = may_wait ? 0 : -std::numeric_limits<double>::infinity();
    math::Network::Pass pass;
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      const double score = network_.forward(candidates[i], pass)[0];
      if (score < most || (score == most && best != candidates.size())) continue;
      best = i;
      most = score;
    }
    return best;
  }

 private:
  math::Network network_;
};

}  // namespace

std::size_t linear_choice(std::span<const Inputs> candidates, const Weights& weights,
                          bool may_wait) {
  std::size_t best = candidates.size();
  double most = may_wait ? 0 : -std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    double score = 0;
    for (std::size_t f = kJobFeatures; f < kWeights; ++f) score += weights[f] * candidates[i][f];
    if (score < most || (score == most && best != candidates.size())) continue;
    best = i;
    most = score;
  }
  return best;
}

math::Network empty_network() { return math::Network({kInputs, 64, 32, 1}); }

Learned::Config network_config(const NetworkWeights& weights) {
  Learned::Config config;
  std::copy(weights.order.begin(), weights.order.end(), config.weights.begin());
  math::Network network = empty_network();
  network.weights() = weights.network;
  config.chooser = std::make_shared<NetworkChooser>(std::move(network));
  return config;
}

Weights first_weights() {
  Weights weights{};
  weights[kServiceLeft] = -1;
  weights[kRuns] = 0.05;
  weights[kConstant] = 0.5;
  weights[kGain] = 0.5;
  weights[kSizeInACrowd] = -0.5;
  weights[kExtraNodes] = -0.3;
  weights[kFragments] = -0.1;
  weights[kOwnLoss] = -0.5;
  weights[kOthersLoss] = -0.5;
  weights[kWeightedLoss] = -0.2;
  weights[kStays] = 0.3;
  weights[kRestart] = -0.5;
  weights[kDisplaces] = -0.1;
  return weights;
}

Weights shipped_weights() { return kShippedWeights; }

std::string to_text(const Weights& weights) {
  std::string text = "{\n";
  for (std::size_t i = 0; i < kWeights; ++i)
    text += fmt::format("  \"{}\": {}{}\n", kFeatures[i], weights[i], i + 1 < kWeights ? "," : "");
  return text + "}\n";
}

Result<Weights> parse_weights(std::string_view text, const std::string& source) {
  auto json = parse_json(text, source);
  if (!json) return json.error();
  if (!json->is_object()) return Error{fmt::format("{}: is not an object of weights", source)};
  Weights weights{};
  for (std::size_t i = 0; i < kWeights; ++i) {
    const std::string name(kFeatures[i]);
    if (!json->contains(name) || !json->at(name).is_number())
      return Error{fmt::format("{}: has no number for the feature {}", source, name)};
    weights[i] = json->at(name).get<double>();
    if (!(std::abs(weights[i]) <= 1e6))
      return Error{fmt::format("{}: the weight of {} is not from -1e6 to 1e6", source, name)};
  }
  for (const auto& [name, value] : json->items()) {
    if (std::find(kFeatures.begin(), kFeatures.end(), name) == kFeatures.end())
      return Error{fmt::format("{}: there is no feature {}", source, base::quoted(name))};
  }
  return weights;
}

NetworkWeights shipped_network() {
  NetworkWeights weights;
  std::copy_n(kShippedWeights.begin(), kJobFeatures, weights.order.begin());
  for (double& weight : weights.order) weight = static_cast<float>(weight);
  weights.network.assign(kShippedNetwork.begin(), kShippedNetwork.end());
  return weights;
}

std::string to_text(const NetworkWeights& weights) {
  const auto spell = [](double weight) { return fmt::format("{}", static_cast<float>(weight)); };
  std::string text = "{\"order\": [";
  for (std::size_t i = 0; i < kJobFeatures; ++i)
    text += (i == 0 ? "" : ", ") + spell(weights.order[i]);
  text += "],\n \"network\": [";
  constexpr std::size_t kInALine = 8;
  for (std::size_t i = 0; i < weights.network.size(); ++i) {
    const char* separator = i == 0 ? "\n  " : i % kInALine == 0 ? ",\n  " : ", ";
    text += separator + spell(weights.network[i]);
  }
  return text + "\n]}\n";
}

Result<NetworkWeights> parse_network(std::string_view text, const std::string& source) {
  constexpr double kMost = 1e6;
  const auto json = parse_json(text, source);
  if (!json) return json.error();
  JsonTrouble trouble;
  JsonFields fields(JsonValue(*json, trouble));
  NetworkWeights weights;
  const auto number = [&](const JsonValue& value) {
    return static_cast<double>(static_cast<float>(value.number(-kMost, kMost)));
  };
  const JsonValue order = fields["order"], network = fields["network"];
  if (order.is_row(kJobFeatures)) {
    for (std::size_t i = 0; i < kJobFeatures; ++i) weights.order[i] = number(order.at(i));
  }
  if (network.is_row(empty_network().weights().size()))
    network.each([&](const JsonValue& value) { weights.network.push_back(number(value)); });
  fields.finish();
  if (!trouble.ok()) return trouble.error(source);
  return weights;
}

Json Learned::State::save() const {
  Json numbers = Json::object();
  for (const auto& [model, pair] : seen.numbers())
    numbers[model] = {pair.sensitivity, pair.pressure};
  return {{"seen", numbers}};
}

Result<Learned::State> Learned::State::load(const Json& json) {
  const Error wrong{"the state of learned is not an object of pairs of numbers"};
  if (!json.is_object() || !json.contains("seen") || !json.at("seen").is_object()) return wrong;
  PairLoss::Numbers numbers;
  for (const auto& [model, pair] : json.at("seen").items()) {
    const auto is_number = [](const Json& n) {
      return n.is_number() && n.get<double>() > 0 && n.get<double>() <= 1e6;
    };
    if (!pair.is_array() || pair.size() != 2 || !is_number(pair[0]) || !is_number(pair[1]))
      return wrong;
    numbers[model] = {pair[0].get<double>(), pair[1].get<double>()};
  }
  return State{SeenContention(std::move(numbers))};
}

Decision Learned::decide(const Snapshot& snapshot, State& state) const {
  if (!config_.hidden && config_.contention == nullptr) state.seen.observe(snapshot);
  return Round(snapshot, config_, state.seen).decide();
}

std::vector<PolicyEntry> learned_rows() {
  PolicyEntry entry;
  entry.name = "learned";
  entry.group = "learned";
  entry.summary = "a learned score chooses order, counts and nodes, with contention in view";
  entry.knows = "work left, speed curve, restart cost; the speed that jobs report";
  entry.elastic = true;
  entry.work_conserving = false;
  entry.keys = {
      choice_key("scorer", {"linear", "network"},
                 "linear: a weight for each feature; network: a small neural network, trained by "
                 "proximal policy optimisation"),
      path_key("weights",
               "file with weights that `rubato learn` wrote (default: the shipped ones)"),
      choice_key("contention", {"seen", "hidden", "oracle"},
                 "seen: learns from the speeds that jobs report; hidden: does not look at "
                 "contention; oracle: is told (needs --contention)")};
  entry.make = [](const KeyValues& values, const PolicyInputs& inputs) -> MadePolicy {
    const bool network = values.text("scorer") == "network";
    Learned::Config config = network ? network_config(shipped_network()) : Learned::Config{};
    const std::string& path = values.text("weights");
    if (!path.empty()) {
      if (!inputs.text) return Error{"policy learned: files with weights cannot be read here"};
      const auto text = inputs.text(path);
      if (!text) return text.error();
      if (network) {
        const auto weights = parse_network(*text, path);
        if (!weights) return weights.error();
        config = network_config(*weights);
      } else {
        const auto weights = parse_weights(*text, path);
        if (!weights) return weights.error();
        config.weights = *weights;
      }
    }
    config.hidden = values.text("contention") == "hidden";
    if (values.text("contention") == "oracle") {
      if (inputs.contention == nullptr)
        return Error{"policy learned: contention=oracle needs --contention FILE"};
      config.contention = inputs.contention;
    }
    return erase(Learned(std::move(config)));
  };
  return {entry};
}

}  // namespace rubato::policy
