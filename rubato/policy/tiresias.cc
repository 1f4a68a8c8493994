#include "rubato/policy/tiresias.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "rubato/policy/victims.h"

namespace rubato::policy {
namespace {

// Inside a LAS queue, running jobs come before waiting ones, so a queue has two levels of ranks.
// The Gittins index alone orders a queue, so there both levels are the same.
int level_of(std::size_t queue, bool pending) {
  return static_cast<int>(2 * queue + (pending ? 1 : 0));
}
std::size_t queue_of(int level) { return static_cast<std::size_t>(level / 2); }

}  // namespace

GittinsTable::GittinsTable(std::vector<double> samples, double quantum)
    : samples_(std::move(samples)) {
  std::sort(samples_.begin(), samples_.end());
  std::vector<double> sums{0};
  for (const double d : samples_) sums.push_back(sums.back() + d);
  for (const double d : samples_) {
    const double age = d - 1;
    const auto first = static_cast<std::size_t>(
        std::upper_bound(samples_.begin(), samples_.end(), age) - samples_.begin());
    const auto last = static_cast<std::size_t>(
        std::upper_bound(samples_.begin(), samples_.end(), age + quantum) - samples_.begin());
    const auto above = static_cast<double>(samples_.size() - first);
    const auto ending = static_cast<double>(last - first);
    const double lasting = above - ending;
    const double share = ending / above;
    const double mean = (sums[last] - sums[first] + quantum * lasting) / above;
    ranks_.push_back(share / mean);
  }
}

double GittinsTable::rank(double age) const {
  const auto at = std::upper_bound(samples_.begin(), samples_.end(), age);
  return at == samples_.end() ? 0 : ranks_[static_cast<std::size_t>(at - samples_.begin())];
}

GpuTime Tiresias::service(const JobView& job, Time now, const State& state) const {
  const auto forgiven = state.forgiven.find(job.id);
  return forgiven == state.forgiven.end() ? job.attained(now)
                                          : job.attained(now) - forgiven->second;
}

void Tiresias::demote(Gang& gang, const JobView& job, Time now, State& state) const {
  const GpuTime attained = service(job, now, state);
  std::size_t queue = queue_of(gang.rank.level);
  const std::size_t before = queue;
  while (queue < config.limits.size() && attained >= config.limits[queue]) ++queue;
  if (config.gittins) {
    gang.rank = {level_of(queue, false), -config.table.rank(attained.gpu_seconds()),
                 job.id.value()};
  } else if (queue != before) {
    gang.rank = {level_of(queue, true), 0,
                 state.queue.next_stamp()};  // to the tail, after the waiting jobs
  }
}

void Tiresias::expect_promotion(const JobView& job, Time now, State& state) const {
  const auto forgiven = state.forgiven_time.find(job.id);
  const Duration executed =
      job.ran(now) - (forgiven == state.forgiven_time.end() ? Duration(0) : forgiven->second);
  if (executed == Duration(0)) return;
  const Time stopped = job.held.empty() ? job.last_ran : now;  // a failure may have come first
  const Time at =
      std::max(stopped + from_seconds(config.promote * seconds(executed)), now + Duration(1));
  state.promotions.emplace(at, job.id);
  state.promotion_of[job.id] = at;
}

void Tiresias::promote(const Snapshot& snapshot, State& state) const {
  while (!state.promotions.empty() && state.promotions.begin()->first <= snapshot.now) {
    const JobId id = state.promotions.begin()->second;
    state.promotions.erase(state.promotions.begin());
    state.promotion_of.erase(id);
    const JobView* job = snapshot.jobs.find(id);
    if (job == nullptr) continue;
    state.forgiven[id] = job->attained(snapshot.now);
    state.forgiven_time[id] = job->ran(snapshot.now);
    const double key = config.gittins ? -config.table.rank(0) : 0;
    const std::int64_t stamp = config.gittins ? id.value() : state.queue.next_stamp();
    state.queue.move_waiting(id, {level_of(0, !config.gittins), key, stamp});
  }
}

std::optional<Time> Tiresias::next_demotion(const GangQueue::Outcome& outcome,
                                            const Snapshot& snapshot, const State& state) const {
  std::optional<Time> next;
  for (const auto& picked : outcome.picked) {
    const std::size_t queue = queue_of(picked.gang.rank.level);
    if (queue >= config.limits.size()) continue;
    const GpuTime left =
        config.limits[queue] - service(*snapshot.jobs.find(picked.gang.job), snapshot.now, state);
    const Time at = snapshot.now + left.held_by(picked.gpus);
    if (!next || at < *next) next = at;
  }
  return next;
}

Decision Tiresias::decide(const Snapshot& snapshot, State& state) const {
  GangQueue& queue = state.queue;
  queue.rerank_running(
      snapshot, [&](Gang& gang, const JobView& job) { demote(gang, job, snapshot.now, state); });
  const auto to_rank = [&](const JobView& job) {
    // A job that has run under another policy keeps its service.
    const GpuTime attained = job.attained(snapshot.now);
    std::size_t to = 0;
    while (to < config.limits.size() && attained >= config.limits[to]) ++to;
    const Rank rank =
        config.gittins
            ? Rank{level_of(to, false), -config.table.rank(attained.gpu_seconds()), job.id.value()}
            : Rank{level_of(to, true), 0, queue.next_stamp()};
    return std::pair(rank, job.spec->requested);
  };
  queue.sync(snapshot, to_rank,
             // Also of a job that waited here: it may have run on borrowed GPUs (rubato/cells).
             [&](Gang& gang, const JobView& job) {
               gang.gpus = job.spec->requested;
               demote(gang, job, snapshot.now, state);
             });
  if (config.promote > 0) {
    const auto ended = [&](const auto& entry) {
      return snapshot.jobs.find(entry.first) == nullptr;
    };
    std::erase_if(state.forgiven, ended);
    std::erase_if(state.forgiven_time, ended);
    promote(snapshot, state);
  }

  auto outcome = queue.fill(snapshot, GangQueue::Blocking::skip);
  if (!config.gittins && config.running_first) {
    // Waiting jobs move after running ones, in stable order: preempted jobs come first among the
    // waiting, picked jobs come last among the running.
    for (std::size_t i = outcome.preempted.size(); i-- > 0;) {
      Gang& gang = outcome.preempted[i];
      if (gang.rank.level % 2 == 0) gang.rank = {gang.rank.level + 1, 0, queue.front_stamp()};
    }
    for (auto& picked : outcome.picked) {
      if (picked.gang.rank.level % 2 == 1) {
        const JobView& job = *snapshot.jobs.find(picked.gang.job);
        const double key = config.cheapest_victims ? -restart_loss_per_gpu(job) : 0;
        picked.gang.rank = {picked.gang.rank.level - 1, key, queue.next_stamp()};
      }
    }
  }
  queue.settle(outcome);

  Decision decision = to_decision(outcome);
  decision.again_at = next_demotion(outcome, snapshot, state);
  if (config.promote > 0) {
    for (const auto& gang : outcome.preempted)
      expect_promotion(*snapshot.jobs.find(gang.job), snapshot.now, state);
    for (const auto& picked : outcome.picked) {
      const auto expected = state.promotion_of.find(picked.gang.job);
      if (expected == state.promotion_of.end()) continue;
      state.promotions.erase({expected->second, picked.gang.job});
      state.promotion_of.erase(expected);
    }
    if (!state.promotions.empty()) {
      const Time starved = state.promotions.begin()->first;
      if (!decision.again_at || starved < *decision.again_at) decision.again_at = starved;
    }
  }
  return decision;
}

Json Tiresias::State::save() const {
  Json json = save_service();
  json["queue"] = queue.save();
  return json;
}

Result<std::string> Tiresias::State::save_text() const { return with_queue(save_service(), queue); }

Json Tiresias::State::save_service() const {
  Json json = {{"forgiven", Json::array()}, {"promotions", Json::array()}};
  for (const auto& [job, service] : forgiven) {
    json["forgiven"].push_back({job.value(), service.gpu_micros(), forgiven_time.at(job).count()});
  }
  for (const auto& [at, job] : promotions) {
    json["promotions"].push_back({at.time_since_epoch().count(), job.value()});
  }
  return json;
}

Result<Tiresias::State> Tiresias::State::load(const Json& json) {
  try {
    auto queue = GangQueue::load(json.at("queue"));
    if (!queue) return queue.error();
    State state;
    state.queue = std::move(*queue);
    for (const auto& row : json.at("forgiven")) {
      const JobId job(row.at(0).get<JobId::rep>());
      state.forgiven[job] = GpuTime::micros(row.at(1).get<std::int64_t>());
      state.forgiven_time[job] = Duration(row.at(2).get<std::int64_t>());
    }
    for (const auto& row : json.at("promotions")) {
      const Time at{Duration(row.at(0).get<std::int64_t>())};
      const JobId job(row.at(1).get<JobId::rep>());
      state.promotions.emplace(at, job);
      state.promotion_of[job] = at;
    }
    return state;
  } catch (const nlohmann::json::exception& problem) {
    return Error{fmt::format("saved Tiresias state: {}", problem.what())};
  }
}

std::vector<double> default_service_samples() {
  std::vector<double> samples;
  samples.reserve(1000);
  for (int i = 0; i < 1000; ++i) samples.push_back(60 * std::pow(1e8 / 60, (i + 0.5) / 1000));
  return samples;
}

namespace {

MadePolicy make_tiresias(const KeyValues& values, const PolicyInputs& inputs, bool gittins) {
  Tiresias::Config config;
  const auto queues = static_cast<std::size_t>(values.whole("queues"));
  auto limits = values.numbers("limits");
  if (limits.size() + 1 < queues) {
    return Error{
        fmt::format("queues={} needs {} limits, but limits has {}; give one limit less than queues",
                    queues, queues - 1, limits.size())};
  }
  limits.resize(queues - 1);
  for (const double limit : limits) config.limits.push_back(GpuTime::from_gpu_seconds(limit));
  config.promote = values.number("promote");
  config.gittins = gittins;
  if (!gittins) {
    config.running_first = values.text("order") == "running";
    config.cheapest_victims = wants_cheapest_victims(values);
  }
  if (gittins) {
    std::vector<double> samples = default_service_samples();
    if (const std::string& path = values.text("samples"); !path.empty()) {
      auto read = inputs.numbers(path);
      if (!read) return read.error();
      samples = std::move(*read);
    }
    config.table = GittinsTable(std::move(samples), values.number("quantum"));
  }
  return erase(Tiresias{std::move(config)});
}

PolicyEntry tiresias_row(std::string name, std::string summary, bool gittins) {
  PolicyEntry entry;
  entry.name = std::move(name);
  entry.paper = "Gu et al., NSDI'19";
  entry.summary = std::move(summary);
  entry.knows = gittins ? "GPUs asked for, attained service, past total services"
                        : "GPUs asked for, attained service";
  entry.keys = {
      whole_key("queues", 3, 1, 65, "number of queues"),
      ascending_key(
          "limits", "3250/7200",
          "GPU-seconds at which a job leaves each queue but the last; surplus ones are not used"),
      number_key("promote", 0, 0, 1e9,
                 "PromoteKnob: a job that waited this many times its executed "
                 "time returns to the first queue; 0 = off"),
  };
  if (!gittins) {
    entry.keys.push_back(
        choice_key("order", {"running", "entry"},
                   "inside a queue: running jobs before pending ones, or all as they entered it"));
    entry.keys.push_back(
        choice_key("victims", {"last", "cheapest"},
                   "which running jobs of a queue stop first, with order=running: those that "
                   "started last, or those with the least restart cost per GPU"));
  }
  if (gittins) {
    entry.keys.push_back(
        number_key("quantum", 3250, 1, 1e15, "service quantum of the index, GPU-seconds"));
    entry.keys.push_back(path_key("samples",
                                  "file with a column of total services in GPU-seconds; "
                                  "default: log-uniform from a minute to 10^8"));
  }
  entry.quick = true;
  entry.make = [gittins](const KeyValues& values, const PolicyInputs& inputs) -> MadePolicy {
    return make_tiresias(values, inputs, gittins);
  };
  return entry;
}

}  // namespace

std::vector<PolicyEntry> tiresias_rows() {
  return {
      tiresias_row("tiresias-las", "least attained service in discrete queues", false),
      tiresias_row("tiresias-gittins", "Gittins index in discrete queues", true),
  };
}

}  // namespace rubato::policy
