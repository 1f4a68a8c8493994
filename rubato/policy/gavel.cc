#include "rubato/policy/gavel.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>

namespace rubato::policy {
namespace {

// GPUs by type, those that are up.
std::vector<double> gpus_of(const Cluster& cluster) {
  const std::vector<int> gpus = usable_gpus(cluster);
  return {gpus.begin(), gpus.end()};
}

double sum(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

// P_i: the throughput on an equal share of every type.
double mean_rate(const std::vector<double>& rate, const std::vector<double>& capacity) {
  const double gpus = sum(capacity);
  double mean = 0;
  for (std::size_t t = 0; t < rate.size(); ++t) mean += rate[t] * capacity[t] / gpus;
  return mean;
}

}  // namespace

struct Gavel::Part {
  struct Member {
    std::vector<const JobView*> jobs;  // equal ones, by id
  };
  std::vector<Member> members;  // as the problem's groups
  std::vector<double> split;    // of a share over the real types; empty = types are as they are
  std::vector<std::vector<bool>> runs;  // by member and real type
  std::optional<ShareProgram> program;

  [[nodiscard]] const JobView& first(std::size_t group) const { return *members[group].jobs[0]; }
};

// Jobs are in different groups if they differ in something that the objective uses.
bool Gavel::groups_jobs() const { return config.objective == Objective::las; }

Decision Gavel::decide(const Snapshot& snapshot, State& state) const {
  return state.rounds.decide(snapshot, config.rounds,
                             [&](const Snapshot& now) { return shares(now, state); });
}

std::vector<TimeShare> Gavel::shares(const Snapshot& snapshot, State& state) const {
  if (config.objective == Objective::isolated) return isolated_shares(snapshot);
  std::erase_if(state.isolated,
                [&](const auto& entry) { return snapshot.jobs.find(entry.first) == nullptr; });
  const std::size_t parts = std::min(config.parts, std::max<std::size_t>(1, snapshot.jobs.size()));
  std::vector<std::vector<const JobView*>> jobs_of(parts);
  std::size_t next = 0;
  for (const JobView& job : snapshot.jobs) jobs_of[next++ % parts].push_back(&job);
  std::vector<TimeShare> shares;
  Ended ended;
  for (std::size_t i = 0; i < parts; ++i) {
    Part part = make_part(snapshot, jobs_of[i], parts);
    start(part, i, state.ended);
    const bool solved = sum(gpus_of(snapshot.cluster)) > 0 && solve(snapshot, part, state);
    if (!solved) part.program.reset();  // without shares, jobs get only idle GPUs
    note_end(part, ended);
    expand(part, shares);
  }
  state.ended = std::move(ended);
  return shares;
}

void Gavel::start(Part& part, std::size_t index, const Ended& before) {
  if (index >= before.parts.size() || before.parts[index].types.empty()) return;
  ShareProgram& program = *part.program;
  ShareProgram::Basis basis;
  basis.types = before.parts[index].types;
  for (const auto& member : part.members) {
    std::string& piece = basis.groups.emplace_back();
    for (const JobView* job : member.jobs) {
      const auto at = before.jobs.find(job->id);
      if (at == before.jobs.end()) continue;
      piece = at->second;
      break;
    }
  }
  for (const auto& pair : program.problem().pairs) {
    const auto at = before.pairs.find({part.first(pair.first).id, part.first(pair.second).id});
    basis.pairs.push_back(at == before.pairs.end() ? std::string() : at->second);
  }
  program.set_basis(basis);
  if (before.parts[index].level > 0) program.set_guess(before.parts[index].level);
}

void Gavel::note_end(const Part& part, Ended& ended) {
  auto& [types, level] = ended.parts.emplace_back();
  if (!part.program) return;
  const ShareProgram::Basis basis = part.program->basis();
  types = basis.types;
  if (std::isfinite(part.program->first_level())) level = part.program->first_level();
  for (std::size_t g = 0; g < part.members.size(); ++g) {
    for (const JobView* job : part.members[g].jobs) ended.jobs.emplace(job->id, basis.groups[g]);
  }
  const auto& pairs = part.program->problem().pairs;
  for (std::size_t p = 0; p < pairs.size(); ++p) {
    const std::string& piece = basis.pairs[p];
    if (piece.find_first_not_of(LinearProgram::kColumnAtZero) == std::string::npos) continue;
    ended.pairs.emplace(std::pair(part.first(pairs[p].first).id, part.first(pairs[p].second).id),
                        piece);
  }
}

Gavel::Part Gavel::make_part(const Snapshot& snapshot, const std::vector<const JobView*>& jobs,
                             std::size_t parts) const {
  Part part;
  ShareProblem problem;
  const std::vector<GpuType> types = all_types(snapshot.cluster);
  std::vector<double> capacity = gpus_of(snapshot.cluster);
  for (auto& gpus : capacity) gpus /= static_cast<double>(parts);
  const double all = sum(capacity);
  if (config.aware) {
    problem.capacity = capacity;
  } else {
    problem.capacity = {all};
    for (const double gpus : capacity) part.split.push_back(all > 0 ? gpus / all : 0);
  }
  std::map<std::tuple<const SpeedModel*, int, double, bool>, std::size_t> known;
  for (const JobView* job : jobs) {
    const int gpus = job->spec->requested;
    if (groups_jobs()) {
      const auto [at, fresh] = known.emplace(std::tuple(job->speed.get(), gpus, job->spec->weight,
                                                        config.packing && job->spec->preemptible),
                                             part.members.size());
      if (!fresh) {
        part.members[at->second].jobs.push_back(job);
        ++problem.groups[at->second].jobs;
        continue;
      }
    }
    std::vector<double> rate;
    rate.reserve(types.size());
    for (const GpuType type : types) rate.push_back(job->speed->on(type, gpus));
    std::vector<bool> runs;
    runs.reserve(rate.size());
    for (const double r : rate) runs.push_back(r > 0);
    part.runs.push_back(std::move(runs));
    if (!config.aware) {
      const auto first = std::find_if(rate.begin(), rate.end(), [](double r) { return r > 0; });
      const double one = first == rate.end() ? 0 : *first;
      rate = {config.objective == Objective::las && one > 0 ? 1 : one};
    }
    part.members.push_back({{job}});
    problem.groups.push_back({1, gpus, std::move(rate)});
  }
  if (config.packing) add_pairs(snapshot, part, problem);
  part.program.emplace(std::move(problem));
  return part;
}

// A pair is useful only where the two do more together than with time slicing. A job that may not
// be preempted could not leave the pair again, so it stays alone.
void Gavel::add_pairs(const Snapshot& snapshot, Part& part, ShareProblem& problem) const {
  const std::vector<GpuType> types = all_types(snapshot.cluster);
  for (std::size_t a = 0; a < part.members.size(); ++a) {
    for (std::size_t b = a; b < part.members.size(); ++b) {
      const JobView& first = part.first(a);
      const JobView& second = part.first(b);
      const int gpus = first.spec->requested;
      if (!first.spec->preemptible || !second.spec->preemptible) continue;
      if (gpus != second.spec->requested || (a == b && part.members[a].jobs.size() < 2)) continue;
      ShareProblem::Pair pair{a, b, {}, {}};
      bool any = false;
      double gain_first = 0, gain_second = 0;  // without types: relative to alone
      for (const GpuType type : types) {
        const Shape shape{type, gpus, 0, 0};
        const double own = first.speed->beside(shape, *second.speed);
        const double other = second.speed->beside(shape, *first.speed);
        const double alone_first = first.speed->rate(shape);
        const double alone_second = second.speed->rate(shape);
        const bool good = own > 0 && other > 0 && alone_first > 0 && alone_second > 0 &&
                          own / alone_first + other / alone_second > 1;
        any = any || good;
        pair.first_rate.push_back(good ? own : 0);
        pair.second_rate.push_back(good ? other : 0);
        if (!good || config.aware) continue;
        gain_first += part.split[type.index()] * own / alone_first;
        gain_second += part.split[type.index()] * other / alone_second;
      }
      if (!any) continue;
      if (!config.aware) {
        pair.first_rate = {gain_first * problem.groups[a].rate[0]};
        pair.second_rate = {gain_second * problem.groups[b].rate[0]};
      }
      problem.pairs.push_back(std::move(pair));
    }
  }
}

bool Gavel::solve(const Snapshot& snapshot, Part& part, State& state) const {
  ShareProgram& program = *part.program;
  const ShareProblem& problem = program.problem();
  std::vector<double> scale;
  switch (config.objective) {
    case Objective::finish_time_fairness:
      return solve_finish_time(snapshot, part, state);
    case Objective::throughput:
    case Objective::min_jct:
      return solve_sum(snapshot, part);
    case Objective::hierarchical:
      return solve_hierarchy(part);
    case Objective::las:
      for (std::size_t g = 0; g < problem.groups.size(); ++g) {
        const auto& group = problem.groups[g];
        const double equal = mean_rate(group.rate, problem.capacity);
        const double weight = part.first(g).spec->weight;
        scale.push_back(equal > 0 ? group.gpus / (weight * equal) : 0);
      }
      return program.water_fill(scale, config.water_filling);
    case Objective::makespan: {
      // In units of the time that all jobs would need on equal shares, so that numbers are near 1.
      double longest = 0;
      for (std::size_t g = 0; g < problem.groups.size(); ++g) {
        const double equal = mean_rate(problem.groups[g].rate, problem.capacity);
        if (equal > 0)
          longest = std::max(longest, part.first(g).progress.left(snapshot.now) / equal);
      }
      for (std::size_t g = 0; g < problem.groups.size(); ++g) {
        const double equal = mean_rate(problem.groups[g].rate, problem.capacity);
        const double left = part.first(g).progress.left(snapshot.now);
        scale.push_back(equal > 0 ? longest / std::max(left, 1e-6 * longest * equal) : 0);
      }
      return program.water_fill(scale, config.water_filling);
    }
    case Objective::isolated:
      break;
  }
  return false;
}

bool Gavel::solve_finish_time(const Snapshot& snapshot, Part& part, State& state) const {
  ShareProgram& program = *part.program;
  const ShareProblem& problem = program.problem();
  const std::size_t jobs = problem.groups.size();
  double asked = 0;
  for (const auto& group : problem.groups) asked += group.gpus;
  std::vector<double> age(jobs), left(jobs), alone(jobs), throughput(jobs);
  for (std::size_t i = 0; i < jobs; ++i) {
    const JobView& job = part.first(i);
    const double equal = mean_rate(problem.groups[i].rate, problem.capacity);
    const double slice =
        sum(problem.capacity) / (static_cast<double>(jobs) * problem.groups[i].gpus);
    const double isolated = std::min(1.0, slice) * equal;
    age[i] = seconds(snapshot.now - job.submitted);
    left[i] = std::max(job.progress.left(snapshot.now), 1e-9);
    Isolated& so_far = state.isolated[job.id];
    if (so_far.rate > 0) so_far.so_far_s += std::max(0.0, so_far.left - left[i]) / so_far.rate;
    so_far.left = left[i];
    so_far.rate = isolated;
    alone[i] = so_far.so_far_s + (isolated > 0 ? left[i] / isolated : 0);
    // The first guess: all jobs have the same share of time.
    throughput[i] = std::min(1.0, sum(problem.capacity) / asked) * equal;
  }
  const auto worst = [&] {
    double rho = 0;
    for (std::size_t i = 0; i < jobs; ++i) {
      if (throughput[i] > 0) rho = std::max(rho, (age[i] + left[i] / throughput[i]) / alone[i]);
    }
    return rho;
  };
  std::vector<double> scale(jobs, 0);
  constexpr int kMostPrograms = 40;
  constexpr double kEnough = 1 + 1e-4;
  for (int programs = 0; programs < kMostPrograms; ++programs) {
    const double rho = worst();
    for (std::size_t i = 0; i < jobs; ++i) {
      // Throughput needed for this rho is left / (rho x alone - age).
      scale[i] = throughput[i] > 0 ? std::max(0.0, rho * alone[i] - age[i]) / left[i] : 0;
    }
    if (!program.water_fill(scale, false)) return false;
    if (program.level() <= kEnough) break;
    const auto reached = program.throughputs();
    for (std::size_t i = 0; i < jobs; ++i) {
      if (throughput[i] > 0) throughput[i] = std::max(reached[i], 1e-12);
    }
  }
  return !config.water_filling || program.water_fill(scale, true);
}

bool Gavel::solve_sum(const Snapshot& snapshot, Part& part) const {
  ShareProgram& program = *part.program;
  const ShareProblem& problem = program.problem();
  std::vector<double> scale, needed;
  for (std::size_t g = 0; g < problem.groups.size(); ++g) {
    const JobView& job = part.first(g);
    const double equal = mean_rate(problem.groups[g].rate, problem.capacity);
    const double left = job.progress.left(snapshot.now);
    if (config.objective == Objective::min_jct) {
      scale.push_back(left > 0 && equal > 0 ? 1 / std::max(left / equal, 1.0) / equal : 0);
    } else {
      scale.push_back(equal > 0 ? 1 / equal : 0);
    }
    const bool due = job.spec->deadline && *job.spec->deadline > snapshot.now;
    needed.push_back(due && config.objective == Objective::throughput
                         ? left / seconds(*job.spec->deadline - snapshot.now)
                         : 0);
  }
  std::vector<double> price(problem.capacity.size(), 0);
  if (config.prices.empty() || config.objective != Objective::throughput)
    return program.maximise_sum(scale, price, needed);
  for (std::size_t t = 0; t < price.size(); ++t)
    price[t] = config.prices[std::min(t, config.prices.size() - 1)];
  // The best throughput per cost: subtracts the cost at the present ratio until the ratio stops
  // rising.
  double ratio = 0;
  constexpr int kMostPrograms = 30;
  for (int programs = 0; programs < kMostPrograms; ++programs) {
    std::vector<double> scaled = price;
    for (auto& p : scaled) p *= ratio;
    if (!program.maximise_sum(scale, scaled, needed)) return false;
    const auto throughputs = program.throughputs();
    const auto used = program.used();
    double gained = 0, cost = 0;
    for (std::size_t g = 0; g < scale.size(); ++g)
      gained += scale[g] * throughputs[g] * problem.groups[g].jobs;
    for (std::size_t t = 0; t < price.size(); ++t) cost += price[t] * used[t];
    if (cost <= 0 || gained / cost <= ratio * (1 + 1e-6)) break;
    ratio = gained / cost;
  }
  return true;
}

bool Gavel::solve_hierarchy(Part& part) const {
  ShareProgram& program = *part.program;
  const ShareProblem& problem = program.problem();
  std::vector<double> scale;
  std::map<std::string, double> weight_of;
  for (std::size_t g = 0; g < problem.groups.size(); ++g) {
    const double equal = mean_rate(problem.groups[g].rate, problem.capacity);
    scale.push_back(equal > 0 ? problem.groups[g].gpus / equal : 0);
    const JobSpec& spec = *part.first(g).spec;
    double& weight = weight_of[spec.user];
    const auto given = config.entity_weights.find(spec.user);
    if (!config.entity_weights.empty()) {
      weight = given == config.entity_weights.end() ? 1 : given->second;
    } else {
      weight = std::max(weight, spec.weight);
    }
  }
  const auto rise = [&](const std::vector<bool>& held) {
    std::map<std::string, double> inside;  // weights of a user's jobs that still rise
    std::vector<double> speed(held.size(), 0);
    for (std::size_t g = 0; g < held.size(); ++g) {
      const JobSpec& spec = *part.first(g).spec;
      if (held[g]) continue;
      double& total = inside[spec.user];
      if (config.fifo_inside && total > 0) continue;  // only the oldest rises
      total += spec.weight;
      speed[g] = weight_of[spec.user] * spec.weight;
    }
    for (std::size_t g = 0; g < held.size(); ++g) {
      if (speed[g] > 0) speed[g] /= inside[part.first(g).spec->user];
    }
    return speed;
  };
  return program.water_fill(scale, rise, true);
}

std::vector<TimeShare> Gavel::isolated_shares(const Snapshot& snapshot) const {
  const std::vector<double> capacity = gpus_of(snapshot.cluster);
  const auto jobs = static_cast<double>(snapshot.jobs.size());
  double largest = 1;
  for (const JobView& job : snapshot.jobs)
    largest = std::max(largest, sum(capacity) / (jobs * job.spec->requested));
  std::vector<TimeShare> shares;
  for (const JobView& job : snapshot.jobs) {
    std::vector<double> share;
    share.reserve(capacity.size());
    for (const double gpus : capacity)
      share.push_back(gpus / (jobs * job.spec->requested) / largest);
    shares.push_back({job.id, std::nullopt, std::move(share)});
  }
  return shares;
}

void Gavel::expand(const Part& part, std::vector<TimeShare>& shares) const {
  const std::size_t types = part.runs.empty() ? 0 : part.runs[0].size();
  const auto times = part.program ? std::optional(part.program->times()) : std::nullopt;
  // Splits a share over the real types. Time on a type where the job cannot run is lost.
  const auto share_of = [&](const std::vector<double>& time, double jobs,
                            const std::vector<bool>& runs) {
    std::vector<double> share(types, 0);
    for (std::size_t t = 0; t < types; ++t) {
      if (!runs[t]) continue;
      share[t] = part.split.empty() ? time[t] / jobs : time[0] * part.split[t] / jobs;
    }
    return share;
  };
  for (std::size_t g = 0; g < part.members.size(); ++g) {
    const auto& jobs = part.members[g].jobs;
    std::vector<double> share(types, 0);
    if (times) share = share_of(times->alone[g], static_cast<double>(jobs.size()), part.runs[g]);
    for (const JobView* job : jobs) shares.push_back({job->id, std::nullopt, share});
  }
  if (!times) return;
  const auto& pairs = part.program->problem().pairs;
  for (std::size_t p = 0; p < pairs.size(); ++p) {
    if (sum(times->paired[p]) <= 0) continue;
    const auto& first = part.members[pairs[p].first].jobs;
    const auto& second = part.members[pairs[p].second].jobs;
    std::vector<bool> runs = part.runs[pairs[p].first];
    for (std::size_t t = 0; t < types; ++t) runs[t] = runs[t] && part.runs[pairs[p].second][t];
    // Every job of a group is in equally many pairs. Jobs of one group form a circle of pairs. Jobs
    // of two groups are paired by walking round both groups until both are back at their start.
    const bool same = pairs[p].first == pairs[p].second;
    const std::size_t count =
        same ? (first.size() == 2 ? 1 : first.size()) : std::lcm(first.size(), second.size());
    const auto share = share_of(times->paired[p], static_cast<double>(count), runs);
    for (std::size_t k = 0; k < count; ++k) {
      const JobId one = first[k % first.size()]->id;
      const JobId two = same ? first[(k + 1) % first.size()]->id : second[k % second.size()]->id;
      shares.push_back({std::min(one, two), std::max(one, two), share});
    }
  }
}

Json Gavel::State::save() const {
  Json json = {{"rounds", rounds.save()}, {"isolated", Json::array()}};
  for (const auto& [job, entry] : isolated)
    json["isolated"].push_back({job.value(), entry.so_far_s, entry.left, entry.rate});
  Json jobs = Json::array(), pairs = Json::array(), parts = Json::array();
  for (const auto& [job, piece] : ended.jobs) jobs.push_back({job.value(), piece});
  for (const auto& [pair, piece] : ended.pairs)
    pairs.push_back({pair.first.value(), pair.second.value(), piece});
  for (const auto& part : ended.parts) parts.push_back({part.types, part.level});
  json["ended"] = {{"jobs", jobs}, {"pairs", pairs}, {"parts", parts}};
  return json;
}

Result<Gavel::State> Gavel::State::load(const Json& json) {
  try {
    auto rounds = Rounds::load(json.at("rounds"));
    if (!rounds) return rounds.error();
    State state{std::move(*rounds), {}, {}};
    for (const auto& row : json.at("isolated")) {
      state.isolated[JobId(row.at(0).get<JobId::rep>())] = {
          row.at(1).get<double>(), row.at(2).get<Work>(), row.at(3).get<WorkRate>()};
    }
    const Json& ended = json.at("ended");
    const auto id = [](const Json& value) { return JobId(value.get<JobId::rep>()); };
    for (const auto& row : ended.at("jobs"))
      state.ended.jobs[id(row.at(0))] = row.at(1).get<std::string>();
    for (const auto& row : ended.at("pairs"))
      state.ended.pairs[{id(row.at(0)), id(row.at(1))}] = row.at(2).get<std::string>();
    for (const auto& row : ended.at("parts"))
      state.ended.parts.push_back({row.at(0).get<std::string>(), row.at(1).get<double>()});
    return state;
  } catch (const nlohmann::json::exception& problem) {
    return Error{fmt::format("saved Gavel state: {}", problem.what())};
  }
}

namespace {

PolicyEntry gavel_row(std::string name, std::string summary, std::string knows,
                      Gavel::Objective objective) {
  using Objective = Gavel::Objective;
  PolicyEntry entry;
  entry.name = std::move(name);
  entry.group = "heterogeneous";
  entry.paper = "Narayanan et al., OSDI'20";
  entry.summary = std::move(summary);
  entry.knows = std::move(knows);
  entry.work_conserving = false;  // who ends leaves its GPUs idle until the round does
  const bool solves = objective != Objective::isolated;
  if (solves) {
    entry.keys.push_back(choice_key(
        "aware", {"on", "off"}, "off: GPU types count as one, and time is split over them evenly"));
    entry.keys.push_back(choice_key("packing", {"off", "on"},
                                    "on: pairs of jobs may share GPUs where that was measured"));
    entry.keys.push_back(whole_key(
        "parts", 1, 1, 1024, "split jobs and GPUs into so many problems: faster, a little worse"));
  }
  if (objective == Objective::las || objective == Objective::finish_time_fairness ||
      objective == Objective::makespan) {
    entry.keys.push_back(choice_key("ties", {"fill", "none"},
                                    "fill: water filling raises all but the worst job, too"));
  }
  if (objective == Objective::throughput) {
    entry.keys.push_back(list_key(
        "prices", "cost of a GPU-hour by type, 2.48/1.46/0.45: throughput per cost is maximised"));
  }
  if (objective == Objective::hierarchical) {
    entry.keys.push_back(choice_key("inside", {"fair", "fifo"}, "between the jobs of one user"));
    entry.keys.push_back(weights_key(
        "entities", "weights of users, USER:WEIGHT/...; default: the largest of a user's jobs"));
  }
  entry.keys.push_back(number_key("round", 360, 1, 1e7, "seconds a round lasts"));
  entry.keys.push_back(number_key("resolve", 1920, 0, 1e9, "seconds between two solves at least"));
  entry.keys.push_back(whole_key("seed", 0, 0, 1'000'000'000,
                                 "of the order in which types are filled, where that is random"));
  entry.make = [objective, solves](const KeyValues& values, const PolicyInputs&) -> MadePolicy {
    Gavel::Config config;
    config.objective = objective;
    if (solves) {
      config.aware = values.text("aware") == "on";
      config.packing = values.text("packing") == "on";
      config.parts = static_cast<std::size_t>(values.whole("parts"));
    }
    if (objective == Objective::las || objective == Objective::finish_time_fairness ||
        objective == Objective::makespan) {
      config.water_filling = values.text("ties") == "fill";
    }
    if (objective == Objective::throughput) config.prices = values.numbers("prices");
    if (objective == Objective::hierarchical) {
      config.fifo_inside = values.text("inside") == "fifo";
      config.entity_weights = values.weights("entities");
    }
    config.rounds.length = from_seconds(values.number("round"));
    config.rounds.resolve = from_seconds(values.number("resolve"));
    config.rounds.fastest_first = solves && (config.aware || config.packing);
    config.rounds.seed = static_cast<std::uint64_t>(values.whole("seed"));
    return erase(Gavel{std::move(config)});
  };
  return entry;
}

}  // namespace

std::vector<PolicyEntry> gavel_rows() {
  return {
      gavel_row("gavel-las", "max-min fairness in shares of time on each GPU type",
                "GPUs asked for, speed by type, weight", Gavel::Objective::las),
      gavel_row("gavel-ftf", "the worst finish-time fairness as good as it can be",
                "GPUs asked for, speed by type, work left", Gavel::Objective::finish_time_fairness),
      gavel_row("gavel-makespan", "all jobs end as early as possible",
                "GPUs asked for, speed by type, work left", Gavel::Objective::makespan),
      gavel_row("gavel-throughput", "largest total throughput, or per cost, with deadlines kept",
                "GPUs asked for, speed by type, deadline and work left",
                Gavel::Objective::throughput),
      gavel_row("gavel-min-jct", "largest rate of completions: short jobs first",
                "GPUs asked for, speed by type, work left", Gavel::Objective::min_jct),
      gavel_row("gavel-hierarchical", "weighted fairness between users, fair or FIFO inside",
                "GPUs asked for, speed by type, user, weight", Gavel::Objective::hierarchical),
      gavel_row("isolated", "a 1/n slice of every GPU type for each of n jobs", "GPUs asked for",
                Gavel::Objective::isolated),
  };
}

}  // namespace rubato::policy
