// Plans one job into the future: which GPU counts it can use, and the fewest GPUs that it needs to
// end by a given time. Shared by the policies that promise deadlines.
//
// Everything is computed exactly as the machines will do it: a change of the GPU count costs the
// restart time, and end times are rounded as an engine rounds them. So a plan that is carried out
// ends exactly when it says, to the microsecond.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "rubato/core/decision.h"
#include "rubato/core/job.h"
#include "rubato/policy/future_gpus.h"

namespace rubato::policy {

// A GPU count that a plan may use, and its speed.
struct Level {
  int gpus = 0;
  WorkRate rate = 0;
};

// Powers of two that are legal, measured, and faster than all smaller ones. If there are none, the
// legal measured counts. For a job without a curve, the count that its owner asks for.
[[nodiscard]] std::vector<Level> levels_of(const JobSpec& spec, const SpeedModel& speed, int most,
                                           GpuType type = GpuType());

struct SharePlan {
  std::vector<GpuStep> steps;  // ascending; no two neighbours alike
  Time finish = kNever;
  // How long the last GPUs stay reserved after the end, for moves and late changes.
  Duration margin{0};

  [[nodiscard]] int gpus_at(Time when) const;  // of a job that has not ended
  // The first change after this moment; kNever if there is none before the end.
  [[nodiscard]] Time next_change(Time after) const;
  // GPU-seconds held from `from` on.
  [[nodiscard]] double gpu_seconds(Time from) const;
  // Removes past steps. The first step then begins at `now`.
  void begin_at(Time now);

  void reserve(FutureGpus& free) const { add_to(free, -1); }
  void give_back(FutureGpus& free) const { add_to(free, 1); }
  // Whether all GPUs of the plan are free.
  [[nodiscard]] bool fits(const FutureGpus& free) const;

 private:
  [[nodiscard]] Time end_of(std::size_t step) const;
  void add_to(FutureGpus& free, int sign) const;
};

// The progress of a job: its GPUs, and how much work is left.
struct Course {
  int gpus = 0;
  Progress progress;

  [[nodiscard]] Time finish() const;
  void turn(Time at, int to, WorkRate rate, Duration restart);
};

// What planning needs to know about a job.
struct Traveller {
  std::span<const Level> levels;
  Duration restart{};
  Time deadline = kNever;
  Course course;        // at the moment of planning
  bool moves = false;   // the placement may move it once; the plan leaves time for that
  Duration lateness{};  // ... and for changes that come later than planned
};

class SharePlanner {
 public:
  // Changes happen only at multiples of `interval`; 0 = at any time.
  SharePlanner(const FutureGpus& free, Duration interval) : free_(free), interval_(interval) {}

  // The minimum satisfactory share: the smallest cap on the job's GPUs with which it meets the
  // deadline; the next smaller count is used as long as that is enough. nullopt if there is none.
  [[nodiscard]] std::optional<SharePlan> least_share(const Traveller& job, Time now) const;

  // This many GPUs from now on, as long as they are free; then the minimum satisfactory share.
  [[nodiscard]] std::optional<SharePlan> begun_with(const Traveller& job, const Level& level,
                                                    Time now) const;

  // The plan that ends first, ignoring the deadline; nullopt if it would never end.
  [[nodiscard]] std::optional<SharePlan> soonest(const Traveller& job, Time now) const;

  // When a job that follows the steps from now on is done.
  [[nodiscard]] static Time finish_of(const Traveller& job, std::span<const GpuStep> steps);
  // The plan with these steps.
  [[nodiscard]] static SharePlan plan_along(const Traveller& job, std::vector<GpuStep> steps);
  // How much later a job may end if it is moved once, at most, with such a speed in the end.
  [[nodiscard]] static Duration most_margin(const Traveller& job, WorkRate last);

 private:
  // Simulates the job under a cap from `at` until `until`, or to its end. False if it will be late.
  struct Walk {
    Time at = kStart;
    Course course;
    std::vector<GpuStep> steps;
    bool done = false;
  };
  [[nodiscard]] bool advance(const Traveller& job, Walk& walk, std::size_t cap, Time until) const;
  void turn(const Traveller& job, Walk& walk, const Level* level) const;
  // The GPU count to use now, under the cap; nullptr = none.
  [[nodiscard]] const Level* choose(const Traveller& job, const Walk& walk, std::size_t cap) const;
  [[nodiscard]] std::optional<SharePlan> least_share_after(const Traveller& job,
                                                           const Walk& begun) const;
  [[nodiscard]] std::optional<SharePlan> relaxed(const Traveller& job, const Walk& begun,
                                                 std::size_t cap, const SharePlan& strict) const;
  [[nodiscard]] Time allowed_from(Time t) const;
  // How much later a job may end if it is moved once: the work lost at its highest speed, done
  // again at the speed of its last step.
  [[nodiscard]] static Duration margin_of(const Traveller& job, const Walk& walk);
  [[nodiscard]] static Duration margin_at(const Traveller& job, WorkRate fastest, WorkRate last);
  [[nodiscard]] static Course course_along(const Traveller& job, std::span<const GpuStep> steps);
  [[nodiscard]] static SharePlan plan_of(const Traveller& job, Walk walk);

  const FutureGpus& free_;
  Duration interval_;
};

}  // namespace rubato::policy
