#include "rubato/policy/pollux.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <tuple>

#include "rubato/base/random.h"
#include "rubato/model/goodput_estimate.h"
#include "rubato/policy/round_times.h"

namespace rubato::policy {
namespace {

constexpr double kLeastSpeedup = 1e-3;
constexpr int kMostPolluxGrowth = 2;   // times the GPUs on which a job has run
constexpr int kQuickSearch = 20;       // population and generations if only the utility is needed
constexpr int kMostAdvisedGrowth = 2;  // times the present nodes

// One job as the search sees it.
class Bidder {
 public:
  Bidder(const JobView& job, const Pollux::Config& config, int restarts, int most_gpus,
         std::size_t types, Time now)
      : job_(&job), limits_(&job.spec->limits) {
    const double age = std::max(seconds(now - job.submitted), 1.0);
    const double delay = seconds(job.spec->restart_cost);
    if_changed_ = std::max(age - restarts * delay, 0.0) / (age + delay);
    const auto* estimate = dynamic_cast<const GoodputEstimate*>(job.speed.get());
    most_ = std::min(job.spec->limits.max, most_gpus);
    if (estimate == nullptr) {
      const int least = std::max(job.spec->limits.smallest(), 1);
      while (!runs_on(type_, least) && type_.index() + 1 < types)
        type_ = type_at(type_.index() + 1);
      return;
    }
    estimate_ = estimate;
    const int seen = estimate->seen() ? estimate->seen()->most_gpus : 0;
    const int table_size = std::max(most_, 1);
    most_ = std::min(most_, std::max(kMostPolluxGrowth * seen, 1));
    if (!estimate->seen()) return;
    auto batch = estimate->owners_batch();
    if (!config.tune_batch)
      batch = job.spec->batch > 0 ? job.spec->batch : estimate->limits().initial;
    table_.emplace(estimate->goodput(), table_size, batch);
  }

  [[nodiscard]] const JobView& job() const { return *job_; }
  [[nodiscard]] const GoodputEstimate* estimate() const { return estimate_; }

  void set_fair_share(int gpus) {
    // A fixed batch cannot be spread over every number of GPUs. If the job cannot run on its fair
    // share, that share must not count: otherwise every allocation would be worth 0 and the job
    // would starve.
    fair_ = 0;
    for (int fair = std::min(gpus, std::max(job_->spec->limits.max, 1)); fair > 0 && fair_ == 0;)
      fair_ = rate(1, fair--);
  }

  [[nodiscard]] double speedup(int nodes, int gpus) {
    return fair_ > 0 ? rate(nodes, gpus) / fair_ : 0;
  }
  // The speedup over one GPU. For a job that never ran, it is the number of GPUs.
  [[nodiscard]] double scaling(int nodes, int gpus) {
    const double alone = rate(1, 1);
    return alone > 0 ? std::min(rate(nodes, gpus) / alone, 1.0 * gpus) : gpus;
  }
  [[nodiscard]] double if_changed() const { return if_changed_; }
  [[nodiscard]] bool runs_on(GpuType type, int gpus) const {
    return estimate_ != nullptr || job_->speed->rate({type, gpus, 1, 1}) > 0;
  }

  // The largest legal count that is not above this number, nor above what may be tried.
  [[nodiscard]] int usable(int gpus) const {
    gpus = std::min(gpus, std::max(most_, limits_->smallest()));
    if (limits_->allowed.empty()) return gpus < limits_->min ? 0 : gpus;
    const auto above = std::upper_bound(limits_->allowed.begin(), limits_->allowed.end(), gpus);
    return above == limits_->allowed.begin() ? 0 : *std::prev(above);
  }

 private:
  [[nodiscard]] double rate(int nodes, int gpus) {
    if (gpus == 0) return 0;
    if (table_) return table_->at({nodes, gpus});
    return job_->speed->rate({type_, gpus, nodes, 1});
  }

  const JobView* job_;
  const GpuLimits* limits_;
  GpuType type_;  // whose speed counts for all types
  const GoodputEstimate* estimate_ = nullptr;
  std::optional<GoodputTable> table_;  // if something was measured
  int most_ = 1;
  double fair_ = 1;
  double if_changed_ = 1;
};

// The power mean is a monotone function of the sum of this over the jobs.
double term(double speedup, double p) {
  const double x = speedup + kLeastSpeedup;
  if (p == 0) return std::log(x);
  if (p == -1) return -1 / x;
  return p < 0 ? -std::pow(x, p) : std::pow(x, p);
}

double power_mean(double mean_term, double p) {
  if (p == 0) return std::exp(mean_term);
  return std::pow(std::abs(mean_term), 1 / p);
}

Shares shares_of(const Allocation& gpus, const Cluster& cluster) {
  Shares shares;
  for (const auto& slice : gpus.slices()) {
    if (cluster.node(slice.node).state == NodeState::up)
      shares.push_back({static_cast<int>(slice.node.index()), slice.gpus()});
  }
  return shares;
}

int units_of(const Shares& shares) {
  int units = 0;
  for (const auto& share : shares) units += share.units;
  return units;
}

void cut_to(Shares& shares, int units) {
  for (int surplus = units_of(shares) - units; surplus > 0;) {
    const int dropped = std::min(surplus, shares.back().units);
    surplus -= dropped;
    shares.back().units -= dropped;
    if (shares.back().units == 0) shares.pop_back();
  }
}

// Whether the job keeps its GPUs in any case.
bool pinned(const JobView& job) { return !job.spec->preemptible && !job.target.empty(); }

class PolluxRound {
 public:
  PolluxRound(const Pollux::Config& config, const Snapshot& snapshot, Pollux::State& state)
      : config_(config), snapshot_(snapshot), state_(state) {
    enter_jobs();
    problem_.capacity.assign(snapshot.cluster.nodes().size(), 0);
    for (std::size_t i = 0; i < problem_.capacity.size(); ++i) {
      const Node& node = snapshot.cluster.nodes()[i];
      if (node.state != NodeState::up) continue;
      problem_.capacity[i] = std::popcount(node.usable());
      ++nodes_;
      gpus_ += problem_.capacity[i];
    }
    exclude_pinned();
    describe(problem_);
    set_fair_shares(gpus_);
  }

  Decision decide() {
    const auto result = search_assignment(
        problem_, {config_.population, config_.generations, seed()}, remembered());
    const auto& best = result.population.front();
    Decision decision = granted(within_types(best.rows));
    if (!contenders_.empty()) {
      state_.mean = power_mean(best.worth / static_cast<double>(contenders_.size()), config_.p);
      decision.advice = advice(best.rows);
    }
    remember(result.population);
    return decision;
  }

 private:
  void enter_jobs() {
    std::vector<const JobView*> jobs;
    for (const JobView& job : snapshot_.jobs) jobs.push_back(&job);
    std::sort(jobs.begin(), jobs.end(), [&](const JobView* a, const JobView* b) {
      return std::tuple(a->attained(snapshot_.now), a->submitted, a->id) <
             std::tuple(b->attained(snapshot_.now), b->submitted, b->id);
    });
    int most = snapshot_.cluster.usable();
    if (config_.autoscale)  // also needs the goodput on more GPUs
      most =
          std::max(most, kMostAdvisedGrowth * static_cast<int>(snapshot_.cluster.nodes().size()) *
                             snapshot_.cluster.node_size(GpuType()));
    for (const JobView* job : jobs) {
      if (pinned(*job)) {
        pinned_.push_back(job);
        continue;
      }
      const auto found = state_.restarts.find(job->id);
      const int restarts = found == state_.restarts.end() ? 0 : found->second;
      contenders_.emplace_back(*job, config_, restarts, most,
                               static_cast<std::size_t>(snapshot_.cluster.types()), snapshot_.now);
      problem_.present.push_back(shares_of(job->target, snapshot_.cluster));
    }
  }

  void exclude_pinned() {
    problem_.spanned.assign(problem_.capacity.size(), false);
    for (const JobView* job : pinned_) {
      for (const auto& slice : job->target.slices()) {
        problem_.capacity[slice.node.index()] =
            std::max(0, problem_.capacity[slice.node.index()] - slice.gpus());
        if (job->target.nodes() > 1) problem_.spanned[slice.node.index()] = true;
      }
    }
  }

  void describe(AssignmentProblem& problem) {
    problem.one_spanning_row = config_.avoid_interference;
    problem.worth = [this](const RowShape& row) {
      Bidder& contender = contenders_[row.row];
      const double factor = row.unchanged ? 1 : contender.if_changed();
      return term(contender.speedup(row.bins, row.units) * scale_ * factor, config_.p);
    };
    problem.usable = [this](std::size_t row, int units) { return contenders_[row].usable(units); };
  }

  void set_fair_shares(int gpus) {
    const auto jobs = std::max(static_cast<int>(snapshot_.jobs.size()), 1);
    const int fair = std::max((gpus + jobs - 1) / jobs, 1);
    scale_ = gpus > 0 ? static_cast<double>(nodes_) / gpus_ : 1;
    for (auto& contender : contenders_) contender.set_fair_share(fair);
  }

  [[nodiscard]] std::uint64_t seed() const {
    return Random(config_.seed)
        .split(static_cast<std::uint64_t>(snapshot_.now.time_since_epoch().count()))
        .next();
  }

  // ---- what is kept between rounds ----

  [[nodiscard]] std::vector<Assignment> remembered() const {
    std::map<JobId, std::size_t> row_of;
    for (std::size_t row = 0; row < contenders_.size(); ++row)
      row_of[contenders_[row].job().id] = row;
    std::vector<Assignment> start;
    for (const auto& solution : state_.population) {
      Assignment assignment;
      assignment.rows.resize(contenders_.size());
      for (const auto& [job, shares] : solution) {
        const auto row = row_of.find(job);
        if (row == row_of.end()) continue;
        for (const auto& share : shares) {
          if (share.bin < static_cast<int>(problem_.capacity.size()))
            assignment.rows[row->second].push_back(share);
        }
      }
      start.push_back(std::move(assignment));
    }
    return start;
  }

  void remember(const std::vector<Assignment>& population) {
    state_.population.clear();
    for (const auto& assignment : population) {
      Pollux::Remembered solution;
      for (std::size_t row = 0; row < contenders_.size(); ++row) {
        if (!assignment.rows[row].empty())
          solution.emplace_back(contenders_[row].job().id, assignment.rows[row]);
      }
      state_.population.push_back(std::move(solution));
    }
    std::erase_if(state_.restarts,
                  [&](const auto& entry) { return snapshot_.jobs.find(entry.first) == nullptr; });
  }

  // ---- the answer ----

  // The search does not see GPU types. Of what it found for a job, only the GPUs of one type count:
  // of the type with most of them, else of the one that is named first. A job without GPUs gets
  // some that are free now, if there are enough.
  [[nodiscard]] std::vector<Shares> within_types(std::vector<Shares> rows) const {
    if (snapshot_.cluster.types() <= 1) return rows;
    std::vector<int> free = problem_.capacity;
    const auto take = [&](const Shares& shares) {
      for (const auto& share : shares) free[static_cast<std::size_t>(share.bin)] -= share.units;
    };
    for (std::size_t row = 0; row < rows.size(); ++row) {
      rows[row] = of_one_type(row, rows[row]);
      take(rows[row]);
    }
    for (std::size_t row = 0; row < rows.size(); ++row) {
      if (!rows[row].empty()) continue;
      Shares all;
      for (std::size_t bin = 0; bin < free.size(); ++bin)
        if (free[bin] > 0) all.push_back({static_cast<int>(bin), free[bin]});
      rows[row] = of_one_type(row, all);
      take(rows[row]);
    }
    return rows;
  }

  // The largest legal part of these GPUs that is of one type on which the job can run.
  [[nodiscard]] Shares of_one_type(std::size_t row, const Shares& shares) const {
    const Bidder& contender = contenders_[row];
    Shares best;
    for (std::size_t t = 0; t < static_cast<std::size_t>(snapshot_.cluster.types()); ++t) {
      Shares part;
      for (const auto& share : shares) {
        const Node& node = snapshot_.cluster.nodes()[static_cast<std::size_t>(share.bin)];
        if (node.type == type_at(t)) part.push_back(share);
      }
      cut_to(part, contender.usable(units_of(part)));
      if (units_of(part) > units_of(best) && contender.runs_on(type_at(t), units_of(part)))
        best = std::move(part);
    }
    return best;
  }

  [[nodiscard]] std::optional<Batch> batch_for(const Bidder& contender,
                                               const Shares& shares) const {
    const JobView& job = contender.job();
    if (contender.estimate() == nullptr || !config_.tune_batch || !job.spec->adaptive_batch)
      return std::nullopt;
    return contender.estimate()->batch_at({static_cast<int>(shares.size()), units_of(shares)});
  }

  Decision granted(const std::vector<Shares>& rows) {
    Decision decision;
    for (const JobView* job : pinned_)
      decision.run.push_back({job->id, Exact{job->target}, job->batch});
    for (std::size_t row = 0; row < rows.size(); ++row) {
      if (rows[row].empty()) continue;
      const JobView& job = contenders_[row].job();
      Spread spread;
      for (const auto& share : rows[row])
        spread.gpus.emplace_back(NodeId(static_cast<NodeId::rep>(share.bin)), share.units);
      if (job.has_run() && rows[row] != problem_.present[row]) ++state_.restarts[job.id];
      decision.run.push_back({job.id, std::move(spread), batch_for(contenders_[row], rows[row])});
    }
    std::sort(decision.run.begin(), decision.run.end(),
              [](const Grant& a, const Grant& b) { return a.job < b.job; });
    return decision;
  }

  // ---- the size of the cluster ----

  [[nodiscard]] double utility(const std::vector<Shares>& rows, int gpus) {
    double sum = 0;
    for (std::size_t row = 0; row < rows.size(); ++row) {
      const int units = units_of(rows[row]);
      if (units > 0) sum += contenders_[row].scaling(static_cast<int>(rows[row].size()), units);
    }
    return gpus > 0 ? sum / gpus : 0;
  }

  // A cluster of this many nodes like the largest one, all of them empty.
  [[nodiscard]] double utility_with(int nodes) {
    AssignmentProblem other;
    const int size = snapshot_.cluster.node_size(GpuType());
    other.capacity.assign(static_cast<std::size_t>(nodes), size);
    other.present.resize(contenders_.size());
    describe(other);
    set_fair_shares(nodes * size);
    const auto result = search_assignment(other, {kQuickSearch, kQuickSearch, seed()});
    return utility(result.population.front().rows, nodes * size);
  }

  Advice advice(const std::vector<Shares>& rows) {
    Advice advice{utility(rows, gpus_), nodes_};
    const bool wanted =
        advice.utility >= config_.low_utility && advice.utility <= config_.high_utility;
    if (!config_.autoscale || wanted) return advice;
    const double target = (config_.low_utility + config_.high_utility) / 2;
    int few = 1;
    int many = std::max(kMostAdvisedGrowth * nodes_, 1);
    while (few + 1 < many) {
      const int middle = (few + many) / 2;
      (utility_with(middle) < target ? many : few) = middle;
    }
    const double by_few = std::abs(utility_with(few) - target);
    const double by_many = std::abs(utility_with(many) - target);
    advice.nodes = by_few < by_many ? few : many;
    return advice;
  }

  const Pollux::Config& config_;
  const Snapshot& snapshot_;
  Pollux::State& state_;
  std::vector<Bidder> contenders_;  // in order of precedence
  std::vector<const JobView*> pinned_;
  AssignmentProblem problem_;
  int nodes_ = 0;
  int gpus_ = 0;
  double scale_ = 1;
};

}  // namespace

Decision Pollux::decide(const Snapshot& snapshot, State& state) const {
  const bool waits = state.next_round && snapshot.now < *state.next_round;
  Decision decision = waits ? as_it_is(snapshot) : PolluxRound(config, snapshot, state).decide();
  if (!waits) state.next_round = first_multiple_after(snapshot.now, config.interval);
  if (!snapshot.jobs.empty()) decision.again_at = state.next_round;
  return decision;
}

Json Pollux::State::save() const {
  Json solutions = Json::array();
  for (const auto& solution : population) {
    Json rows = Json::array();
    for (const auto& [job, shares] : solution) {
      Json row = {job.value()};
      for (const auto& share : shares) {
        row.push_back(share.bin);
        row.push_back(share.units);
      }
      rows.push_back(std::move(row));
    }
    solutions.push_back(std::move(rows));
  }
  Json json = {{"restarts", counts_json(restarts)}, {"population", std::move(solutions)}};
  if (next_round) json["next_round_us"] = next_round->time_since_epoch().count();
  return json;
}

namespace {

// [job, node, GPUs, node, GPUs, ...], nodes ascending; nullopt if it is not that.
std::optional<std::pair<JobId, Shares>> read_row(const Json& json) {
  if (!json.is_array() || json.size() < 3 || json.size() % 2 == 0) return std::nullopt;
  if (!std::all_of(json.begin(), json.end(), is_count)) return std::nullopt;
  std::pair<JobId, Shares> row{JobId(json[0].get<JobId::rep>()), {}};
  for (std::size_t i = 1; i < json.size(); i += 2) {
    const Share share{json[i].get<int>(), json[i + 1].get<int>()};
    const bool ascends = row.second.empty() || row.second.back().bin < share.bin;
    if (share.units < 1 || !ascends) return std::nullopt;
    row.second.push_back(share);
  }
  return row;
}

}  // namespace

Result<Pollux::State> Pollux::State::load(const Json& json) {
  const Error wrong{"pollux: the saved state is not one of its own"};
  if (!json.is_object() || !json.contains("restarts") || !json.contains("population")) return wrong;
  State state;
  if (json.contains("next_round_us")) {
    if (!json["next_round_us"].is_number_integer()) return wrong;
    state.next_round = kStart + Duration(json["next_round_us"].get<std::int64_t>());
  }
  if (!json["population"].is_array()) return wrong;
  auto restarts = counts_of(json["restarts"]);
  if (!restarts) return wrong;
  state.restarts = std::move(*restarts);
  for (const auto& solution : json["population"]) {
    if (!solution.is_array()) return wrong;
    Remembered rows;
    for (const auto& entry : solution) {
      auto row = read_row(entry);
      if (!row) return wrong;
      rows.push_back(std::move(*row));
    }
    state.population.push_back(std::move(rows));
  }
  return state;
}

std::vector<PolicyEntry> pollux_rows() {
  PolicyEntry entry;
  entry.name = "pollux";
  entry.paper = "Qiao et al., OSDI'21";
  entry.summary = "genetic search for the goodput of all jobs, in power mean; tunes batches";
  entry.knows = "what each job's agent has measured (or its speed curve), age, attained service";
  entry.elastic = true;
  entry.tunes_batches = true;
  entry.work_conserving = false;
  entry.keys = {
      number_key("p", -1, -100, 10, "exponent of the power mean: lower is fairer"),
      choice_key("batch", {"tuned", "fixed"}, "batch of highest goodput, or the owner's"),
      number_key("interval", 60, 1, 1e6, "seconds between two searches"),
      whole_key("population", 100, 1, 100'000, "solutions kept by the search"),
      whole_key("generations", 100, 0, 100'000, "generations of the search"),
      choice_key("avoid", {"on", "off"}, "at most one multi-node job on a node"),
      choice_key("autoscale", {"off", "on"},
                 "advise a number of nodes where utility is not"
                 " between low and high"),
      number_key("low", 0.35, 0, 1, "utility below which fewer nodes are advised"),
      number_key("high", 0.65, 0, 1, "utility above which more nodes are advised"),
      whole_key("seed", 1, 0, 1'000'000'000, "of the search"),
  };
  entry.make = [](const KeyValues& values, const PolicyInputs&) -> MadePolicy {
    Pollux::Config config;
    config.p = values.number("p");
    config.tune_batch = values.text("batch") == "tuned";
    config.interval = from_seconds(values.number("interval"));
    config.population = static_cast<int>(values.whole("population"));
    config.generations = static_cast<int>(values.whole("generations"));
    config.avoid_interference = values.text("avoid") == "on";
    config.autoscale = values.text("autoscale") == "on";
    config.low_utility = values.number("low");
    config.high_utility = values.number("high");
    if (config.low_utility > config.high_utility)
      return Error{"pollux: low must not be above high"};
    config.seed = static_cast<std::uint64_t>(values.whole("seed"));
    return erase(Pollux{config});
  };
  return {entry};
}

}  // namespace rubato::policy
