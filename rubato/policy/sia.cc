#include "rubato/policy/sia.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "rubato/math/choice_program.h"
#include "rubato/model/goodput_estimate.h"
#include "rubato/policy/round_times.h"
#include "rubato/policy/unsplit_nodes.h"

namespace rubato::policy {
namespace {

constexpr double kLeastGoodput = 1e-4;  // relative, as published
constexpr int kMostSiaGrowth = 2;       // times the GPUs on which a job has run

// How many GPUs a job may have now: twice what it has run on, if it must be measured.
int most_gpus_now(const JobView& job) {
  const auto* estimate = dynamic_cast<const GoodputEstimate*>(job.speed.get());
  if (estimate == nullptr) return job.spec->limits.max;
  const int seen = estimate->seen() ? estimate->seen()->most_gpus : 0;
  return std::min(job.spec->limits.max,
                  std::max(kMostSiaGrowth * seen, job.spec->limits.smallest()));
}

// Whether the job is on its way to its GPUs, and they are all usable.
bool restarts_now(const JobView& job, const Snapshot& snapshot) {
  if (job.target.empty()) return false;
  const bool moves = job.phase == Phase::starting || job.phase == Phase::resizing ||
                     job.progress.at > snapshot.now;
  return moves && std::all_of(job.target.slices().begin(), job.target.slices().end(),
                              [&](const Slice& slice) {
                                const auto usable = snapshot.cluster.node(slice.node).usable();
                                return (usable & slice.mask) == slice.mask;
                              });
}

class SiaRound {
 public:
  SiaRound(const Sia::Config& config, const Snapshot& snapshot, Sia::State& state)
      : config_(config),
        snapshot_(snapshot),
        state_(state),
        nodes_(snapshot.cluster),
        on_node_(snapshot.cluster.nodes().size()) {
    for (int t = 0; t < snapshot.cluster.types(); ++t)
      problem_.capacity.push_back(nodes_.free_of(type_at(static_cast<std::size_t>(t))));
    for (const JobView& job : snapshot.jobs) enter(job);
  }

  Decision decide() {
    const auto result = choose(problem_, {config_.nodes, 0});
    state_.gap = result.worth > 0 ? (result.bound - result.worth) / result.worth : 0;
    std::vector<Placed> placed;
    for (std::size_t i = 0; i < jobs_.size(); ++i) {
      if (result.chosen[i] == ChoiceResult::kNone) continue;
      placed.push_back({i, want(i, static_cast<std::size_t>(result.chosen[i])), {}});
    }
    place(placed);
    for (auto& job : placed) grant(job);
    std::sort(decision_.run.begin(), decision_.run.end(),
              [](const Grant& a, const Grant& b) { return a.job < b.job; });
    std::erase_if(state_.restarts,
                  [&](const auto& entry) { return snapshot_.jobs.find(entry.first) == nullptr; });
    return std::move(decision_);
  }

 private:
  struct Placed {
    std::size_t job = 0;
    Count want;
    NodeShares shares;  // empty: not placed yet
  };

  void enter(const JobView& job) {
    if (restarts_now(job, snapshot_)) {
      nodes_.take(shares_of(job.target));
      problem_.capacity[job.target.type().index()] -= job.target.gpus();
      decision_.run.push_back({job.id, Exact{job.target}, job.batch});
      return;
    }
    jobs_.push_back(&job);
    problem_.rows.push_back(options_of(job));
  }

  // ---- configurations ----

  [[nodiscard]] std::vector<int> counts(const JobView& job, GpuType type) const {
    const GpuLimits& limits = job.spec->limits;
    const int node = std::max(snapshot_.cluster.node_size(type), 1);
    const int most = std::min(most_gpus_now(job), snapshot_.cluster.usable(type));
    std::vector<int> counts;
    for (int gpus = 1; gpus <= most; gpus = gpus >= node ? gpus + node : std::min(2 * gpus, node)) {
      if (limits.legal(gpus)) counts.push_back(gpus);
    }
    const int present = has_now(job, type) ? job.target.gpus() : 0;
    for (const int gpus : {limits.smallest(), present}) {
      const bool wanted = gpus == present ? gpus > 0 : counts.empty();
      const bool known = std::find(counts.begin(), counts.end(), gpus) != counts.end();
      if (wanted && !known && limits.legal(gpus) && gpus <= most) counts.push_back(gpus);
    }
    return counts;
  }

  [[nodiscard]] static bool has_now(const JobView& job, GpuType type) {
    return !job.target.empty() && job.target.type() == type;
  }

  [[nodiscard]] std::vector<ChoiceOption> options_of(const JobView& job) const {
    std::vector<ChoiceOption> options;  // the worth is first the goodput
    for (int t = 0; t < snapshot_.cluster.types(); ++t) {
      const GpuType type = type_at(static_cast<std::size_t>(t));
      const int node = std::max(snapshot_.cluster.node_size(type), 1);
      for (const int gpus : counts(job, type)) {
        const int nodes = (gpus + node - 1) / node;
        options.push_back({t, gpus, job.speed->rate({type, gpus, nodes, nodes})});
      }
    }
    std::erase_if(options, [](const ChoiceOption& option) { return !(option.worth > 0); });
    double least = std::numeric_limits<double>::infinity();
    for (const auto& option : options) least = std::min(least, option.worth);
    const double if_changed = restart_factor(job);
    for (auto& option : options) {
      const bool stays = has_now(job, type_at(static_cast<std::size_t>(option.resource))) &&
                         job.target.gpus() == option.units;
      option.worth = worth(option.worth / least * (stays ? 1 : if_changed));
    }
    return options;
  }

  [[nodiscard]] double restart_factor(const JobView& job) const {
    const double age = seconds(snapshot_.now - job.submitted);
    const double delay = seconds(job.spec->restart_cost);
    if (job.target.empty() || age < delay || !(age + delay > 0)) return 1;
    const auto found = state_.restarts.find(job.id);
    const int restarts = found == state_.restarts.end() ? 0 : found->second;
    return std::max(age - restarts * delay, 0.0) / (age + delay);
  }

  // What choosing it adds to the objective, which is maximised.
  [[nodiscard]] double worth(double goodput) const {
    const double term = std::pow(std::max(goodput, kLeastGoodput), config_.p);
    return config_.lambda + (config_.p < 0 ? -term : term);
  }

  // ---- placement ----

  [[nodiscard]] Count want(std::size_t job, std::size_t option) const {
    const ChoiceOption& chosen = problem_.rows[job][option];
    return {type_at(static_cast<std::size_t>(chosen.resource)), chosen.units};
  }

  [[nodiscard]] NodeShares present(const Placed& job) const {
    const Allocation& had = jobs_[job.job]->target;
    return had.type() == job.want.type ? shares_of(had) : NodeShares();
  }
  [[nodiscard]] bool unchanged(const Placed& job) const {
    return has_now(*jobs_[job.job], job.want.type) &&
           jobs_[job.job]->target.gpus() == job.want.gpus;
  }

  // The largest first; of equal ones, those that need not move.
  struct Turn {
    int gpus = 0;
    bool moves = false;
    std::size_t index = 0;
    friend bool operator<(const Turn& a, const Turn& b) {
      return std::tuple(-a.gpus, a.moves, a.index) < std::tuple(-b.gpus, b.moves, b.index);
    }
  };

  void place(std::vector<Placed>& jobs) {
    std::set<Turn> turns;
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      if (unchanged(jobs[i]) && nodes_.has(present(jobs[i]))) {
        put(jobs, i, present(jobs[i]));
      } else {
        turns.insert({jobs[i].want.gpus, !unchanged(jobs[i]), i});
      }
    }
    std::vector<std::size_t> left;
    while (!turns.empty()) {
      const std::size_t i = turns.extract(turns.begin()).value().index;
      auto shares = nodes_.place(jobs[i].want, present(jobs[i]));
      for (; shares.empty(); shares = nodes_.place(jobs[i].want, present(jobs[i]))) {
        const auto evicted = evict_for(jobs, jobs[i].want);
        if (evicted.empty()) break;
        for (const std::size_t other : evicted)
          turns.insert({jobs[other].want.gpus, !unchanged(jobs[other]), other});
      }
      shares.empty() ? left.push_back(i) : put(jobs, i, std::move(shares));
    }
    for (const std::size_t i : left) place_otherwise(jobs[i]);
  }

  void put(std::vector<Placed>& jobs, std::size_t i, NodeShares shares) {
    nodes_.take(shares);
    for (const auto& share : shares) on_node_[share.first.index()].push_back(i);
    jobs[i].shares = std::move(shares);
  }

  // Makes room on the node that lacks least, by moving out jobs that are smaller. Returns them, or
  // nothing if that is not possible.
  std::vector<std::size_t> evict_for(std::vector<Placed>& jobs, const Count& want) {
    const int needed = nodes_.needed_on_one(want);
    std::optional<NodeId> best;
    int least = std::numeric_limits<int>::max();
    for (const NodeId node : nodes_.nodes_of(want.type)) {
      const int free = nodes_.free_on(node);
      int smaller = 0;
      for (const std::size_t i : on_node_[node.index()])
        smaller += jobs[i].want.gpus < want.gpus ? gpus_on_node(jobs[i], node) : 0;
      if (free >= needed || free + smaller < needed || needed - free >= least) continue;
      least = needed - free;
      best = node;
    }
    std::vector<std::size_t> evicted;
    while (best && nodes_.free_on(*best) < needed) {
      const auto& here = on_node_[best->index()];
      const std::size_t i = *std::min_element(here.begin(), here.end(), [&](auto a, auto b) {
        return std::tuple(jobs[a].want.gpus, a) < std::tuple(jobs[b].want.gpus, b);
      });
      nodes_.give(jobs[i].shares);
      for (const auto& share : jobs[i].shares) std::erase(on_node_[share.first.index()], i);
      jobs[i].shares.clear();
      evicted.push_back(i);
    }
    return evicted;
  }
  [[nodiscard]] static int gpus_on_node(const Placed& job, NodeId node) {
    for (const auto& share : job.shares) {
      if (share.first == node) return share.second;
    }
    return 0;
  }

  // In its best configuration that has a place, or split over nodes.
  void place_otherwise(Placed& job) {
    const auto& options = problem_.rows[job.job];
    std::vector<std::size_t> order(options.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return options[a].worth > options[b].worth;
    });
    for (const std::size_t option : order) {
      if (options[option].worth <= 0 || !job.shares.empty()) break;
      job.want = want(job.job, option);
      job.shares = nodes_.place(job.want, present(job));
    }
    for (auto option = order.rbegin(); option != order.rend() && job.shares.empty(); ++option) {
      job.want = want(job.job, *option);
      job.shares = nodes_.split(job.want);
    }
    nodes_.take(job.shares);
  }

  // ---- the answer ----

  void grant(Placed& placed) {
    if (placed.shares.empty()) return;
    const JobView& job = *jobs_[placed.job];
    if (job.has_run() && placed.shares != shares_of(job.target)) ++state_.restarts[job.id];
    std::optional<Batch> batch;
    const auto* estimate = dynamic_cast<const GoodputEstimate*>(job.speed.get());
    if (estimate != nullptr && job.spec->adaptive_batch) {
      batch = estimate->batch_at(placed.want.type,
                                 {static_cast<int>(placed.shares.size()), placed.want.gpus});
    }
    decision_.run.push_back({job.id, Spread{std::move(placed.shares)}, batch});
  }

  const Sia::Config& config_;
  const Snapshot& snapshot_;
  Sia::State& state_;
  UnsplitNodes nodes_;
  std::vector<std::vector<std::size_t>> on_node_;  // by node: jobs that were placed there
  std::vector<const JobView*> jobs_;               // as the rows of the problem
  ChoiceProblem problem_;
  Decision decision_;
};

}  // namespace

Decision Sia::decide(const Snapshot& snapshot, State& state) const {
  const bool waits = state.next_round && snapshot.now < *state.next_round;
  Decision decision = waits ? as_it_is(snapshot) : SiaRound(config, snapshot, state).decide();
  if (!waits) state.next_round = first_multiple_after(snapshot.now, config.interval);
  if (!snapshot.jobs.empty()) decision.again_at = state.next_round;
  return decision;
}

Json Sia::State::save() const {
  Json json = {{"restarts", counts_json(restarts)}};
  if (next_round) json["next_round_us"] = next_round->time_since_epoch().count();
  return json;
}

Result<Sia::State> Sia::State::load(const Json& json) {
  const Error wrong{"sia: the saved state is not one of its own"};
  if (!json.is_object() || !json.contains("restarts")) return wrong;
  State state;
  auto restarts = counts_of(json["restarts"]);
  if (!restarts) return wrong;
  state.restarts = std::move(*restarts);
  if (json.contains("next_round_us")) {
    if (!json["next_round_us"].is_number_integer()) return wrong;
    state.next_round = kStart + Duration(json["next_round_us"].get<std::int64_t>());
  }
  return state;
}

std::vector<PolicyEntry> sia_rows() {
  PolicyEntry entry;
  entry.name = "sia";
  entry.group = "heterogeneous";
  entry.paper = "Jayaram Subramanya et al., SOSP'23";
  entry.summary = "GPU type, count and batch of all jobs by a binary program on goodput";
  entry.knows =
      "what each job's agent has measured on each GPU type (or its speed curve), and its age";
  entry.elastic = true;
  entry.tunes_batches = true;
  entry.work_conserving = false;
  entry.keys = {
      number_key("p", -0.5, -100, 10, "exponent of goodput, not 0: lower is fairer"),
      number_key("lambda", 1.1, 1.01, 1000, "cost of a job that gets no GPUs"),
      number_key("interval", 60, 1, 1e6, "seconds between two decisions"),
      whole_key("nodes", 100, 1, 1'000'000, "relaxations that a decision may solve"),
  };
  entry.make = [](const KeyValues& values, const PolicyInputs&) -> MadePolicy {
    Sia::Config config;
    config.p = values.number("p");
    if (config.p == 0) return Error{"sia: p must not be 0; write a small number such as p=-0.01"};
    config.lambda = values.number("lambda");
    config.interval = from_seconds(values.number("interval"));
    config.nodes = static_cast<int>(values.whole("nodes"));
    return erase(Sia{config});
  };
  return {entry};
}

}  // namespace rubato::policy
