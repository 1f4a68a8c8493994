#include "rubato/policy/elastic_tiresias.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <optional>
#include <queue>
#include <set>
#include <tuple>
#include <utility>

namespace rubato::policy {
namespace {

std::optional<int> below(const GpuLimits& limits, int gpus) {
  if (limits.allowed.empty())
    return gpus > limits.min ? std::optional(std::min(gpus - 1, limits.max)) : std::nullopt;
  const auto at = std::lower_bound(limits.allowed.begin(), limits.allowed.end(), gpus);
  return at == limits.allowed.begin() ? std::nullopt : std::optional(*(at - 1));
}

// The largest legal count up to the one asked for and the cluster's size; else the smallest one.
int asked(const JobSpec& spec, int cluster) {
  if (spec.requested <= cluster) return spec.requested;
  const auto fits = below(spec.limits, cluster + 1);
  return fits ? *fits : spec.limits.smallest();
}

// The smallest count to which the job may shrink.
int fewest(const JobSpec& spec, double least) {
  const int wish = std::max(1, static_cast<int>(std::ceil(least * spec.requested)));
  const auto legal = spec.limits.above(wish - 1);
  return legal ? std::min(*legal, spec.requested) : spec.requested;
}

struct Runner {
  const JobView* job = nullptr;
  int gpus = 0;
  int least = 0;

  [[nodiscard]] WorkRate rate(int count) const {
    return count == 0 ? 0 : job->speed->on(GpuType(), count);
  }
  [[nodiscard]] double efficiency() const { return rate(gpus) / (gpus * rate(1)); }
  [[nodiscard]] std::optional<int> smaller() const {
    const auto next = below(job->spec->limits, gpus);
    return next && *next >= least ? next : std::nullopt;
  }
  // GPUs it could give up, counted in legal steps.
  [[nodiscard]] int spare() const {
    Runner smallest = *this;
    while (const auto next = smallest.smaller()) smallest.gpus = *next;
    return gpus - smallest.gpus;
  }
};

// A decision in progress: which jobs run on how many GPUs.
class DecisionDraft {
 public:
  DecisionDraft(int gpus, const ElasticTiresias::Config& config)
      : gpus_(gpus), room_(gpus), config_(config) {}

  // As Tiresias: jobs that fit at the count asked for run, the others wait.
  void admit(const JobView& job) {
    const int wish = asked(*job.spec, gpus_);
    const int least = std::min(wish, fewest(*job.spec, config_.least));
    wish <= room_ ? run({&job, wish, least}) : waiting_.push_back({&job, 0, least});
  }

  // Waiting jobs that fit into the remaining GPUs start with few GPUs.
  void fill() {
    admit_waiting([&](const Runner& waiter) { return waiter.least <= room_; });
  }

  void compact() {
    using Wasteful = std::tuple<double, JobId, std::size_t>;  // worst first
    std::set<Wasteful> wasteful;
    const auto enter = [&](std::size_t i) {
      if (runners_[i].smaller()) wasteful.emplace(runners_[i].efficiency(), runners_[i].job->id, i);
    };
    int spare = 0;
    for (std::size_t i = 0; i < runners_.size(); ++i) {
      enter(i);
      spare += runners_[i].spare();
    }
    const auto allowed = static_cast<std::size_t>(config_.waiting);
    admit_waiting([&](const Runner& waiter) {
      if (waiting_.size() - admitted_ <= allowed) return false;
      while (waiter.least > room_ && waiter.least <= room_ + spare && !wasteful.empty()) {
        const std::size_t i = std::get<2>(*wasteful.begin());
        wasteful.erase(wasteful.begin());
        Runner& worst = runners_[i];
        const int freed = worst.gpus - *worst.smaller();
        spare -= freed;
        room_ += freed;
        worst.gpus -= freed;
        enter(i);
      }
      return waiter.least <= room_;
    });
  }

  void expand() {
    using Offer = std::tuple<double, JobId, std::size_t>;  // -gain, so that the largest is first
    std::priority_queue<Offer, std::vector<Offer>, std::greater<>> offers;
    const auto offer = [&](std::size_t i) {
      const Runner& runner = runners_[i];
      const auto next = runner.job->spec->limits.above(runner.gpus);
      if (!next || *next - runner.gpus > room_) return;
      const double gain = (runner.rate(*next) - runner.rate(runner.gpus)) / runner.rate(1);
      if (gain > 0) offers.emplace(-gain / (*next - runner.gpus), runner.job->id, i);
    };
    for (std::size_t i = 0; i < runners_.size(); ++i) offer(i);
    while (room_ > 0 && !offers.empty()) {
      const std::size_t i = std::get<2>(offers.top());
      offers.pop();
      const int next = *runners_[i].job->spec->limits.above(runners_[i].gpus);
      if (next - runners_[i].gpus > room_) continue;
      room_ -= next - runners_[i].gpus;
      runners_[i].gpus = next;
      offer(i);
    }
  }

  [[nodiscard]] const std::vector<Runner>& runners() const { return runners_; }

 private:
  void run(const Runner& runner) {
    room_ -= runner.gpus;
    runners_.push_back(runner);
  }
  template <class CanStart>
  void admit_waiting(const CanStart& can_start) {
    admitted_ = 0;
    std::vector<Runner> left;
    for (Runner& waiter : waiting_) {
      if (!can_start(waiter)) {
        left.push_back(waiter);
        continue;
      }
      ++admitted_;
      waiter.gpus = waiter.least;
      run(waiter);
    }
    waiting_ = std::move(left);
  }

  int gpus_;
  int room_;
  const ElasticTiresias::Config& config_;
  std::vector<Runner> runners_;
  std::vector<Runner> waiting_;  // in order
  std::size_t admitted_ = 0;     // of the waiting, in the pass under way
};

}  // namespace

int ElasticTiresias::least_gpus(const JobSpec& spec, const SpeedModel& /*speed*/) const {
  return fewest(spec, config.least);
}

// Adds new jobs to the tail of the first queue. Moves jobs that have reached a limit to a later
// one.
void ElasticTiresias::requeue(const Snapshot& snapshot, State& state) const {
  auto& queues = state.queues;
  queues.resize(config.limits.size() + 1);
  std::set<JobId> known;
  std::vector<std::vector<JobId>> demoted(queues.size());
  for (std::size_t q = 0; q < queues.size(); ++q) {
    std::vector<JobId> stay;
    for (const JobId id : queues[q]) {
      const JobView* job = snapshot.jobs.find(id);
      if (job == nullptr) continue;
      known.insert(id);
      std::size_t to = q;
      while (to < config.limits.size() && job->attained(snapshot.now) >= config.limits[to]) ++to;
      (to == q ? stay : demoted[to]).push_back(id);
    }
    queues[q] = std::move(stay);
  }
  for (std::size_t q = 0; q < queues.size(); ++q)
    queues[q].insert(queues[q].end(), demoted[q].begin(), demoted[q].end());
  for (const JobView& job : snapshot.jobs) {
    if (!known.contains(job.id)) queues[0].push_back(job.id);
  }
}

Decision ElasticTiresias::decide(const Snapshot& snapshot, State& state) const {
  requeue(snapshot, state);
  DecisionDraft draft(snapshot.cluster.usable(), config);
  for (const auto& queue : state.queues) {
    for (const JobId id : queue) draft.admit(*snapshot.jobs.find(id));
  }
  draft.fill();
  draft.compact();
  draft.expand();

  Decision decision;
  std::set<JobId> runs;
  for (const Runner& runner : draft.runners()) {
    decision.run.push_back({runner.job->id, Count{GpuType(), runner.gpus}});
    runs.insert(runner.job->id);
  }
  // Inside a queue, waiting jobs move after running ones, in stable order. Wakes at the next
  // demotion.
  for (auto& queue : state.queues) {
    std::stable_partition(queue.begin(), queue.end(), [&](JobId id) { return runs.contains(id); });
  }
  for (const Runner& runner : draft.runners()) {
    const GpuTime attained = runner.job->attained(snapshot.now);
    for (const GpuTime limit : config.limits) {
      if (attained >= limit) continue;
      const Time at = snapshot.now + (limit - attained).held_by(runner.gpus);
      if (!decision.again_at || at < *decision.again_at) decision.again_at = at;
      break;
    }
  }
  std::sort(decision.run.begin(), decision.run.end(),
            [](const Grant& a, const Grant& b) { return a.job < b.job; });
  return decision;
}

Json ElasticTiresias::State::save() const {
  Json json = Json::array();
  for (const auto& queue : queues) {
    json.push_back(Json::array());
    for (const JobId job : queue) json.back().push_back(job.value());
  }
  return {{"queues", std::move(json)}};
}

Result<ElasticTiresias::State> ElasticTiresias::State::load(const Json& json) {
  try {
    State state;
    for (const auto& row : json.at("queues")) {
      state.queues.emplace_back();
      for (const auto& job : row) state.queues.back().emplace_back(job.get<JobId::rep>());
    }
    return state;
  } catch (const nlohmann::json::exception& problem) {
    return Error{fmt::format("saved elastic Tiresias state: {}", problem.what())};
  }
}

std::vector<PolicyEntry> elastic_tiresias_rows() {
  PolicyEntry entry;
  entry.name = "elastic-tiresias";
  entry.paper = "Wu et al. (EDL), TPDS'21";
  entry.summary = "Tiresias; shrinks inefficient jobs for waiting ones, grows who gains most";
  entry.knows = "GPUs asked for, attained service, speed curve";
  entry.elastic = true;
  entry.one_type = true;
  entry.keys = {
      ascending_key("limits", "3250/7200",
                    "GPU-seconds at which a job leaves each queue but the last"),
      whole_key("waiting", 0, 0, 1'000'000, "jobs that may wait before others shrink"),
      number_key("least", 0.5, 0.001, 1, "share of the GPUs it asked for that a job is left with")};
  entry.make = [](const KeyValues& values, const PolicyInputs&) -> MadePolicy {
    ElasticTiresias::Config config;
    for (const double limit : values.numbers("limits"))
      config.limits.push_back(GpuTime::from_gpu_seconds(limit));
    config.waiting = static_cast<int>(values.whole("waiting"));
    config.least = values.number("least");
    return erase(ElasticTiresias{std::move(config)});
  };
  return {entry};
}

}  // namespace rubato::policy
