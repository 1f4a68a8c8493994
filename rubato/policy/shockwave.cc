#include "rubato/policy/shockwave.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>
#include <utility>

#include "rubato/model/batch_forecast.h"
#include "rubato/policy/round_times.h"

namespace rubato::policy {
namespace {

constexpr double kOfMean = 0.9;  // the rest is of the latest estimate
constexpr double kPowerNearTheEnd = 100;
constexpr double kMostLateness = 1e3;  // so that a power of it stays a number
constexpr double kMostWeight = 1e9;

// A job as the plan sees it, in seconds at the GPUs that it asks for.
struct Lengths {
  double done = 0;  // as fast as the rest
  double left = 0;
  double whole = 0;  // with the work that is done as fast as it went
};

Lengths lengths_of(const JobView& job, Time now, bool predicts) {
  const Shape shape{GpuType(), job.spec->requested, 0, 0};
  const WorkRate rate = job.speed->rate(shape);
  if (!(rate > 0)) return {};
  const Work left = job.progress.left(now);
  const Work done = std::max(job.work - left, 0.0);
  const auto* forecast = dynamic_cast<const BatchForecast*>(job.speed.get());
  if (!predicts || forecast == nullptr || !(left > 0))
    return {done / rate, left / rate, done / rate + left / rate};
  const double ahead = forecast->seconds_left(shape, left);
  return {ahead * done / left, ahead, forecast->seconds_done(shape, left) + ahead};
}

class ShockwaveRound {
 public:
  ShockwaveRound(const Shockwave::Config& config, const Snapshot& snapshot, Shockwave::State& state)
      : config_(config), snapshot_(snapshot), state_(state), gpus_(snapshot.cluster.usable()) {
    for (const JobView& job : snapshot.jobs) {
      jobs_.push_back(&job);
      lengths_.push_back(lengths_of(job, snapshot.now, config.predicts));
    }
    // Without any GPU, estimates would be infinite; count one.
    share_ = std::min(
        1.0, std::max(gpus_, 1) / static_cast<double>(std::max<std::size_t>(jobs_.size(), 1)));
  }

  Decision decide() {
    update_targets();
    if (state_.plan.empty() || jobs_changed()) make_plan();
    std::set<JobId> run;
    int room = gpus_;
    const auto take = [&](const JobView& job) {
      if (job.spec->requested > room || run.contains(job.id)) return;
      room -= job.spec->requested;
      run.insert(job.id);
    };
    if (!state_.plan.empty()) {
      for (const JobId id : state_.plan.back()) {
        if (const JobView* job = snapshot_.jobs.find(id)) take(*job);
      }
      state_.plan.pop_back();
    }
    for (const std::size_t i : longest_first()) take(*jobs_[i]);
    Decision decision;
    for (const JobId id : run) {
      const JobView& job = *snapshot_.jobs.find(id);
      decision.run.push_back({id, Count{GpuType(), job.spec->requested}, std::nullopt});
    }
    return decision;
  }

 private:
  // Each estimate counts for as long as it was the present one.
  void update_targets() {
    const double passed = state_.counted_to ? seconds(snapshot_.now - *state_.counted_to) : 0;
    state_.counted_to = snapshot_.now;
    std::erase_if(state_.targets,
                  [&](const auto& entry) { return snapshot_.jobs.find(entry.first) == nullptr; });
    for (std::size_t i = 0; i < jobs_.size(); ++i) {
      const auto [at, fresh] = state_.targets.try_emplace(jobs_[i]->id);
      Shockwave::Target& target = at->second;
      if (!fresh) {
        target.weighted += target.latest * passed;
        target.seconds += passed;
      }
      target.latest = seconds(jobs_[i]->submitted - kStart) + lengths_[i].whole / share_;
    }
  }

  [[nodiscard]] bool jobs_changed() const {
    return !std::equal(jobs_.begin(), jobs_.end(), state_.planned_for.begin(),
                       state_.planned_for.end(),
                       [](const JobView* job, JobId id) { return job->id == id; });
  }

  void make_plan() {
    WindowProblem problem;
    problem.gpus = gpus_;
    problem.rounds = config_.window;
    problem.round_s = seconds(config_.round);
    problem.k = config_.k;
    for (std::size_t i = 0; i < jobs_.size(); ++i)
      problem.jobs.push_back({jobs_[i]->spec->requested, lengths_[i].done, lengths_[i].left, 1,
                              rounds_not_to_be_late(i)});
    WindowPlan plan = plan_window(problem);
    state_.fair = plan.feasible;
    if (!plan.feasible) {
      for (std::size_t i = 0; i < jobs_.size(); ++i) {
        problem.jobs[i].least_rounds = 0;
        problem.jobs[i].weight = weight_if_late(i);
      }
      plan = plan_window(problem);
    }
    state_.gap = plan.bound - plan.worth;
    state_.planned_for.clear();
    for (const JobView* job : jobs_) state_.planned_for.push_back(job->id);
    state_.plan.clear();
    for (std::size_t round = plan.run.size(); round-- > 0;) {
      auto& ids = state_.plan.emplace_back();
      for (const int i : plan.run[round]) ids.push_back(jobs_[static_cast<std::size_t>(i)]->id);
    }
  }

  [[nodiscard]] double rounds_not_to_be_late(std::size_t i) const {
    const double round = seconds(config_.round);
    const double end = seconds(snapshot_.now - kStart) + config_.window * round;
    const double target = config_.rho * state_.targets.at(jobs_[i]->id).value();
    if (target < end) return config_.window + 1;  // late by this rule, whatever the plan
    const double may_be_left = (target - end) * share_;
    return std::max(lengths_[i].left - may_be_left, 0.0) / round;
  }

  [[nodiscard]] double weight_if_late(std::size_t i) const {
    const double submitted = seconds(jobs_[i]->submitted - kStart);
    const double promised = state_.targets.at(jobs_[i]->id).value() - submitted;
    const double expected = seconds(snapshot_.now - kStart) + lengths_[i].left / share_ - submitted;
    if (!(promised > 0)) return 1;
    const double late = std::min(expected / promised, kMostLateness);
    if (late <= config_.rho) return 1;
    const bool ends = lengths_[i].left < seconds(config_.round);
    return std::min(std::pow(late, ends ? kPowerNearTheEnd : config_.lambda), kMostWeight);
  }

  [[nodiscard]] std::vector<std::size_t> longest_first() const {
    std::vector<std::size_t> order(jobs_.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return lengths_[a].left > lengths_[b].left;
    });
    return order;
  }

  const Shockwave::Config& config_;
  const Snapshot& snapshot_;
  Shockwave::State& state_;
  int gpus_;
  double share_ = 1;  // of its speed, for each job, if all had an equal share
  std::vector<const JobView*> jobs_;
  std::vector<Lengths> lengths_;  // as jobs_
};

}  // namespace

double Shockwave::Target::value() const {
  return seconds > 0 ? kOfMean * weighted / seconds + (1 - kOfMean) * latest : latest;
}

Decision Shockwave::decide(const Snapshot& snapshot, State& state) const {
  const bool waits = state.next_round && snapshot.now < *state.next_round;
  Decision decision = waits ? as_it_is(snapshot) : ShockwaveRound(config, snapshot, state).decide();
  if (!waits) state.next_round = first_multiple_after(snapshot.now, config.round);
  if (!snapshot.jobs.empty()) decision.again_at = state.next_round;
  return decision;
}

namespace {

Json ids_json(const std::vector<JobId>& ids) {
  Json json = Json::array();
  for (const JobId id : ids) json.push_back(id.value());
  return json;
}

std::optional<std::vector<JobId>> ids_of(const Json& json) {
  if (!json.is_array() || !std::all_of(json.begin(), json.end(), is_count)) return std::nullopt;
  std::vector<JobId> ids;
  for (const auto& id : json) ids.emplace_back(id.get<JobId::rep>());
  return ids;
}

bool are_numbers(const Json& json, std::size_t count) {
  return json.is_array() && json.size() == count && is_count(json[0]) &&
         std::all_of(json.begin(), json.end(), [](const Json& n) { return n.is_number(); });
}

}  // namespace

Json Shockwave::State::save() const {
  Json json = {
      {"targets", Json::array()}, {"planned_for", ids_json(planned_for)}, {"plan", Json::array()}};
  for (const auto& [job, target] : targets)
    json["targets"].push_back({job.value(), target.weighted, target.seconds, target.latest});
  for (const auto& round : plan) json["plan"].push_back(ids_json(round));
  if (next_round) json["next_round_us"] = next_round->time_since_epoch().count();
  if (counted_to) json["counted_to_us"] = counted_to->time_since_epoch().count();
  return json;
}

Result<Shockwave::State> Shockwave::State::load(const Json& json) {
  const Error wrong{"shockwave: the saved state is not one of its own"};
  for (const char* name : {"targets", "planned_for", "plan"}) {
    if (!json.is_object() || !json.contains(name) || !json[name].is_array()) return wrong;
  }
  State state;
  for (const auto& entry : json["targets"]) {
    if (!are_numbers(entry, 4)) return wrong;
    state.targets[JobId(entry[0].get<JobId::rep>())] = {
        entry[1].get<double>(), entry[2].get<double>(), entry[3].get<double>()};
  }
  auto planned_for = ids_of(json["planned_for"]);
  if (!planned_for) return wrong;
  state.planned_for = std::move(*planned_for);
  for (const auto& round : json["plan"]) {
    auto ids = ids_of(round);
    if (!ids) return wrong;
    state.plan.push_back(std::move(*ids));
  }
  for (auto [name, time] : {std::pair("next_round_us", &state.next_round),
                            std::pair("counted_to_us", &state.counted_to)}) {
    if (!json.contains(name)) continue;
    if (!json[name].is_number_integer()) return wrong;
    *time = kStart + Duration(json[name].get<std::int64_t>());
  }
  return state;
}

std::vector<PolicyEntry> shockwave_rows() {
  PolicyEntry entry;
  entry.name = "shockwave";
  entry.group = "fair";
  entry.paper = "Zheng et al., NSDI'23";
  entry.summary = "plans 20 rounds for proportional progress, makespan and finish-time fairness";
  entry.knows = "the length of jobs at the GPUs they ask for, and their age";
  entry.one_type = true;
  entry.work_conserving = false;
  entry.keys = {
      number_key("round", 120, 1, 1e6, "seconds"),
      whole_key("window", 20, 1, 1000, "rounds that are planned together"),
      number_key("k", 1e-3, 0, 1e6, "weight of the longest job's time (published: 10 for 64 GPUs)"),
      number_key("lambda", 12, 0, 100, "power of lateness (published: 5 for 64 GPUs)"),
      number_key("rho", 1, 0.01, 100, "lateness up to which a job is not late"),
      choice_key("predict", {"on", "off"}, "foresee jobs that change their batch size"),
  };
  entry.make = [](const KeyValues& values, const PolicyInputs&) -> MadePolicy {
    Shockwave::Config config;
    config.round = from_seconds(values.number("round"));
    config.window = static_cast<int>(values.whole("window"));
    config.k = values.number("k");
    config.lambda = values.number("lambda");
    config.rho = values.number("rho");
    config.predicts = values.text("predict") == "on";
    return erase(Shockwave{config});
  };
  return {entry};
}

}  // namespace rubato::policy
