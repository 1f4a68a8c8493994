#include "rubato/daemon/forecast.h"

#include <algorithm>
#include <vector>

#include "rubato/model/measured_speed.h"

namespace rubato::daemon {
namespace {

struct End {
  Time at = kNever;  // kNever: unknown
  int gpus = 0;
};

// How long the job would run. nullopt unless its speed, or that of its profile, was measured.
std::optional<Duration> takes(const DaemonState& state, const JobRecord* job, const JobView& view,
                              int gpus, Time now) {
  if (job == nullptr || !job->file.work) return std::nullopt;
  const Rates* known = &job->rates;
  if (known->by_gpus.empty()) known = state.profile(job->profile());
  if (known == nullptr || known->by_gpus.empty()) return std::nullopt;
  const WorkRate rate = MeasuredSpeed(known->by_gpus, view.spec->limits.max).on(GpuType(), gpus);
  if (!(rate > 0)) return std::nullopt;
  return from_seconds(view.progress.left(now) / rate);
}

bool later(const End& a, const End& b) { return a.at > b.at; }

// Of two jobs on the same GPUs only one takes them: the host of a guest, or the older one.
bool only_shares(const JobView& view, const Snapshot& snapshot) {
  const JobView* other = view.shares_with ? snapshot.jobs.find(*view.shares_with) : nullptr;
  if (other == nullptr) return false;
  if (view.spec->opportunistic != other->spec->opportunistic) return view.spec->opportunistic;
  return other->id < view.id;
}

}  // namespace

std::optional<Time> expected_end(const JobRecord& job, const JobView& view, Time now) {
  if (!job.file.work || view.held.empty() || !(view.progress.rate > 0)) return std::nullopt;
  if (job.rates.by_gpus.empty()) return std::nullopt;  // the rate is a guess
  return std::max(now, view.progress.at) +
         from_seconds(view.progress.left(now) / view.progress.rate);
}

namespace {

// `record_of(id)` gives the record of a job, or nullptr.
template <class RecordOf>
std::map<JobId, Outlook> forecast_of(const DaemonState& state, const Snapshot& snapshot, Time now,
                                     const RecordOf& record_of) {
  std::map<JobId, Outlook> outlooks;
  std::vector<End> ends;  // a heap, the first end at the top
  int free = snapshot.cluster.usable();
  for (const JobView& view : snapshot.jobs) {
    if (view.held.empty() && view.target.empty()) continue;
    if (only_shares(view, snapshot)) continue;
    const JobRecord* job = record_of(view.id);
    const auto end = job != nullptr ? expected_end(*job, view, now) : std::nullopt;
    const int gpus = std::max(view.held.gpus(), view.target.gpus());
    free -= gpus;
    ends.push_back({end.value_or(kNever), gpus});
  }
  std::make_heap(ends.begin(), ends.end(), later);
  Time at = now;
  bool known = true;
  int position = 0;
  for (const JobView& view : snapshot.jobs) {
    if (!view.held.empty() || !view.target.empty() || view.stays_away()) continue;
    Outlook& outlook = outlooks.emplace_hint(outlooks.end(), view.id, Outlook())->second;
    outlook.position = ++position;
    if (!known) continue;
    const int needs = state.least_gpus(*view.spec, *view.speed);
    while (free < needs && known) {
      if (ends.empty() || ends.front().at == kNever) {
        known = false;
        break;
      }
      std::pop_heap(ends.begin(), ends.end(), later);
      at = std::max(at, ends.back().at);
      free += ends.back().gpus;
      ends.pop_back();
    }
    if (!known) continue;
    outlook.start = at;
    free -= needs;
    const auto lasts = takes(state, record_of(view.id), view, needs, now);
    ends.push_back({lasts ? at + *lasts : kNever, needs});
    std::push_heap(ends.begin(), ends.end(), later);
  }
  return outlooks;
}

}  // namespace

std::map<JobId, Outlook> forecast(const DaemonState& state) {
  return forecast_of(state, state.now(), state.time(), [&](JobId id) { return state.job(id); });
}

std::map<JobId, Outlook> forecast(const DaemonState& state, const Snapshot& snapshot,
                                  const JobRecord& newcomer) {
  return forecast_of(state, snapshot, snapshot.now,
                     [&](JobId id) { return id == newcomer.id ? &newcomer : state.job(id); });
}

}  // namespace rubato::daemon
