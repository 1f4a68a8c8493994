#include "rubato/daemon/what_if_world.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "rubato/loop/follow.h"

namespace rubato::daemon {
namespace {

constexpr Duration kReleases = std::chrono::milliseconds(300);  // if it was never seen
constexpr Duration kLoads = std::chrono::seconds(1);
constexpr Duration kOftenFor = std::chrono::seconds(20);
constexpr Duration kOften = std::chrono::seconds(1);
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

Duration Delays::of(int n, int gpus, Duration otherwise) const {
  const auto then = times.find(n);
  if (then != times.end() && then->second.first == gpus) return then->second.second;
  return nearest(average, gpus, otherwise);
}

std::pair<double, double> JobTruth::pace_at(double done) const {
  constexpr double kEnd = std::numeric_limits<double>::infinity();
  const auto next = std::upper_bound(paces.begin(), paces.end(), done,
                                     [](double at, const Pace& pace) { return at < pace.from; });
  if (next != paces.begin() && done < std::prev(next)->to)
    return {std::prev(next)->share, std::prev(next)->to};
  return {1.0, next == paces.end() ? kEnd : next->from};
}

double JobTruth::rate(int gpus, double done) const { return rate(gpus) * pace_at(done).first; }

double JobTruth::done_after(int gpus, double done, double seconds) const {
  const double average = rate(gpus);
  if (!(average > 0)) return done;
  while (seconds > 0) {
    const auto [share, end] = pace_at(done);
    const double reached = done + average * share * seconds;
    if (reached < end) return reached;
    seconds -= (end - done) / (average * share);
    done = end;
  }
  return done;
}

double JobTruth::seconds_until(int gpus, double done, double goal) const {
  const double average = rate(gpus);
  if (!(average > 0)) return std::numeric_limits<double>::infinity();
  double seconds = 0;
  while (done < goal) {
    const auto [share, end] = pace_at(done);
    const double to = std::min(end, goal);
    seconds += (to - done) / (average * share);
    done = to;
  }
  return seconds;
}

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
  const double continued = low->second + slope * (gpus - low->first);
  return above == rates.end() ? std::max(below->second, continued) : continued;
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
    load(now, found, -1);
  }
}

// `start` counts the starts of the job; -1: it was started before.
void WhatIfWorld::load(Time now, Job& job, int start) {
  const int gpus = job.to.gpus();
  train_on(now, job, 0);
  job.phase = Phase::loading;
  job.trains_at = now + job.truth->trains.of(start, gpus, kLoads);
  job.until = now + job.truth->runs.of(start, gpus, job.trains_at - now);
  job.changed = now;
  job.report_at = now;
}

void WhatIfWorld::train_on(Time now, Job& job, int gpus) {
  job.done = job.done_by(now);
  job.at = now;
  job.trains_on = job.truth->rate(gpus) > 0 ? gpus : 0;
}

void WhatIfWorld::train(Time now, Job& job) {
  if (job.trains_at == kNever) train_on(now, job, job.gpus.gpus());
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
  load(now, found, found.starts++);
}

void WhatIfWorld::resize(Time now, JobId id, Generation generation, const Allocation& gpus) {
  Job& found = job(id);
  if (generation <= found.generation) return;
  found.generation = generation;
  if (found.phase == Phase::away) {  // it failed while the command was on its way
    facts_.emplace_back(FailedFact{id, generation, true, "its run has ended"});
    return;
  }
  const bool grows = !minus(gpus, found.to).empty();
  const int nth = grows ? found.grows++ : found.shrinks++;
  found.to = gpus;
  found.holds.add(minus(gpus, found.holds));
  if (found.phase == Phase::loading) {
    const Allocation released = minus(found.holds, gpus);
    found.gpus = found.holds = gpus;
    if (!released.empty()) facts_.emplace_back(ReleasedFact{id, generation, released, false});
    // The workers that train already may be all that it needs now.
    if (found.trains_on >= gpus.gpus()) found.until = now;
    return;
  }
  ++found.resizes;
  if (!found.truth->elastic) {
    train_on(now, found, 0);
    found.phase = Phase::pausing;
    found.until = now + nearest(found.truth->trains.average, gpus.gpus(), kLoads);
  } else {
    const JobTruth& truth = *found.truth;
    const int count = gpus.gpus();
    found.phase = Phase::resizing;
    found.until =
        now + (grows ? truth.grows.of(nth, count, nearest(truth.trains.average, count, kLoads))
                     : truth.shrinks.of(nth, count, kReleases));
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
  train_on(now, found, 0);
  found.phase = Phase::stopping;
  found.trains_at = kNever;
  found.until = now + found.truth->stops;
}

void WhatIfWorld::change_node(Time now, NodeId node, NodeState state) {
  facts_.emplace_back(NodeChanged{node, state});
  if (state != NodeState::down) return;
  for (auto& [id, one] : jobs_) {
    if (one.phase == Phase::away || one.gpus.mask_on(node) == 0) continue;
    train_on(now, one, 0);
    leave(one);
    facts_.emplace_back(FailedFact{id, one.generation, true, "its node is down"});
  }
}

void WhatIfWorld::add_node(const NodeAdded& node) {
  cluster_.add(node.added);
  facts_.emplace_back(node);
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
  if (job.trains_on > 0 && work)
    next = std::min(
        next, job.at + from_seconds(job.truth->seconds_until(job.trains_on, job.done, *work)));
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
  if (one.trains_on > 0 && work && one.done_by(now + Duration(1)) >= *work * (1 - kNothing)) {
    train_on(now, one, 0);
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
    const int all = one.gpus.gpus();
    const bool few = one.until > now && one.truth->few > 0;
    train_on(now, one, few ? std::min(one.truth->few, all) : all);
    if (one.until > now) return;
  }
  switch (one.phase) {
    case Phase::loading:
      train(now, one);
      facts_.emplace_back(RunningFact{id, one.generation});
      break;
    case Phase::resizing:
      train_on(now, one, 0);
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
    one.report_at = now + (now - one.changed < kOftenFor ? kOften : seldom_);
    statuses.push_back(status_of(now, id, one));
  }
  return statuses;
}

namespace {

// The step that the job measured last on this many GPUs, as it reported it.
void report_tuning(const Tuning& tuning, int gpus, JobProgress& progress) {
  progress.noise = tuning.noise;
  progress.tuning = JobTuning{tuning.initial, tuning.largest, tuning.largest_per_gpu, 0, 0};
  for (const auto& [step, type] : tuning.steps) {
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
  progress.workers = one.trains_on;
  const JobTruth& truth = *one.truth;
  const double done = one.done_by(now);
  const double rate = one.trains_on > 0 ? truth.rate(one.trains_on, done) : 0;
  if (truth.tuning) report_tuning(*truth.tuning, one.gpus.gpus(), progress);
  switch (truth.reports) {
    case JobTruth::Reports::nothing:
      break;
    case JobTruth::Reports::steps:
      progress.step = std::llround(done);
      progress.step_rate = rate;
      progress.samples = done * truth.samples_each;
      progress.rate = rate * truth.samples_each;
      break;
    case JobTruth::Reports::samples:
      progress.samples = done;
      progress.rate = rate;
      progress.step = std::llround(done);
      break;
    case JobTruth::Reports::epochs:
      progress.epoch = done;
      progress.samples = done * truth.samples_each;
      progress.rate = rate * truth.samples_each;
      break;
  }
  return status;
}

}  // namespace rubato::daemon
