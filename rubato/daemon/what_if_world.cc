#include "rubato/daemon/what_if_world.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <utility>

#include "rubato/loop/follow.h"

namespace rubato::daemon {
namespace {

constexpr Duration kReleases = std::chrono::milliseconds(300);  // if it was never seen
constexpr Duration kLoads = std::chrono::seconds(1);
constexpr Duration kOftenFor = std::chrono::seconds(20);
constexpr Duration kOften = std::chrono::seconds(1);
constexpr Duration kSpeedOf = std::chrono::seconds(5);  // the last seconds (node/progress_meter.cc)
constexpr Duration kFirst = std::chrono::milliseconds(50);
// Of work that is done up to rounding.
constexpr double kNothing = 1e-9;
// A job does again what it did at another point of its work, if that is no farther away than this
// share of the work.
constexpr double kSamePoint = 0.1;

// Of the nearest count; of two as near, of the smaller one.
Duration nearest(const Delays& by_gpus, int gpus, Duration otherwise) {
  const auto above = by_gpus.lower_bound(gpus);
  if (above == by_gpus.end()) return by_gpus.empty() ? otherwise : std::prev(above)->second;
  if (above == by_gpus.begin()) return above->second;
  const auto below = std::prev(above);
  return gpus - below->first <= above->first - gpus ? below->second : above->second;
}

// As many GPUs of `all` as there are in `like`: the same ones as far as possible.
Allocation some_of(const Allocation& all, const Allocation& like) {
  Allocation some = common(all, like);
  const Allocation others = minus(all, like);
  for (const Slice& slice : others.slices()) {
    for (std::uint64_t rest = slice.mask; rest != 0 && some.gpus() < like.gpus(); rest &= rest - 1)
      some.add({slice.node, rest & ~(rest - 1)});
  }
  return some;
}

}  // namespace

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

double WhatIfWorld::Job::done_by(Time now) const {
  if (follows != nullptr) return done_then + follows->work_by(now - follows_since);
  return now > at && trains_on > 0 ? truth->done_after(trains_on, done, seconds(now - at)) : done;
}

// Before its first step there is nothing to measure.
void WhatIfWorld::Job::mark(Time now) {
  const double work = done_by(now);
  if (marks.size() == 1 && !(work > marks.front().second)) marks.pop_back();
  marks.emplace_back(now, work);
  while (marks.size() > 2 && marks[1].first <= now - kSpeedOf) marks.pop_front();
}

double WhatIfWorld::Job::speed(Time now) const {
  if (trains_on == 0 || marks.empty()) return 0;
  auto [from, work] = marks.front();
  if (const Time begin = now - kSpeedOf; marks.size() > 1 && from < begin) {
    const auto& [next, then] = marks[1];
    work += (then - work) * seconds(begin - from) / seconds(next - from);
    from = begin;
  }
  if (from < now) return (done_by(now) - work) / seconds(now - from);
  return truth->rate(trains_on, done);
}

Time WhatIfWorld::Job::time_of(double work) const {
  if (follows != nullptr) {
    const auto after = follows->time_of(work - done_then);
    return after ? follows_since + *after : kNever;
  }
  return trains_on > 0 ? at + from_seconds(truth->seconds_until(trains_on, done, work)) : kNever;
}

WhatIfWorld::Job& WhatIfWorld::job(JobId id) {
  Job& job = jobs_[id];
  if (job.truth == nullptr) {
    job.truth = truths_(id);
    job.record = Record(&job.truth->episodes);
  }
  return job;
}

bool WhatIfWorld::follow(Time now, Job& job, CommandKind told, int gpus) const {
  follow_no_more(now, job);
  const double tolerance = kSamePoint * job.truth->amount.value_or(job.done);
  job.follows = job.record.next(told, gpus, job.done, tolerance);
  job.follows_since = now;
  job.done_then = job.done;
  job.releases = 0;
  plan_release(job);
  if (job.follows != nullptr) plan_report(now, job);
  return job.follows != nullptr;
}

void WhatIfWorld::follow_no_more(Time now, Job& job) {
  job.done = job.done_by(now);
  job.mark(now);
  job.at = now;
  job.follows = nullptr;
}

Duration WhatIfWorld::takes(const Job& job, Duration average) {
  if (job.follows == nullptr) return average;
  const Episode& then = *job.follows;
  // If another command came first, it would have taken longer.
  return then.running ? *then.running - then.from : std::max(average, 2 * then.length());
}

void WhatIfWorld::adopt(Time now, const KnownJob& known, bool training, double done) {
  Job& found = job(known.job);
  found.done = done;
  found.at = now;
  found.follows = found.record.at(now);
  if (found.follows != nullptr) {
    found.follows_since = found.follows->from;
    found.done_then = found.follows->done;
  }
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
  train_on(now, job, 0);
  job.phase = Phase::loading;
  job.trains_at = now + nearest(job.truth->trains, gpus, kLoads);
  const Time told = job.follows != nullptr ? job.follows_since : now;
  job.until = std::max(now, told + takes(job, nearest(job.truth->runs, gpus, job.trains_at - now)));
  job.changed = now;
  plan_report(now, job);
}

void WhatIfWorld::train_on(Time now, Job& job, int gpus) {
  job.done = job.done_by(now);
  job.mark(now);
  job.at = now;
  job.trains_on = job.truth->rate(gpus) > 0 ? gpus : 0;
}

void WhatIfWorld::train(Time now, Job& job) {
  // More workers than it then had by the end of what is known.
  if (job.follows != nullptr && !job.follows->running) follow_no_more(now, job);
  if (job.trains_at == kNever) train_on(now, job, job.gpus.gpus());
  job.phase = Phase::training;
  job.until = kNever;
  job.changed = now;
  if (job.follows == nullptr) job.report_at = now;
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
  follow(now, found, CommandKind::start, gpus.gpus());
  found.reported = {};
  found.marks.clear();
  found.heard = false;
  load(now, found);
  if (found.follows == nullptr) found.report_at = now + kFirst;
}

void WhatIfWorld::resize(Time now, JobId id, Generation generation, const Allocation& gpus) {
  Job& found = job(id);
  if (generation <= found.generation) return;
  found.generation = generation;
  if (found.phase == Phase::ending) {
    found.to = gpus;
    found.holds.add(minus(gpus, found.holds));
    return;
  }
  if (found.phase == Phase::away) {  // it failed while the command was on its way
    facts_.emplace_back(FailedFact{id, generation, true, "its run has ended"});
    return;
  }
  const bool grows = !minus(gpus, found.to).empty();
  const JobTruth& truth = *found.truth;
  const int count = gpus.gpus();
  const bool again = follow(now, found, grows ? CommandKind::grow : CommandKind::shrink, count);
  found.to = gpus;
  found.holds.add(minus(gpus, found.holds));
  if (found.phase == Phase::loading) {
    found.gpus = gpus;
    if (again) {
      found.until = now + takes(found, found.until - now);
      return;
    }
    release(id, found);
    // The workers that train already may be all that it needs now.
    if (found.trains_on >= count) found.until = now;
    return;
  }
  ++found.resizes;
  const Duration starts = nearest(truth.trains, count, kLoads);
  if (!truth.elastic) {
    train_on(now, found, 0);
    found.phase = Phase::pausing;
    found.until = now + takes(found, starts);
  } else {
    const Duration average =
        grows ? nearest(truth.grows, count, starts) : nearest(truth.shrinks, count, kReleases);
    const Duration whole = takes(found, average + truth.pause);
    found.phase = Phase::resizing;
    found.pause = std::min(truth.pause, whole);
    found.until = now + (whole - found.pause);
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
  if (found.phase == Phase::ending) return;
  const bool trained = found.phase != Phase::loading || found.trains_on > 0;
  train_on(now, found, 0);
  follow(now, found, CommandKind::stop, 0);
  found.phase = Phase::stopping;
  found.trains_at = kNever;
  const Duration takes = trained ? found.truth->stops : found.truth->halts;
  found.until = found.releases_at != kNever ? found.releases_at : now + takes;
  found.releases_at = kNever;
}

void WhatIfWorld::change_node(Time now, NodeId node, NodeState state) {
  facts_.emplace_back(NodeChanged{node, state});
  if (state != NodeState::down) return;
  for (auto& [id, one] : jobs_) {
    if (one.phase == Phase::away || one.gpus.mask_on(node) == 0) continue;
    train_on(now, one, 0);
    leave(now, one);
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
  Time next = std::min({job.until, job.trains_at, job.releases_at});
  if (job.follows != nullptr) next = std::min(next, job.follows_until());
  if (const auto work = goal(job).first) next = std::min(next, job.time_of(*work));
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

bool WhatIfWorld::tells(Time now, const Job& job) {
  if (job.phase == Phase::away) return false;
  if (job.releases_at <= now) return true;
  const bool pauses = job.phase == Phase::resizing && job.pause > Duration(0);
  if (job.until <= now && !pauses) return true;
  const auto [work, fails] = goal(job);
  return fails && job.time_of(*work) <= now;
}

bool WhatIfWorld::advance(Time now) {
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
  return !facts_.empty();
}

void WhatIfWorld::collect(Time now, std::vector<Fact>& facts) {
  static_cast<void>(advance(now));
  for (Fact& fact : facts_) facts.push_back(std::move(fact));
  facts_.clear();
}

void WhatIfWorld::happen(Time now, JobId id, Job& one) {
  const auto [work, fails] = goal(one);
  // A microsecond of work may be left, because times are whole microseconds.
  const bool trains = one.follows != nullptr || one.trains_on > 0;
  if (trains && work && one.done_by(now + Duration(1)) >= *work * (1 - kNothing)) {
    train_on(now, one, 0);
    if (fails) {
      leave(now, one);
      ++one.failures;
      facts_.emplace_back(FailedFact{id, one.generation, false, one.truth->fails_why});
    } else {
      follow_no_more(now, one);
      one.phase = Phase::ending;
      one.until = now + one.truth->ends;
      one.trains_at = one.releases_at = one.report_at = kNever;
    }
    one.done = *work;
    return;
  }
  if (one.follows != nullptr && one.follows_until() <= now) {
    follow_no_more(now, one);
    one.report_at = std::min(one.report_at, now + kOften);
    return;
  }
  if (one.releases_at <= now) {
    release_again(id, one);
    if (one.until > now) return;
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
      release(id, one);
      train(now, one);
      facts_.emplace_back(RunningFact{id, one.generation});
      break;
    case Phase::resizing:
      train_on(now, one, 0);
      one.phase = Phase::pausing;
      one.until = now + one.pause;
      break;
    case Phase::pausing: {
      release(id, one);
      one.gpus = one.to;
      one.pauses.push_back(seconds(one.truth->pause) + 1e-6 * one.resizes);
      if (one.pauses.size() > launch::kPausesKept) one.pauses.erase(one.pauses.begin());
      train(now, one);
      facts_.emplace_back(RunningFact{id, one.generation});
      break;
    }
    case Phase::stopping: {
      facts_.emplace_back(ReleasedFact{id, one.generation, one.holds, true});
      leave(now, one);
      break;
    }
    case Phase::ending:
      leave(now, one);
      facts_.emplace_back(Finished{id, one.generation, std::nullopt});
      break;
    case Phase::training:
    case Phase::away:
      one.until = kNever;
      break;
  }
}

void WhatIfWorld::release(JobId id, Job& job) {
  job.releases_at = kNever;
  let_go(id, job, minus(job.holds, job.to));
}

void WhatIfWorld::let_go(JobId id, Job& job, const Allocation& gpus) {
  job.holds.remove(gpus);
  if (!gpus.empty()) facts_.emplace_back(ReleasedFact{id, job.generation, gpus, false});
}

// Workers leave one after another. The last release leaves nothing.
void WhatIfWorld::release_again(JobId id, Job& job) {
  if (job.follows == nullptr) return release(id, job);
  const Allocation then = job.follows->releases[job.releases++].gpus;
  plan_release(job);
  const Allocation all = minus(job.holds, job.to);
  let_go(id, job, job.releases_at == kNever ? all : some_of(all, then));
}

void WhatIfWorld::plan_release(Job& job) {
  const Episode* then = job.follows;
  const bool more = then != nullptr && job.releases < then->releases.size();
  job.releases_at =
      more ? job.follows_since + (then->releases[job.releases].at - then->from) : kNever;
}

void WhatIfWorld::leave(Time now, Job& job) {
  follow_no_more(now, job);
  job.phase = Phase::away;
  job.until = job.trains_at = job.releases_at = job.report_at = kNever;
  job.gpus = job.to = job.holds = Allocation();
}

// Real jobs report so often that the daemon always knows what they do. Here that is enough when
// something happens to them, and when something of what they really reported was written down.
std::vector<JobStatus> WhatIfWorld::reports(Time now, const std::function<bool(JobId)>& stores) {
  std::vector<JobStatus> statuses;
  due_.clear();
  for (auto& [id, one] : jobs_) {
    const bool due = one.report_at <= now;
    const bool ends = one.phase == Phase::stopping && one.until <= now;
    const bool acts = tells(now, one);
    const bool again = one.unread && stores && stores(id);
    if (!due && !ends && !again && !(one.heard && acts)) continue;
    one.unread = !due && !ends && !again;
    if (due) {
      one.heard = true;
      due_.push_back(id);
    }
    plan_report(now, one);
    statuses.push_back(status_of(now, id, one));
    if (ends) statuses.back().ended.emplace().how = JobEnd::How::stopped;
  }
  return statuses;
}

void WhatIfWorld::report_by(JobId id, Time at) {
  const auto found = jobs_.find(id);
  if (found == jobs_.end() || found->second.phase == Phase::away) return;
  found->second.report_at = std::min(found->second.report_at, at);
  found->second.unread = true;
}

void WhatIfWorld::plan_report(Time now, Job& job) const {
  const Episode* then = job.follows;
  const auto* next = then != nullptr ? then->report_after(now - job.follows_since) : nullptr;
  job.report_at = next != nullptr ? job.follows_since + (next->at - then->from)
                                  : now + (now - job.changed < kOftenFor ? kOften : seldom_);
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

void report_speed(const JobTruth& truth, double rate, JobProgress& progress) {
  const bool counts_steps = truth.reports == JobTruth::Reports::steps;
  progress.step_rate = counts_steps ? rate : 0;
  progress.rate = truth.reports == JobTruth::Reports::samples ? rate : rate * truth.samples_each;
}

void report_work(const JobTruth& truth, double done, JobProgress& progress) {
  switch (truth.reports) {
    case JobTruth::Reports::nothing:
      break;
    case JobTruth::Reports::steps:
      progress.step = std::llround(done);
      progress.samples = done * truth.samples_each;
      break;
    case JobTruth::Reports::samples:
      progress.samples = done;
      progress.step = std::llround(done);
      break;
    case JobTruth::Reports::epochs:
      progress.epoch = done;
      progress.samples = done * truth.samples_each;
      break;
  }
}

}  // namespace

JobStatus WhatIfWorld::status_of(Time now, JobId id, Job& one) {
  JobStatus status;
  status.job = id;
  status.generation = one.generation;
  status.in_use = launch::slots_of(one.gpus);
  status.running = one.phase == Phase::training;
  status.resizes = one.resizes;
  status.pauses = one.pauses;
  JobProgress& progress = status.progress;
  const JobTruth& truth = *one.truth;
  const double done = one.done_by(now);
  one.mark(now);
  if (one.follows != nullptr) {
    if (const auto* then = one.follows->report_about(now - one.follows_since))
      one.reported = then->progress;
    progress = one.reported;
  } else {
    progress.workers = one.trains_on;
    if (truth.reports != JobTruth::Reports::nothing) report_speed(truth, one.speed(now), progress);
  }
  if (truth.tuning && !progress.tuning) report_tuning(*truth.tuning, one.gpus.gpus(), progress);
  report_work(truth, done, progress);
  return status;
}

}  // namespace rubato::daemon
