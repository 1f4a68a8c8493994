// A job as its owner described it (JobSpec), and as the scheduler sees it now (JobView).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rubato/base/time.h"
#include "rubato/base/units.h"
#include "rubato/core/allocation.h"
#include "rubato/core/batch.h"
#include "rubato/core/ids.h"
#include "rubato/core/losses.h"
#include "rubato/core/speed.h"

namespace rubato::core {

// Which GPU counts a job can use if the scheduler chooses the number.
struct GpuLimits {
  int min = 1;
  int max = 1;
  std::vector<int> allowed;  // ascending; empty = every count in min..max

  [[nodiscard]] bool legal(int gpus) const;
  // The next legal count above `gpus`; nullopt if there is none.
  [[nodiscard]] std::optional<int> above(int gpus) const;
  [[nodiscard]] int smallest() const { return allowed.empty() ? min : allowed.front(); }
};

// What the end of a job is worth, by when it ends: value / (1 + exp(decay (t - target))), t being
// the time since its submission. Without decay it is worth half the value at any time.
struct Utility {
  double value = 1;   // above 0
  double decay = 0;   // a second; 0 or more
  Duration target{};  // when it is worth half the value
  friend bool operator==(const Utility&, const Utility&) = default;
};

struct JobSpec {
  std::string name;
  std::string user;
  std::string model;
  int requested = 1;  // the count that the owner of a rigid job asks for
  GpuLimits limits;
  bool preemptible = true;
  double weight = 1;
  int batch = 0;                // global batch size; 0 = not given
  bool adaptive_batch = false;  // the scheduler may choose another batch
  std::optional<Time> deadline;
  Duration restart_cost{};  // lost at the first start and whenever the GPU set changes
  Duration cooldown{};      // after a resize, no growth for this long, except for a deadline
  Duration notice{};        // how long it may take to stop; 0 = not more than others
  bool goes_first = false;  // before other jobs without a deadline: it is short and awaited
  bool work_guessed =
      false;  // its owner did not say how much work it has: JobView::work is a guess
  std::optional<Utility> utility;
  bool opportunistic = false;  // it takes what guaranteed jobs leave, and yields to them first
  int quota = 0;               // how many GPUs its user's guaranteed jobs may have; 0: no limit
  bool tries_pairs = false;    // it may share GPUs with a job beside which it was never measured
  // The part of its parameters that is in its largest tensor, above 0 and at most 1 (Tiresias calls
  // it skew). nullopt: nobody knows yet.
  std::optional<double> skew = std::nullopt;

  // What its end then is worth. A job without a utility is worth its weight until its deadline and
  // nothing afterwards.
  [[nodiscard]] double worth(Time submitted, Time end) const;
};

enum class Phase : std::uint8_t { pending, starting, running, resizing, stopping };

// The last reported progress: `work_left` at time `at`, falling by `rate` from then on. While a job
// restarts, `at` is in the future.
struct Progress {
  Work work_left = 0;
  Time at = kStart;
  WorkRate rate = 0;

  [[nodiscard]] Work left(Time now) const {
    if (now <= at) return work_left;
    const Work rest = work_left - rate * seconds(now - at);
    return rest > 0 ? rest : 0;
  }
};

struct JobView {
  // The members that every decision reads come first, on the same cache lines.
  JobId id;
  Phase phase = Phase::pending;
  Generation generation;
  int release_due = 0;  // GPUs that it was told to release and still holds
  Progress progress;
  Allocation target;                 // GPUs it should have
  Allocation held;                   // GPUs it may be using; freed only when the engine says so
  std::optional<JobId> shares_with;  // the other job with these GPUs as its target (space sharing)

  Time counted_from = kStart;
  GpuTime attained_before;  // up to counted_from
  Duration ran_before{};
  Time last_ran = kStart;  // when it last had GPUs, while it has none

  std::shared_ptr<const JobSpec> spec;
  std::shared_ptr<const SpeedModel> speed;    // an estimate, never the truth itself
  std::shared_ptr<const ShownLosses> losses;  // nullptr: none so far
  Work work = 0;                              // the total, as submitted
  Time submitted = kStart;
  std::optional<Time> first_start;
  int restarts = 0;                 // starts after the first
  std::optional<Batch> batch;       // as last granted; nullopt = its owner's
  std::optional<Batch> batch_told;  // the one in its last command
  bool on_hold = false;             // it gets no GPUs
  bool leaving = false;             // cancelled; it is gone when it has released its GPUs
  bool taken_in = false;            // admitted: a policy saw it and did not reject it
  std::optional<Time> resized;      // the last resize since its start

  // Whether it is on hold or cancelled. Policies are not asked about such jobs.
  [[nodiscard]] bool stays_away() const { return on_hold || leaving; }
  [[nodiscard]] bool has_run() const { return first_start.has_value(); }
  // Whether no policy may reject it any more.
  [[nodiscard]] bool accepted() const { return taken_in || has_run(); }
  // Whether it may not be preempted and has started: it keeps its GPUs until it ends or fails.
  [[nodiscard]] bool stays() const {
    return !spec->preemptible && !held.empty() && !target.empty();
  }
  // When it may grow again.
  [[nodiscard]] Time cooled() const { return resized ? *resized + spec->cooldown : kStart; }
  [[nodiscard]] GpuTime attained(Time now) const {
    return attained_before + GpuTime::of(held.gpus(), now - counted_from);
  }
  [[nodiscard]] Duration ran(Time now) const {
    return held.empty() ? ran_before : ran_before + (now - counted_from);
  }
};

}  // namespace rubato::core
