// Planning one job ahead of time: which GPU counts it can use, and the least it needs to be done by
// a moment. The common ground of the policies that promise deadlines.
//
// Everything is computed as the machines will do it: a change of the GPU count costs the restart
// time, and ends are rounded as an engine rounds them. A plan that is carried out therefore ends
// when it says, to the microsecond.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "rubato/core/decision.h"
#include "rubato/core/job.h"
#include "rubato/policy/future_gpus.h"

namespace rubato::policy {

// A GPU count a plan may use, and the speed there.
struct Level {
  int gpus = 0;
  WorkRate rate = 0;
};

// Powers of two that are legal and measured and faster than all smaller ones. A job without any
// has the legal measured counts instead, a job without a curve the count its owner asks for.
[[nodiscard]] std::vector<Level> levels_of(const JobSpec& spec, const SpeedModel& speed, int most,
                                           GpuType type = GpuType());

struct Plan {
  std::vector<PlanStep> steps;  // ascending; no two neighbours alike
  Time finish = kNever;
  Duration margin{0};  // for which the last GPUs are kept after the end: moved jobs, late changes

  [[nodiscard]] int gpus_at(Time when) const;  // of a job that has not ended
  // The first change after this moment; kNever if there is none before the end.
  [[nodiscard]] Time next_change(Time after) const;
  // Held from `from` on, in GPU-seconds.
  [[nodiscard]] double gpu_seconds(Time from) const;
  // Forgets steps that have passed: the first then begins at `now`.
  void begin_at(Time now);

  void reserve(FutureGpus& free) const { add_to(free, -1); }
  void give_back(FutureGpus& free) const { add_to(free, 1); }
  // Whether all of it is free.
  [[nodiscard]] bool fits(const FutureGpus& free) const;

 private:
  [[nodiscard]] Time end_of(std::size_t step) const;
  void add_to(FutureGpus& free, int sign) const;
};

// A job on its way: so many GPUs and how far it has come.
struct Course {
  int gpus = 0;
  Progress progress;

  [[nodiscard]] Time finish() const;
  void turn(Time at, int to, WorkRate rate, Duration restart);
};

// What planning needs to know of a job.
struct Traveller {
  std::span<const Level> levels;
  Duration restart{};
  Time deadline = kNever;
  Course course;        // at the moment of planning
  bool moves = false;   // the placement may move it once: its plan leaves time for that
  Duration lateness{};  // and for changes that come later than planned
};

class SharePlanner {
 public:
  // Changes happen at multiples of `interval` only; 0 = at any time.
  SharePlanner(const FutureGpus& free, Duration interval) : free_(free), interval_(interval) {}

  // The minimum satisfactory share: the smallest cap on the job's GPUs under which it is in time,
  // with the next smaller one for as long as that is enough. nullopt if none is.
  [[nodiscard]] std::optional<Plan> least_share(const Traveller& job, Time now) const;

  // So many GPUs from now on, for as long as they are free, then the least share.
  [[nodiscard]] std::optional<Plan> begun_with(const Traveller& job, const Level& level,
                                               Time now) const;

  // The plan that ends soonest, whatever the deadline; nullopt if it would never end.
  [[nodiscard]] std::optional<Plan> soonest(const Traveller& job, Time now) const;

  // Where the course leads if the steps are followed from now on.
  [[nodiscard]] static Time finish_of(const Traveller& job, std::span<const PlanStep> steps);

 private:
  // Follows the job under a cap from `at` until `until`, or to its end; false if it will not be in
  // time.
  struct Walk {
    Time at = kStart;
    Course course;
    std::vector<PlanStep> steps;
    bool done = false;
  };
  [[nodiscard]] bool advance(const Traveller& job, Walk& walk, std::size_t cap, Time until) const;
  void turn(const Traveller& job, Walk& walk, const Level* level) const;
  // The level to use under the cap at this moment; nullptr = none.
  [[nodiscard]] const Level* choose(const Traveller& job, const Walk& walk, std::size_t cap) const;
  [[nodiscard]] std::optional<Plan> least_share_after(const Traveller& job,
                                                      const Walk& begun) const;
  [[nodiscard]] std::optional<Plan> relaxed(const Traveller& job, const Walk& begun,
                                            std::size_t cap, const Plan& strict) const;
  [[nodiscard]] Time allowed_from(Time t) const;
  // How much later a job that was moved once may end: what it lost at its fastest, made up for at
  // the speed of its last stretch.
  [[nodiscard]] static Duration margin_of(const Traveller& job, const Walk& walk);
  [[nodiscard]] static Plan plan_of(const Traveller& job, Walk walk);

  const FutureGpus& free_;
  Duration interval_;
};

}  // namespace rubato::policy
