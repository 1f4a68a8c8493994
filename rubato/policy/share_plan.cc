#include "rubato/policy/share_plan.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "rubato/base/check.h"

namespace rubato::policy {
namespace {

// A change is not worth it if the time on the new GPUs hardly exceeds the restart cost.
constexpr double kShortestSeconds = 1;
// A job that would change more often than this is not planned. Real plans are far below it.
constexpr int kMostChanges = 64;

constexpr double kForever = std::numeric_limits<double>::infinity();

double seconds_until(Time from, Time until) {
  return until == kNever ? kForever : seconds(until - from);
}

bool power_of_two(int gpus) { return std::has_single_bit(static_cast<unsigned>(gpus)); }

}  // namespace

std::vector<Level> levels_of(const JobSpec& spec, const SpeedModel& speed, int most, GpuType type) {
  std::vector<Level> levels;
  const auto consider = [&](int gpus) {
    const WorkRate rate = speed.on(type, gpus);
    if (gpus <= most && rate > (levels.empty() ? 0 : levels.back().rate))
      levels.push_back({gpus, rate});
  };
  if (!speed.measured().empty()) {
    for (const bool any : {false, true}) {
      for (const int gpus : speed.measured()) {
        if (spec.limits.legal(gpus) && (any || power_of_two(gpus))) consider(gpus);
      }
      if (!levels.empty()) return levels;
    }
  }
  consider(spec.requested);
  return levels;
}

int SharePlan::gpus_at(Time when) const {
  int gpus = 0;
  for (const auto& step : steps) {
    if (step.from > when) break;
    gpus = step.gpus;
  }
  return gpus;
}

Time SharePlan::next_change(Time after) const {
  for (const auto& step : steps) {
    if (step.from > after) return step.from;
  }
  return kNever;
}

double SharePlan::gpu_seconds(Time from) const {
  double sum = 0;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const Time begin = std::max(from, steps[i].from);
    const Time end = i + 1 < steps.size() ? steps[i + 1].from : finish;
    if (end > begin) sum += steps[i].gpus * seconds(end - begin);
  }
  return sum;
}

void SharePlan::begin_at(Time now) {
  std::size_t passed = 0;
  while (passed + 1 < steps.size() && steps[passed + 1].from <= now) ++passed;
  steps.erase(steps.begin(), steps.begin() + static_cast<std::ptrdiff_t>(passed));
  if (!steps.empty()) steps.front().from = std::max(steps.front().from, now);
}

// A job without work still needs its GPUs for a moment.
Time SharePlan::end_of(std::size_t step) const {
  return step + 1 < steps.size() ? steps[step + 1].from
                                 : std::max(finish, steps[step].from + Duration(1)) + margin;
}

void SharePlan::add_to(FutureGpus& free, int sign) const {
  for (std::size_t i = 0; i < steps.size(); ++i)
    free.add(steps[i].from, end_of(i), sign * steps[i].gpus);
}

bool SharePlan::fits(const FutureGpus& free) const {
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if (free.first_below(steps[i].from, steps[i].gpus) < end_of(i)) return false;
  }
  return true;
}

Time Course::finish() const {
  if (gpus == 0 || !(progress.rate > 0)) return kNever;
  return progress.at + from_seconds(progress.work_left / progress.rate);
}

void Course::turn(Time at, int to, WorkRate rate, Duration restart) {
  if (to == gpus) return;
  gpus = to;
  progress = to == 0 ? Progress{progress.left(at), at, 0}
                     : Progress{progress.left(at), at + restart, rate};
}

Time SharePlanner::allowed_from(Time t) const {
  if (interval_ == Duration(0) || t == kNever) return t;
  const auto steps = (t - kStart + interval_ - Duration(1)) / interval_;
  return kStart + steps * interval_;
}

Duration SharePlanner::margin_of(const Traveller& job, const Walk& walk) {
  if (!(walk.course.progress.rate > 0)) return Duration(0);
  if (!job.moves) return job.lateness;
  WorkRate fastest = walk.course.progress.rate;
  for (const auto& step : walk.steps) {
    for (const Level& level : job.levels) {
      if (level.gpus == step.gpus) fastest = std::max(fastest, level.rate);
    }
  }
  return margin_at(job, fastest, walk.course.progress.rate);
}

// One microsecond is left for the rounding of end times.
Duration SharePlanner::margin_at(const Traveller& job, WorkRate fastest, WorkRate last) {
  if (!job.moves) return job.lateness;
  return from_seconds(seconds(job.restart) * fastest / last) + Duration(1) + job.lateness;
}

Duration SharePlanner::most_margin(const Traveller& job, WorkRate last) {
  return margin_at(job, job.levels.back().rate, last);
}

SharePlan SharePlanner::plan_of(const Traveller& job, Walk walk) {
  const Duration margin = margin_of(job, walk);
  return {std::move(walk.steps), walk.course.finish(), margin};
}

void SharePlanner::turn(const Traveller& job, Walk& walk, const Level* level) const {
  const int to = level == nullptr ? 0 : level->gpus;
  if (to == walk.course.gpus && !walk.steps.empty()) return;
  walk.course.turn(walk.at, to, level == nullptr ? 0 : level->rate, job.restart);
  walk.steps.push_back({walk.at, to});
}

const Level* SharePlanner::choose(const Traveller& job, const Walk& walk, std::size_t cap) const {
  const Time now = walk.at;
  const Course& course = walk.course;
  const int room = std::min(free_.at(now), job.levels[cap].gpus);
  const double restart = seconds(job.restart);
  const Work left = course.progress.left(now);
  const Level* best = nullptr;
  double best_delay = 0;  // time until it makes progress
  for (const Level& level : job.levels) {
    if (level.gpus > room) break;
    if (level.gpus < course.gpus) {
      // A smaller count is used only if the present one must be given up.
      if (course.gpus <= room) continue;
    }
    if (level.gpus == course.gpus) {
      best = &level;
      best_delay = std::max(0.0, seconds(course.progress.at - now));
      continue;
    }
    const double window = seconds_until(now, free_.first_below(now, level.gpus));
    const double to_end = restart + left / level.rate;
    bool better = false;
    if (to_end <= window) {
      better = best == nullptr || to_end < best_delay + left / best->rate;
    } else if (window - restart >= kShortestSeconds) {
      const Work done = level.rate * (window - restart);
      const Work otherwise =
          best == nullptr ? 0 : best->rate * (std::max(0.0, window - best_delay) + restart);
      better = done > otherwise;
    }
    if (!better) continue;
    best = &level;
    best_delay = restart;
  }
  return best;
}

bool SharePlanner::advance(const Traveller& job, Walk& walk, std::size_t cap, Time until) const {
  for (int changes = 0; changes < kMostChanges; ++changes) {
    turn(job, walk, choose(job, walk, cap));
    const int gpus = walk.course.gpus;
    Time next = gpus > 0 ? free_.first_below(walk.at, gpus) : kNever;
    const auto above = std::find_if(job.levels.begin(), job.levels.end(),
                                    [&](const Level& level) { return level.gpus > gpus; });
    if (above != job.levels.end() && above->gpus <= job.levels[cap].gpus) {
      Time from = walk.at;
      // Free now, but not worth a change: try the next time.
      if (free_.at(from) >= above->gpus) from = free_.first_below(from, above->gpus);
      if (from != kNever) next = std::min(next, allowed_from(free_.first_with(from, above->gpus)));
    }
    next = std::min(next, until);
    const Time finish = walk.course.finish();
    if (finish <= next) {
      walk.done = true;
      const Duration margin = margin_of(job, walk);
      return finish + margin <= job.deadline &&
             (margin == Duration(0) || free_.first_below(walk.at, gpus) >= finish + margin);
    }
    if (next > job.deadline || next == kNever) return false;
    walk.at = next;
    if (next == until) return true;
  }
  return false;
}

std::optional<SharePlan> SharePlanner::relaxed(const Traveller& job, const Walk& begun,
                                               std::size_t cap, const SharePlan& strict) const {
  const Level& fast = job.levels[cap];
  const Level& slow = job.levels[cap - 1];
  const double restart = seconds(job.restart);
  const Course& course = begun.course;
  const double delay =
      course.gpus == slow.gpus ? std::max(0.0, seconds(course.progress.at - begun.at)) : restart;
  // x seconds on the slow count and the rest on the fast one end exactly at the deadline:
  // x + restart + (left - x slow) / fast = time available. One millisecond is left for rounding.
  const double there_is =
      seconds_until(begun.at, job.deadline) - seconds(job.lateness) - delay - 1e-3;
  const Work left = course.progress.left(begun.at);
  const double x = (there_is - restart - left / fast.rate) / (1 - slow.rate / fast.rate);
  if (!(x > kShortestSeconds) || x == kForever) return std::nullopt;
  Time until = begun.at + from_seconds(delay + x);
  if (interval_ != Duration(0)) until = kStart + (until - kStart) / interval_ * interval_;
  if (until <= begun.at) return std::nullopt;
  Walk walk = begun;
  if (!advance(job, walk, cap - 1, until)) return std::nullopt;
  if (!walk.done && !advance(job, walk, cap, kNever)) return std::nullopt;
  SharePlan plan = plan_of(job, std::move(walk));
  if (plan.gpu_seconds(begun.at) >= strict.gpu_seconds(begun.at)) return std::nullopt;
  return plan;
}

std::optional<SharePlan> SharePlanner::least_share_after(const Traveller& job,
                                                         const Walk& begun) const {
  const Work left = begun.course.progress.left(begun.at);
  for (std::size_t cap = 0; cap < job.levels.size(); ++cap) {
    const Level& level = job.levels[cap];
    // Not possible even if enough GPUs were always free.
    Time best = begun.at + job.restart + from_seconds(left / level.rate);
    if (begun.course.gpus > 0 && begun.course.gpus <= level.gpus)
      best = std::min(best, begun.course.finish());
    if (best > job.deadline) continue;
    Walk walk = begun;
    if (!advance(job, walk, cap, kNever)) continue;
    SharePlan plan = plan_of(job, std::move(walk));
    if (cap > 0) {
      if (auto less = relaxed(job, begun, cap, plan)) return less;
    }
    return plan;
  }
  return std::nullopt;
}

std::optional<SharePlan> SharePlanner::least_share(const Traveller& job, Time now) const {
  Walk begun;
  begun.at = now;
  begun.course = job.course;
  return least_share_after(job, begun);
}

std::optional<SharePlan> SharePlanner::begun_with(const Traveller& job, const Level& level,
                                                  Time now) const {
  const Time lasts = free_.first_below(now, level.gpus);
  if (lasts <= now) return std::nullopt;
  Walk walk;
  walk.at = now;
  walk.course = job.course;
  turn(job, walk, &level);
  if (walk.course.finish() + margin_of(job, walk) <= lasts) {
    if (walk.course.finish() + margin_of(job, walk) > job.deadline) return std::nullopt;
    return plan_of(job, std::move(walk));
  }
  if (seconds(lasts - std::max(now, walk.course.progress.at)) < kShortestSeconds)
    return std::nullopt;
  walk.at = lasts;
  return least_share_after(job, walk);
}

std::optional<SharePlan> SharePlanner::soonest(const Traveller& job, Time now) const {
  Traveller patient = job;
  patient.deadline = kNever;
  std::optional<SharePlan> best;
  for (std::size_t cap = 0; cap < job.levels.size(); ++cap) {
    Walk walk;
    walk.at = now;
    walk.course = job.course;
    if (!advance(patient, walk, cap, kNever)) continue;
    if (!best || walk.course.finish() < best->finish) best = plan_of(job, std::move(walk));
  }
  return best;
}

Course SharePlanner::course_along(const Traveller& job, std::span<const GpuStep> steps) {
  Course course = job.course;
  for (const auto& step : steps) {
    if (course.finish() <= step.from) break;
    const auto level = std::find_if(job.levels.begin(), job.levels.end(),
                                    [&](const Level& l) { return l.gpus == step.gpus; });
    course.turn(step.from, step.gpus, level == job.levels.end() ? 0 : level->rate, job.restart);
  }
  return course;
}

Time SharePlanner::finish_of(const Traveller& job, std::span<const GpuStep> steps) {
  return course_along(job, steps).finish();
}

SharePlan SharePlanner::plan_along(const Traveller& job, std::vector<GpuStep> steps) {
  Walk walk;
  walk.course = course_along(job, steps);
  walk.steps = std::move(steps);
  return plan_of(job, std::move(walk));
}

}  // namespace rubato::policy
