#include "rubato/policy/edf.h"

#include <algorithm>
#include <fmt/format.h>
#include <limits>

namespace rubato::policy {
namespace {

constexpr int kLargestAsked = 64;

Time deadline_or_never(const JobView& job) { return job.spec->deadline.value_or(kNever); }

// A job in a simulated schedule.
struct ScheduledJob {
  const JobView* job = nullptr;
  int gpus = 0;
  GpuType type;
  Progress progress;

  [[nodiscard]] Time end() const {
    return progress.at + from_seconds(progress.work_left / progress.rate);
  }
  void resize(int to, GpuType of, Time now) {
    if (to == gpus && (of == type || to == 0)) return;
    gpus = to;
    type = of;
    const WorkRate rate = to == 0 ? 0 : job->speed->on(GpuType(), to);
    progress = {progress.left(now), to == 0 ? now : now + job->spec->restart_cost, rate};
  }
};

struct Outlook {
  std::optional<Time> end;  // of the candidate; nullopt: cannot run on the GPUs that are up
  std::set<JobId> late;     // others that miss their deadline
};

// Simulates the jobs to the end, in this order of priority, without arrivals.
template <class Size>
Outlook run_ahead(const JobView* candidate, const std::vector<const JobView*>& order,
                  const Snapshot& snapshot, const Size& size) {
  std::vector<ScheduledJob> left;
  left.reserve(order.size());
  for (const JobView* job : order)
    left.push_back({job, job->target.gpus(), job->target.type(), job->progress});
  Outlook outlook;
  Time now = snapshot.now;
  while (!left.empty()) {
    Room room(snapshot.cluster);
    Time next = kNever;
    for (auto& planned : left) {
      const SpeedModel& speed = *planned.job->speed;
      int gpus = size(*planned.job, room.largest());
      if (gpus > 0 && !room.fits(gpus, speed)) gpus = 0;
      // As in GangQueue::fill: a running job stays on its type if there is room.
      const auto kept = planned.gpus > 0 ? std::optional(planned.type) : std::nullopt;
      planned.resize(gpus, gpus > 0 ? room.take(gpus, speed, kept) : GpuType(), now);
      if (gpus > 0) next = std::min(next, std::max(now, planned.end()));
    }
    for (const auto& planned : left) {
      const bool ends = planned.gpus > 0 && planned.end() <= next;
      if (planned.job == candidate) {
        if (ends) outlook.end = next;
      } else if (next == kNever || (ends && next > deadline_or_never(*planned.job))) {
        outlook.late.insert(planned.job->id);
      }
    }
    if (next == kNever) break;
    now = next;
    std::erase_if(left, [&](const ScheduledJob& p) { return p.gpus > 0 && p.end() <= now; });
  }
  return outlook;
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
  if (chosen > 0) return chosen;
  const int least = least_gpus(*job.spec, *job.speed);  // no measured count is within all limits
  return least <= room ? least : 0;
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
  // After jobs with the same deadline, because ties go to the earlier submission.
  const auto place = [&](Time deadline) {
    return std::upper_bound(
        others.begin(), others.end(), deadline,
        [](Time d, const JobView* other) { return d < deadline_or_never(*other); });
  };
  // Jobs that are late even without this job, because of a failure, are no reason to refuse it.
  std::optional<std::set<JobId>> late_anyway;
  const auto harms = [&](const std::set<JobId>& late) {
    if (late.empty()) return false;
    if (!late_anyway) late_anyway = run_ahead(nullptr, others, snapshot, sized).late;
    return !std::includes(late_anyway->begin(), late_anyway->end(), late.begin(), late.end());
  };
  Time deadline = *job.spec->deadline;
  for (;;) {
    const auto at = place(deadline);
    std::vector<const JobView*> order(others.begin(), at);
    order.push_back(&job);
    order.insert(order.end(), at, others.end());
    const auto [end, late] = run_ahead(&job, order, snapshot, sized);
    const bool possible = end && !harms(late);
    if (possible && *end <= deadline) break;
    // Would it be admitted with a later deadline that still keeps its place in the order?
    if (possible && (at == others.end() || *end < deadline_or_never(**at))) {
      deadline = *end;
      break;
    }
    if (at == others.end())
      return Reject{job.id, "cannot be finished with the GPUs that are up", std::nullopt};
    deadline = deadline_or_never(**at);
  }
  if (deadline == *job.spec->deadline) {
    state.due.emplace(deadline, job.id);
    return std::nullopt;
  }
  return Reject{job.id, "no schedule keeps this deadline and all those admitted before", deadline};
}

bool Edf::keeps_deadline(JobId job, const State& state) const {
  return config.admission && std::any_of(state.due.begin(), state.due.end(),
                                         [&](const auto& entry) { return entry.second == job; });
}

// A job that was admitted stays admitted if its deadline moves.
void Edf::follow_deadline(const JobView& job, State& state) const {
  if (!keeps_deadline(job.id, state)) return;
  std::erase_if(state.due, [&](const auto& entry) { return entry.second == job.id; });
  if (job.spec->deadline) state.due.emplace(*job.spec->deadline, job.id);
}

// A deadline that cannot be met must not count: it would make other jobs late for nothing.
double Edf::key_of(const JobView& job, const State& state) const {
  const bool counts = !config.admission || keeps_deadline(job.id, state);
  if (job.spec->deadline && counts)
    return static_cast<double>(job.spec->deadline->time_since_epoch().count());
  using Limits = std::numeric_limits<double>;
  return job.spec->deadline || job.spec->goes_first ? Limits::max() : Limits::infinity();
}

Decision Edf::decide(const Snapshot& snapshot, State& state) const {
  Decision decision;
  GangQueue& queue = state.queue;
  queue.rerank_running(snapshot, [](Gang& /*gang*/, const JobView& /*job*/) {});
  const auto to_rank = [&](const JobView& job) -> std::optional<std::pair<Rank, int>> {
    if (config.admission && !keeps_deadline(job.id, state)) {
      auto reject = judge(job, snapshot, state);
      if (reject && !job.accepted()) {
        decision.reject.push_back(std::move(*reject));
        return std::nullopt;
      }
    }
    return std::pair(Rank{0, key_of(job, state), queue.next_stamp()},
                     least_gpus(*job.spec, *job.speed));
  };
  queue.sync(snapshot, to_rank, [&](Gang& gang, const JobView& job) {
    follow_deadline(job, state);
    gang.rank.key = key_of(job, state);
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
  Json json = save_due();
  json["queue"] = queue.save();
  return json;
}

Json Edf::State::save_due() const {
  Json json = {{"due", Json::array()}};
  for (const auto& [deadline, job] : due) {
    json["due"].push_back({deadline.time_since_epoch().count(), job.value()});
  }
  return json;
}

Result<std::string> Edf::State::save_text() const { return with_queue(save_due(), queue); }

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

namespace {

PolicyEntry edf_row(std::string name, std::string summary, bool admission) {
  PolicyEntry entry;
  entry.name = std::move(name);
  entry.group = "deadlines";
  entry.paper = "baseline of ElasticFlow (Gu et al., ASPLOS'23)";
  entry.summary = std::move(summary);
  entry.knows = admission ? "deadline, work left, speed curve" : "deadline, speed curve if any";
  entry.admits = admission;
  entry.keys = {choice_key("count", {"largest", "peak", "trace"},
                           "GPUs of a job with a curve: the largest measured count that fits, the "
                           "same up to the curve's peak, or what the trace asks for")};
  entry.make = [admission](const KeyValues& values, const PolicyInputs&) -> MadePolicy {
    const std::string& count = values.text("count");
    const auto sizing = count == "largest" ? Edf::Sizing::largest
                        : count == "peak"  ? Edf::Sizing::peak
                                           : Edf::Sizing::trace;
    return erase(Edf{{sizing, admission}});
  };
  return entry;
}

}  // namespace

std::vector<PolicyEntry> edf_rows() {
  return {
      edf_row("edf", "earliest deadline first, preemptive; sizes jobs that have a curve", false),
      edf_row("edf-admission", "earliest deadline first; refuses what would break a deadline",
              true),
  };
}

}  // namespace rubato::policy
