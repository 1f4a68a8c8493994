#include "rubato/policy/edf.h"

#include <algorithm>
#include <fmt/format.h>
#include <limits>

namespace rubato {
namespace {

constexpr int kLargestAsked = 64;

Time deadline_of(const JobView& job) { return job.spec->deadline.value_or(kNever); }

double key_of(const JobView& job) {
  if (!job.spec->deadline) return std::numeric_limits<double>::infinity();
  return static_cast<double>(job.spec->deadline->time_since_epoch().count());
}

// A job in a schedule that is run ahead of time.
struct Planned {
  const JobView* job = nullptr;
  int gpus = 0;
  Progress progress;

  [[nodiscard]] Time end() const {
    return progress.at + from_seconds(progress.work_left / progress.rate);
  }
  void resize(int to, Time now) {
    if (to == gpus) return;
    gpus = to;
    const WorkRate rate = to == 0 ? 0 : job->speed->on(GpuType(), to);
    progress = {progress.left(now), to == 0 ? now : now + job->spec->restart_cost, rate};
  }
};

// Runs the jobs, in this order of priority and with no arrivals, to the end. nullopt if one of them
// other than `candidate` misses its deadline; else when the candidate ends.
template <class Size>
std::optional<Time> end_of(const JobView& candidate, const std::vector<const JobView*>& order,
                           const Snapshot& snapshot, const Size& size) {
  std::vector<Planned> left;
  left.reserve(order.size());
  for (const JobView* job : order) left.push_back({job, job->target.gpus(), job->progress});
  std::optional<Time> candidate_end;
  Time now = snapshot.now;
  while (!left.empty()) {
    Room room(snapshot.cluster);
    Time next = kNever;
    for (auto& planned : left) {
      const int gpus = size(*planned.job, room.largest());
      if (gpus > 0) room.take(gpus, std::nullopt);
      planned.resize(gpus, now);
      if (gpus > 0) next = std::min(next, std::max(now, planned.end()));
    }
    if (next == kNever) return std::nullopt;
    now = next;
    for (const auto& planned : left) {
      if (planned.gpus == 0 || planned.end() > now) continue;
      if (planned.job == &candidate) candidate_end = now;
      if (planned.job != &candidate && now > deadline_of(*planned.job)) return std::nullopt;
    }
    std::erase_if(left, [&](const Planned& p) { return p.gpus > 0 && p.end() <= now; });
  }
  return candidate_end;
}

}  // namespace

bool Edf::sizes_itself(const SpeedModel& speed) const {
  return config.count != Sizing::trace && !speed.measured().empty();
}

int Edf::size(const JobView& job, int cluster, int room) const {
  if (!sizes_itself(*job.speed)) return job.spec->requested <= room ? job.spec->requested : 0;
  const int batch = job.spec->batch > 0 ? job.spec->batch : kLargestAsked;
  const int most = std::min({kLargestAsked, batch, cluster, room});
  int chosen = 0;
  double best_rate = 0;
  for (const int gpus : job.speed->measured()) {
    const WorkRate rate = job.speed->on(GpuType(), gpus);
    if (gpus > most || !job.spec->limits.legal(gpus)) continue;
    if (config.count == Sizing::peak && rate <= best_rate) continue;
    best_rate = std::max(best_rate, rate);
    chosen = gpus;
  }
  return chosen;
}

int Edf::least_gpus(const JobSpec& spec, const SpeedModel& speed) const {
  if (!sizes_itself(speed)) return spec.requested;
  const auto measured = speed.measured();
  const auto least = std::find_if(measured.begin(), measured.end(),
                                  [&](int gpus) { return spec.limits.legal(gpus); });
  return least == measured.end() ? spec.requested : *least;
}

std::optional<Reject> Edf::judge(const JobView& job, const Snapshot& snapshot, State& state) const {
  if (!job.spec->deadline) return std::nullopt;
  std::erase_if(state.due,
                [&](const auto& entry) { return snapshot.jobs.find(entry.second) == nullptr; });
  std::vector<const JobView*> others;
  for (const auto& [deadline, id] : state.due) others.push_back(snapshot.jobs.find(id));
  const auto sized = [&](const JobView& j, int room) {
    return size(j, snapshot.cluster.usable(), room);
  };
  // Behind jobs that are due at the same time, as ties go to the earlier submission.
  const auto place = [&](Time deadline) {
    return std::upper_bound(others.begin(), others.end(), deadline,
                            [](Time d, const JobView* other) { return d < deadline_of(*other); });
  };
  Time deadline = *job.spec->deadline;
  for (auto at = place(deadline);; ++at) {
    std::vector<const JobView*> order(others.begin(), at);
    order.push_back(&job);
    order.insert(order.end(), at, others.end());
    const auto end = end_of(job, order, snapshot, sized);
    if (end && *end <= deadline) break;
    // Would it be admitted with a later deadline that still keeps its place in the order?
    if (end && (at == others.end() || *end < deadline_of(**at))) {
      deadline = *end;
      break;
    }
    if (at == others.end())
      return Reject{job.id, "cannot be finished with the GPUs that are up", std::nullopt};
    deadline = deadline_of(**at);
  }
  if (deadline == *job.spec->deadline) {
    state.due.emplace(deadline, job.id);
    return std::nullopt;
  }
  return Reject{job.id, "no schedule keeps this deadline and all those admitted before", deadline};
}

Decision Edf::decide(const Snapshot& snapshot, State& state) const {
  Decision decision;
  GangQueue& queue = state.queue;
  queue.rerank_running(snapshot, [](Gang& /*gang*/, const JobView& /*job*/) {});
  queue.sync(snapshot, [&](const JobView& job) -> std::optional<std::pair<Rank, int>> {
    if (config.admission) {
      if (auto reject = judge(job, snapshot, state)) {
        decision.reject.push_back(std::move(*reject));
        return std::nullopt;
      }
    }
    return std::pair(Rank{0, key_of(job), queue.next_stamp()}, least_gpus(*job.spec, *job.speed));
  });
  const auto outcome =
      queue.fill(snapshot, GangQueue::Blocking::skip, [&](const Gang& gang, int room) {
        return size(*snapshot.jobs.find(gang.job), snapshot.cluster.usable(), room);
      });
  queue.settle(outcome);
  decision.run = to_decision(outcome).run;
  return decision;
}

Json Edf::State::save() const {
  Json json = {{"queue", queue.save()}, {"due", Json::array()}};
  for (const auto& [deadline, job] : due) {
    json["due"].push_back({deadline.time_since_epoch().count(), job.value()});
  }
  return json;
}

Result<Edf::State> Edf::State::load(const Json& json) {
  try {
    auto queue = GangQueue::load(json.at("queue"));
    if (!queue) return queue.error();
    State state{std::move(*queue), {}};
    for (const auto& row : json.at("due")) {
      state.due.emplace(Time(Duration(row.at(0).get<std::int64_t>())),
                        JobId(row.at(1).get<JobId::rep>()));
    }
    return state;
  } catch (const nlohmann::json::exception& problem) {
    return Error{fmt::format("saved EDF state: {}", problem.what())};
  }
}

}  // namespace rubato
