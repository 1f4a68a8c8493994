#include "rubato/daemon/what_if_world.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "rubato/loop/follow.h"

namespace rubato::daemon {
namespace {

constexpr Duration kReleases = std::chrono::milliseconds(300);  // if it was never seen
constexpr Duration kLoads = std::chrono::seconds(1);
// Speeds are constant, so a core learns nothing new from more reports on the same GPUs.
constexpr Duration kOftenFor = std::chrono::seconds(20);
constexpr Duration kOften = std::chrono::seconds(1);
constexpr Duration kSeldom = std::chrono::minutes(1);
// Of work that is done up to rounding.
constexpr double kNothing = 1e-9;

// Of the nearest count; of two as near, of the smaller one.
Duration nearest(const std::map<int, Duration>& by_gpus, int gpus, Duration otherwise) {
  const auto above = by_gpus.lower_bound(gpus);
  if (above == by_gpus.end()) return by_gpus.empty() ? otherwise : std::prev(above)->second;
  if (above == by_gpus.begin()) return above->second;
  const auto below = std::prev(above);
  return gpus - below->first <= above->first - gpus ? below->second : above->second;
}

}  // namespace

double JobTruth::rate(int gpus) const {
  if (rates.empty() || gpus <= 0) return 0;
  const auto above = rates.lower_bound(gpus);
  if (above != rates.end() && above->first == gpus) return above->second;
  if (above == rates.begin()) return above->second * gpus / above->first;
  const auto below = std::prev(above);
  auto low = below;
  auto high = above;
  if (above == rates.end()) {
    if (below == rates.begin()) return below->second * gpus / below->first;
    high = below;
    low = std::prev(below);
  }
  const double slope = (high->second - low->second) / (high->first - low->first);
  return std::max(below->second * 0.5, low->second + slope * (gpus - low->first));
}

WhatIfWorld::Job& WhatIfWorld::job(JobId id) {
  Job& job = jobs_[id];
  if (job.truth == nullptr) job.truth = truths_(id);
  return job;
}

void WhatIfWorld::adopt(Time now, const KnownJob& known, bool training, double done) {
  Job& found = job(known.job);
  found.done = done;
  found.at = now;
  found.generation = std::visit([](const auto& c) { return c.generation; }, known.last);
  const Allocation* to = gpus_of(known.last);
  found.gpus = found.holds = known.held;
  found.to = to != nullptr ? *to : Allocation();
  if (to == nullptr) {
    found.phase = Phase::stopping;
    found.until = now + found.truth->stops;
  } else if (training && known.held == *to) {
    train(now, found);
  } else {
    load(now, found);
  }
}

void WhatIfWorld::load(Time now, Job& job) {
  const int gpus = job.to.gpus();
  set_rate(now, job, 0);
  job.phase = Phase::loading;
  job.trains_at = now + nearest(job.truth->trains, gpus, kLoads);
  job.until = now + nearest(job.truth->runs, gpus, job.trains_at - now);
  job.changed = now;
  job.report_at = now;
}

void WhatIfWorld::set_rate(Time now, Job& job, double rate) {
  job.done = job.done_by(now);
  job.at = now;
  job.rate = rate;
}

void WhatIfWorld::train(Time now, Job& job) {
  if (job.trains_at == kNever) set_rate(now, job, job.truth->rate(job.gpus.gpus()));
  job.phase = Phase::training;
  job.until = kNever;
  job.changed = now;
  job.report_at = now;
}

void WhatIfWorld::carry_out(Time now, std::span<const Command> commands) {
  for (const Command& command : commands) {
    if (const auto* c = std::get_if<Start>(&command)) start(now, c->job, c->generation, c->gpus);
    if (const auto* c = std::get_if<Resize>(&command)) resize(now, c->job, c->generation, c->gpus);
    if (const auto* c = std::get_if<Stop>(&command)) stop(now, c->job, c->generation);
  }
}

void WhatIfWorld::start(Time now, JobId id, Generation generation, const Allocation& gpus) {
  Job& found = job(id);
  if (generation <= found.generation) return;
  found.generation = generation;
  found.gpus = found.to = found.holds = gpus;
  load(now, found);
}

void WhatIfWorld::resize(Time now, JobId id, Generation generation, const Allocation& gpus) {
  Job& found = job(id);
  if (generation <= found.generation) return;
  found.generation = generation;
  if (found.phase == Phase::away) {  // it failed while the command was on its way
    facts_.emplace_back(FailedFact{id, generation, true, "its run has ended"});
    return;
  }
  const bool grows = !minus(gpus, found.gpus).empty();
  found.to = gpus;
  found.holds.add(minus(gpus, found.holds));
  if (found.phase == Phase::loading) {
    const Allocation released = minus(found.holds, gpus);
    found.gpus = found.holds = gpus;
    if (!released.empty()) facts_.emplace_back(ReleasedFact{id, generation, released, false});
    return;
  }
  ++found.resizes;
  if (!found.truth->elastic) {
    set_rate(now, found, 0);
    found.phase = Phase::pausing;
    found.until = now + nearest(found.truth->trains, gpus.gpus(), kLoads);
  } else {
    const JobTruth& truth = *found.truth;
    found.phase = Phase::resizing;
    found.until =
        now + (grows ? nearest(truth.grows, gpus.gpus(), nearest(truth.trains, gpus.gpus(), kLoads))
                     : nearest(truth.shrinks, gpus.gpus(), kReleases));
  }
  found.changed = now;
}

void WhatIfWorld::stop(Time now, JobId id, Generation generation) {
  Job& found = job(id);
  if (generation <= found.generation) return;
  found.generation = generation;
  if (found.phase == Phase::away) {
    facts_.emplace_back(ReleasedFact{id, generation, Allocation(), true});
    return;
  }
  set_rate(now, found, 0);
  found.phase = Phase::stopping;
  found.trains_at = kNever;
  found.until = now + found.truth->stops;
}

void WhatIfWorld::change_node(Time now, NodeId node, NodeState state) {
  facts_.emplace_back(NodeChanged{node, state});
  if (state != NodeState::down) return;
  for (auto& [id, one] : jobs_) {
    if (one.phase == Phase::away || one.gpus.mask_on(node) == 0) continue;
    set_rate(now, one, 0);
    leave(one);
    facts_.emplace_back(FailedFact{id, one.generation, true, "its node is down"});
  }
}

std::pair<std::optional<double>, bool> WhatIfWorld::goal(const Job& job) {
  const auto& fails = job.truth->fails_at;
  const auto& amount = job.truth->amount;
  if (job.failures < fails.size() && (!amount || fails[job.failures] < *amount))
    return {fails[job.failures], true};
  return {amount, false};
}

Time WhatIfWorld::event_of(const Job& job) {
  if (job.phase == Phase::away) return kNever;
  Time next = std::min(job.until, job.trains_at);
  const auto [work, fails] = goal(job);
  if (job.rate > 0 && work)
    next = std::min(next, job.at + from_seconds(std::max(0.0, *work - job.done) / job.rate));
  return next;
}

Time WhatIfWorld::next() const {
  Time next = facts_.empty() ? kNever : kStart;
  for (const auto& [id, one] : jobs_) {
    next = std::min(next, event_of(one));
    next = std::min(next, one.report_at);
  }
  return next;
}

void WhatIfWorld::collect(Time now, std::vector<Fact>& facts) {
  for (;;) {
    JobId first;
    Time at = kNever;
    for (const auto& [id, one] : jobs_) {
      const Time next = event_of(one);
      if (next < at) {
        at = next;
        first = id;
      }
    }
    if (at > now) break;
    happen(at, first, jobs_[first]);
  }
  for (Fact& fact : facts_) facts.push_back(std::move(fact));
  facts_.clear();
}

void WhatIfWorld::happen(Time now, JobId id, Job& one) {
  const auto [work, fails] = goal(one);
  // A microsecond of work may be left, because times are whole microseconds.
  if (one.rate > 0 && work && one.done_by(now) + one.rate * 1e-6 >= *work * (1 - kNothing)) {
    set_rate(now, one, 0);
    one.done = *work;
    leave(one);
    if (fails) {
      ++one.failures;
      facts_.emplace_back(FailedFact{id, one.generation, false, one.truth->fails_why});
    } else {
      facts_.emplace_back(Finished{id, one.generation, std::nullopt});
    }
    return;
  }
  if (one.trains_at <= now) {
    one.trains_at = kNever;
    set_rate(now, one, one.truth->rate(one.gpus.gpus()));
    if (one.until > now) return;
  }
  switch (one.phase) {
    case Phase::loading:
      train(now, one);
      facts_.emplace_back(RunningFact{id, one.generation});
      break;
    case Phase::resizing:
      set_rate(now, one, 0);
      one.phase = Phase::pausing;
      one.until = now + one.truth->pause;
      break;
    case Phase::pausing: {
      const Allocation released = minus(one.holds, one.to);
      one.gpus = one.holds = one.to;
      one.pauses.push_back(seconds(one.truth->pause) + 1e-6 * one.resizes);
      if (one.pauses.size() > launch::kPausesKept) one.pauses.erase(one.pauses.begin());
      if (!released.empty()) facts_.emplace_back(ReleasedFact{id, one.generation, released, false});
      train(now, one);
      facts_.emplace_back(RunningFact{id, one.generation});
      break;
    }
    case Phase::stopping: {
      facts_.emplace_back(ReleasedFact{id, one.generation, one.holds, true});
      leave(one);
      break;
    }
    case Phase::training:
    case Phase::away:
      one.until = kNever;
      break;
  }
}

void WhatIfWorld::leave(Job& job) {
  job.phase = Phase::away;
  job.until = job.trains_at = job.report_at = kNever;
  job.gpus = job.to = job.holds = Allocation();
}

std::vector<JobStatus> WhatIfWorld::reports(Time now) {
  std::vector<JobStatus> statuses;
  for (auto& [id, one] : jobs_) {
    if (one.report_at > now) continue;
    one.report_at = now + (now - one.changed < kOftenFor ? kOften : kSeldom);
    statuses.push_back(status_of(now, id, one));
  }
  return statuses;
}

namespace {

// The step that the job measured last on this many GPUs, as it reported it.
void report_tuning(const Tuning& tuning, int gpus, JobProgress& progress) {
  progress.noise = tuning.noise;
  progress.tuning = JobTuning{tuning.initial, tuning.largest, tuning.largest_per_gpu, 0, 0};
  for (const StepMeasurement& step : tuning.steps) {
    if (step.place.gpus != gpus) continue;
    progress.per_gpu = step.batch.per_gpu;
    progress.accumulation = step.batch.accumulation;
    progress.batch = static_cast<int>(step.batch.global(gpus));
    progress.tuning->step_seconds = step.step_seconds;
    progress.tuning->pass_seconds = step.grad_seconds;
  }
}

}  // namespace

JobStatus WhatIfWorld::status_of(Time now, JobId id, const Job& one) const {
  JobStatus status;
  status.job = id;
  status.generation = one.generation;
  status.in_use = launch::slots_of(one.gpus);
  status.running = one.phase == Phase::training;
  status.resizes = one.resizes;
  status.pauses = one.pauses;
  JobProgress& progress = status.progress;
  progress.workers = one.rate > 0 ? one.gpus.gpus() : 0;
  const JobTruth& truth = *one.truth;
  const double done = one.done_by(now);
  if (truth.tuning) report_tuning(*truth.tuning, one.gpus.gpus(), progress);
  switch (truth.reports) {
    case JobTruth::Reports::nothing:
      break;
    case JobTruth::Reports::steps:
      progress.step = std::llround(done);
      progress.step_rate = one.rate;
      progress.samples = done * truth.samples_each;
      progress.rate = one.rate * truth.samples_each;
      break;
    case JobTruth::Reports::samples:
      progress.samples = done;
      progress.rate = one.rate;
      progress.step = std::llround(done);
      break;
    case JobTruth::Reports::epochs:
      progress.epoch = done;
      progress.samples = done * truth.samples_each;
      progress.rate = one.rate * truth.samples_each;
      break;
  }
  return status;
}

}  // namespace rubato::daemon
