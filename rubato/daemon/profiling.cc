#include "rubato/daemon/profiling.h"

#include <algorithm>
#include <fmt/format.h>
#include <optional>
#include <set>

#include "rubato/daemon/job_model.h"
#include "rubato/daemon/measuring.h"

namespace rubato::daemon {
namespace {

// The number of GPU counts at which a job is measured before it is promised anything.
constexpr std::size_t kCountsMeasured = 4;

// Takes over what `run` has measured for the job.
std::string why_unmeasured(const JobRecord* run) {
  const std::optional<JobEnding> ending = run == nullptr ? std::nullopt
                                          : run->ending  ? run->ending
                                                         : run->leaves_as;
  if (!ending || ending->how == Ending::completed) return "its speed could not be measured in time";
  return fmt::format("its speed could not be measured, because the measuring run ended: {}",
                     ending->why);
}

// The count to measure next: 0 if there is none left, nullopt while one is being measured.
std::optional<int> next_count(const JobRecord& run, const DaemonState& state) {
  const JobView* view = state.view(run.id);
  const int now = view->spec->limits.min;
  if (run.quota) return 0;
  if (!run.rates.by_gpus.contains(now)) return std::nullopt;
  const GpuLimits limits = limits_on(state.now().cluster, run.file.gpus);
  if (run.rates.by_gpus.size() >= kCountsMeasured) return 0;
  int next = now;
  while (next < 2 * now) {
    const auto above = limits.above(next);
    if (!above || *above > state.now().cluster.usable()) return 0;
    next = *above;
  }
  return next;
}

// The run may have been too short to measure anything.
void learn_from_end(Transaction& tx, const JobRecord& job) {
  const DaemonState& state = tx.state();
  const JobRecord* run = state.job(*job.measured_by);
  if (speed_known(job, limits_now(job, state))) return;
  if (run == nullptr || !run->gone() || !run->started) return;
  if (run->ending->how != Ending::completed) return;
  const double took = std::max(1.0, seconds(Duration{*run->ended - *run->started}));
  Rates rates;
  rates.by_gpus[limits_on(state.now().cluster, run->file.gpus).smallest()] = run->work / took;
  tx.put("measured", {{"job", job.id.value()},
                      {"progress", to_json(JobProgress())},
                      {"rates", write_record(rates).value()}});
}

void give_verdict(Transaction& tx, const JobRecord& job, std::optional<JobId> run) {
  const DaemonState& state = tx.state();
  const JobId id = job.id;
  learn_from_end(tx, job);
  Json verdict = {{"job", id.value()}};
  const bool measured = speed_known(job, limits_now(job, state));
  const std::string why = measured ? "" : why_unmeasured(state.job(*job.measured_by));
  if (!measured) verdict["why"] = why;
  tx.touch(id);
  tx.put("verdict", verdict);
  if (run)
    tx.end_job(*run, {Ending::cancelled, "has measured the speed", std::nullopt, std::nullopt});
  // A job that an earlier policy has admitted stays, and the policy sees an assumed speed.
  if (!measured && state.policy().admits() && !state.view(id)->accepted()) {
    return tx.end_job(id,
                      {Ending::refused,
                       fmt::format("{}, so nothing can be promised; submit it again when that can "
                                   "be done, or without a deadline",
                                   why),
                       std::nullopt, std::nullopt});
  }
  estimate(tx, id);
  tx.post(HoldChanged{id, false});
}

}  // namespace

void profile(Transaction& tx) {
  const DaemonState& state = tx.state();
  const std::set<JobId> waiting = state.to_be_measured();
  for (const JobId id : waiting) {
    const JobRecord* job = state.job(id);
    const JobRecord* run = state.job(*job->measured_by);
    const bool runs = run != nullptr && !run->gone() && !run->leaves_as;
    const bool late = job->verdict_by && tx.now() >= *job->verdict_by;
    if (runs && !late && state.policy().admits()) {
      const auto next = next_count(*run, state);
      if (!next) continue;
      if (*next > 0) {
        tx.post(Limited{run->id, {*next, *next, {}}});
        estimate(tx, run->id);
        continue;
      }
    }
    give_verdict(tx, *job, runs ? std::optional(run->id) : std::nullopt);
  }
}

}  // namespace rubato::daemon
