#include "rubato/sim/searches.h"

#include <algorithm>
#include <cmath>

#include "rubato/base/random.h"

namespace rubato::sim {
namespace {

constexpr std::uint64_t kTrialCurves = 0x5EA2C4;
constexpr double kReportNoise = 0.01;

}  // namespace

Searches::Searches(const Workload& workload, std::uint64_t seed, bool stopping)
    : workload_(workload), seed_(seed), stopping_(stopping), searches_(workload.searches) {
  if (searches_.empty()) return;
  trials_.resize(workload.jobs.size());
  progress_.resize(workload.jobs.size());
  for (std::size_t i = 0; i < workload.jobs.size(); ++i) {
    if (!workload.jobs[i].trial) continue;
    const JobId id(static_cast<JobId::rep>(i));
    trials_[i].final_loss = loss(id, 1, 0);
    searches_[trial(id).search].trials.push_back(id);
  }
}

// Stage 0: without noise.
double Searches::loss(JobId job, double share, int stage) const {
  const Random root = Random(seed_).split(kTrialCurves).split(job.value());
  Random random = root;
  const double b2 = random.uniform(0.05, 0.4);
  const double b1 = 1 / (1 - b2);
  const double b0 = b1 * random.log_uniform(5, 50);
  const double exact = 1 / (b0 * share + b1) + b2;
  if (stage == 0) return exact;
  return exact * (1 + kReportNoise * root.split(static_cast<std::uint64_t>(stage)).uniform(-1, 1));
}

// The share of its work at the end of the job's present stage; 1: there is no further stage.
double Searches::stage_share(JobId job) const {
  const SimTrial& own = trial(job);
  const int stage = static_cast<int>(trials_[job.index()].results.metrics.size()) + 1;
  if (stage > own.rule.stages()) return 1;
  return std::min(1.0, own.share * own.rule.stage_end(stage));
}

Work Searches::left_after_stage(JobId job) const {
  const SimJob& what = workload_.jobs[job.index()];
  return what.trial ? what.work * (1 - stage_share(job)) : 0;
}

void Searches::submitted(Time now, JobId job) {
  if (!workload_.jobs[job.index()].trial) return;
  SearchState& search = searches_[trial(job).search];
  if (search.submitted++ == 0) search.begun = search.stage_began = now;
  trials_[job.index()].submitted = true;
  search.unjudged = true;
}

void Searches::runs(JobId job, const Progress& progress) {
  if (!workload_.jobs[job.index()].trial || trials_[job.index()].results.over) return;
  progress_[job.index()] = progress;
  const double share = stage_share(job);
  if (share >= 1 || !(progress.rate > 0)) return stage_ends_.erase(job.value());
  const Work ahead = progress.work_left - left_after_stage(job);
  stage_ends_.set(job.value(), progress.at + from_seconds(std::max(ahead, 0.0) / progress.rate));
}

void Searches::rests(JobId job) {
  if (workload_.jobs[job.index()].trial) stage_ends_.erase(job.value());
}

void Searches::finished(Time now, JobId job, bool completed) {
  if (!workload_.jobs[job.index()].trial) return;
  TrialState& state = trials_[job.index()];
  SearchState& search = searches_[trial(job).search];
  if (!state.submitted) submitted(now, job);  // it was rejected at once
  stage_ends_.erase(job.value());
  state.results.over = true;
  state.completed = completed;
  // It counts in all further stages with its last loss.
  const auto stages = static_cast<std::size_t>(trial(job).rule.stages());
  if (completed && state.results.metrics.size() < stages)
    state.results.metrics.resize(stages, state.final_loss);
  search.ended = now;
  search.unjudged = true;
}

std::optional<Time> Searches::next_fact() const {
  if (stage_ends_.empty()) return std::nullopt;
  return stage_ends_.top().key;
}

void Searches::finish_stage(JobId job) {
  TrialState& state = trials_[job.index()];
  const double share = stage_share(job);
  state.results.metrics.emplace_back(
      loss(job, share, static_cast<int>(state.results.metrics.size()) + 1));
  state.finished_now = true;
  searches_[trial(job).search].unjudged = true;
  stage_ends_.erase(job.value());
  runs(job, progress_[job.index()]);
}

void Searches::collect(Time now, std::vector<Event>& facts) {
  while (!stage_ends_.empty() && stage_ends_.top().key <= now)
    finish_stage(JobId(stage_ends_.top().member));
  for (SearchState& search : searches_) {
    if (!search.unjudged) continue;
    search.unjudged = false;
    if (stopping_) judge(now, search, facts);
    complete_stages(now, search);
  }
}

void Searches::judge(Time now, SearchState& search, std::vector<Event>& facts) {
  std::vector<TrialResults> there;
  for (std::size_t i = 0; i < search.submitted; ++i)
    there.push_back(trials_[search.trials[i].index()].results);
  if (there.empty()) return;
  const auto places = standings(trial(search.trials.front()).rule, there);
  for (std::size_t i = 0; i < there.size(); ++i) {
    const JobId id = search.trials[i];
    TrialState& state = trials_[id.index()];
    const bool finished_now = std::exchange(state.finished_now, false);
    if (state.results.over) continue;
    const TrialStanding& place = places[i];
    if (place.verdict == TrialVerdict::stops) {
      state.results.over = true;
      stage_ends_.erase(id.value());
      search.ended = now;
      ++stopped_;
      facts.emplace_back(Cancelled{id});
    } else if (place.verdict == TrialVerdict::goes_on && state.held) {
      state.held = false;
      facts.emplace_back(HoldChanged{id, false});
    } else if (place.verdict == TrialVerdict::waits && finished_now && trial(id).wait &&
               !workload_.jobs[id.index()].spec->deadline) {
      state.held = true;
      facts.emplace_back(HoldChanged{id, true});
    }
  }
}

void Searches::complete_stages(Time now, SearchState& search) {
  if (search.submitted < search.trials.size()) return;
  const int last = trial(search.trials.front()).rule.stages();
  for (; search.stage <= last; ++search.stage) {
    const auto needed = static_cast<std::size_t>(search.stage);
    const bool open = std::any_of(search.trials.begin(), search.trials.end(), [&](JobId id) {
      const TrialResults& results = trials_[id.index()].results;
      return !results.over && results.metrics.size() < needed;
    });
    if (open) return;
    ++stages_;
    stage_seconds_ += seconds(now - search.stage_began);
    search.stage_began = now;
  }
}

SearchFigures Searches::figures() const {
  SearchFigures figures;
  figures.stopped = stopped_;
  double time = 0, regret = 0;
  for (const SearchState& search : searches_) {
    double best = INFINITY, found = INFINITY;
    for (const JobId id : search.trials) {
      const TrialState& state = trials_[id.index()];
      best = std::min(best, state.final_loss);
      if (state.completed) found = std::min(found, state.final_loss);
    }
    if (!std::isfinite(found)) continue;
    ++figures.searches;
    time += seconds(search.ended - search.begun);
    regret += found - best;
  }
  if (figures.searches > 0) {
    figures.avg_s = time / static_cast<double>(figures.searches);
    figures.regret = regret / static_cast<double>(figures.searches);
  }
  if (stages_ > 0) figures.avg_stage_s = stage_seconds_ / static_cast<double>(stages_);
  return figures;
}

}  // namespace rubato::sim
