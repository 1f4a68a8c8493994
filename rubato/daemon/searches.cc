#include "rubato/daemon/searches.h"

#include <algorithm>
#include <fmt/format.h>
#include <utility>
#include <vector>

#include "rubato/base/text.h"

namespace rubato::daemon {
namespace {

// The newest that was reported. A program need not report a loss in each step.
StageMetric metric_in(const JobProgress& progress, const std::string& name) {
  if (name == "loss" && progress.loss) return progress.loss;
  const auto found = progress.metrics.find(name);
  return found == progress.metrics.end() ? std::nullopt : StageMetric(found->second);
}

double done_in(const JobProgress& progress, WorkUnit unit) {
  switch (unit) {
    case WorkUnit::steps:
      return static_cast<double>(progress.step);
    case WorkUnit::epochs:
      return progress.epoch;
    case WorkUnit::samples:
      return progress.samples;
  }
  return 0;
}

bool still_there(const JobRecord& job) { return !job.gone() && !job.leaves_as; }

// The daemon holds a job for other reasons, too: they pass by themselves.
bool held_by_owner(const DaemonState& state, const JobRecord& job) {
  const JobView* view = state.view(job.id);
  if (view == nullptr || !view->on_hold) return false;
  return !job.trial->waits && !job.paused_until() && !job.measured_by;
}

// A trial that its owner holds is not waited for.
TrialResults results_of(const DaemonState& state, const JobRecord& job) {
  return {job.trial->stages, !still_there(job) || held_by_owner(state, job)};
}

void put_stage(Transaction& tx, const JobRecord& job, int stage, const StageMetric& metric) {
  Json row = {{"job", job.id.value()}, {"stage", stage}, {"by", job.file.search->metric}};
  if (metric) row["metric"] = *metric;
  tx.touch(job.id);
  tx.put("trial", row);
}

int next_stage(const JobRecord& job) { return static_cast<int>(job.trial->stages.size()) + 1; }

struct Field {
  std::vector<JobId> ids;
  std::vector<TrialResults> results;
};

// A trial that failed, or that its owner cancelled, will never be the best: it takes no place.
bool dropped_out(const JobRecord& job) {
  if (still_there(job) || job.trial->stopped) return false;
  return !job.ending || job.ending->how != Ending::completed;
}

Field field_of(const DaemonState& state, JobId search) {
  Field field;
  for (const JobId id : state.trials(search)) {
    const JobRecord& job = *state.job(id);
    if (dropped_out(job)) continue;
    field.ids.push_back(id);
    field.results.push_back(results_of(state, job));
  }
  return field;
}

void hold(Transaction& tx, JobId id) {
  tx.put("trial", {{"job", id.value()}, {"waits", true}});
  tx.post(HoldChanged{id, true});
}

void stop(Transaction& tx, JobId id, const std::string& why) {
  tx.put("trial", {{"job", id.value()}, {"stopped", true}});
  tx.end_job(id, {Ending::cancelled, why, std::nullopt, std::nullopt});
}

// Whether a trial with nothing certain may be put on hold. A promise goes first.
bool can_wait(const DaemonState& state, const JobRecord& job) {
  const JobView* view = state.view(job.id);
  return job.file.search->wait && !job.deadline && view != nullptr && !view->on_hold;
}

void judge(Transaction& tx, JobId search, const std::set<JobId>& finished) {
  const DaemonState& state = tx.state();
  const Field field = field_of(state, search);
  if (field.ids.empty()) return;
  const auto places = standings(state.job(field.ids.front())->file.search->rule, field.results);
  for (std::size_t i = 0; i < field.ids.size(); ++i) {
    const JobId id = field.ids[i];
    const JobRecord& job = *state.job(id);
    if (!still_there(job)) continue;
    const TrialStanding& now = places[i];
    if (now.verdict == TrialVerdict::stops) {
      stop(tx, id, stopped_text(now, job.file.search->metric));
    } else if (now.verdict == TrialVerdict::goes_on && job.trial->waits) {
      tx.post(HoldChanged{id, false});
    } else if (now.verdict == TrialVerdict::waits && finished.contains(id) &&
               can_wait(state, job)) {
      hold(tx, id);
    }
  }
}

}  // namespace

Result<SearchTrial> trial_of(const DaemonState& state, const JobRecord& job) {
  const SearchTrial first{job.id, 1};
  const auto newest = state.newest_trial(job.user, job.file.search->name);
  if (!newest) return first;
  const JobRecord& last = *state.job(*newest);
  const auto& trials = state.trials(last.trial->search);
  const bool all_there = last.trial->number >= last.file.search->rule.trials;
  const bool going_on = std::any_of(trials.begin(), trials.end(),
                                    [&](JobId id) { return still_there(*state.job(id)); });
  if (all_there || !going_on) return first;
  if (*job.file.search != *last.file.search) {
    return Error{
        fmt::format("job {} is a trial of the search {} with other settings: use the same "
                    "settings for all of its trials, or another name",
                    last.id.value(), base::quoted(last.file.search->name))};
  }
  return SearchTrial{last.trial->search, last.trial->number + 1};
}

bool note_stages(Transaction& tx, const JobStatus& status) {
  const JobRecord* job = tx.state().job(status.job);
  if (job == nullptr || !job->trial || !still_there(*job)) return false;
  const SearchWish& search = *job->file.search;
  const double done = done_in(status.progress, search.stage.unit);
  const int first = next_stage(*job);
  int stage = first;
  for (; stage <= search.rule.stages(); ++stage) {
    if (done < search.stage.amount * search.rule.stage_end(stage)) break;
    put_stage(tx, *job, stage, metric_in(status.progress, search.metric));
  }
  return stage > first;
}

void note_last_stages(Transaction& tx, const JobRecord& job, const JobProgress& last) {
  if (!job.trial || !still_there(job)) return;
  const SearchWish& search = *job.file.search;
  for (int stage = next_stage(job); stage <= search.rule.stages(); ++stage)
    put_stage(tx, job, stage, metric_in(last, search.metric));
}

void judge_searches(Transaction& tx, const std::set<JobId>& searches,
                    const std::set<JobId>& finished) {
  for (const JobId search : searches) judge(tx, search, finished);
}

TrialStanding standing_of(const DaemonState& state, const JobRecord& job) {
  const Field field = field_of(state, job.trial->search);
  const auto place = std::find(field.ids.begin(), field.ids.end(), job.id);
  if (place == field.ids.end()) return {};
  return standings(job.file.search->rule,
                   field.results)[static_cast<std::size_t>(place - field.ids.begin())];
}

std::string trial_text(const JobRecord& job) {
  const SearchWish& search = *job.file.search;
  return fmt::format("trial {} of {} of the search {}", job.trial->number, search.rule.trials,
                     search.name);
}

}  // namespace rubato::daemon
