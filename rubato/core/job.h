// A job as its owner described it (JobSpec) and as the scheduler sees it now (JobView).
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

// Which GPU counts a job can use when the number is the scheduler's to choose.
struct GpuLimits {
  int min = 1;
  int max = 1;
  std::vector<int> allowed;  // ascending; empty = every count in min..max

  [[nodiscard]] bool legal(int gpus) const;
  // The next legal count above `gpus`; nullopt at the top.
  [[nodiscard]] std::optional<int> above(int gpus) const;
  [[nodiscard]] int smallest() const { return allowed.empty() ? min : allowed.front(); }
};

struct JobSpec {
  std::string name;
  std::string user;
  std::string model;
  int requested = 1;  // what the owner of a rigid job asks for
  GpuLimits limits;
  bool preemptible = true;
  double weight = 1;
  int batch = 0;                // global batch size; 0 = not given
  bool adaptive_batch = false;  // the scheduler may choose another
  std::optional<Time> deadline;
  Duration restart_cost{};  // lost at the first start and whenever the GPU set changes
  Duration cooldown{};      // after a resize it is not grown for so long, but for a deadline
  bool goes_first = false;  // of those without a deadline: it is short, and somebody waits for it
};

enum class Phase : std::uint8_t { pending, starting, running, resizing, stopping };

// Progress as last reported: `work_left` at `at`, falling by `rate` from then on. `at` lies in the
// future while a job restarts.
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
  // What every decision looks at stands first, on the same cache lines.
  JobId id;
  Phase phase = Phase::pending;
  Generation generation;
  int release_due = 0;  // GPUs it was told to release and has not yet
  Progress progress;
  Allocation target;                 // GPUs it should have
  Allocation held;                   // GPUs it may be using: freed only when the engine says so
  std::optional<JobId> shares_with;  // the other job with these GPUs as its target (space sharing)

  Time counted_from = kStart;
  GpuTime attained_before;  // up to counted_from
  Duration ran_before{};
  Time last_ran = kStart;  // end of its last stretch on GPUs, while it has none

  std::shared_ptr<const JobSpec> spec;
  std::shared_ptr<const SpeedModel> speed;    // an estimate, never the truth itself
  std::shared_ptr<const ShownLosses> losses;  // nullptr: it has shown none
  Work work = 0;                              // all of it, as submitted
  Time submitted = kStart;
  std::optional<Time> first_start;
  int restarts = 0;                 // starts after the first
  std::optional<Batch> batch;       // as last granted; nullopt = its owner's
  std::optional<Batch> batch_told;  // the one in its last command
  bool on_hold = false;             // by its owner: it gets no GPUs
  bool leaving = false;             // cancelled: it is gone when it has let go of its GPUs
  bool taken_in = false;            // by a policy that saw it and did not reject it
  std::optional<Time> resized;      // the last time since it was started

  // Its owner's wish, which no policy is asked about.
  [[nodiscard]] bool stays_away() const { return on_hold || leaving; }
  [[nodiscard]] bool has_run() const { return first_start.has_value(); }
  // Nobody may reject it any more, whatever another policy would have said.
  [[nodiscard]] bool accepted() const { return taken_in || has_run(); }
  // It may not be preempted and has begun: it keeps its GPUs until it ends or a fault takes them.
  [[nodiscard]] bool stays() const {
    return !spec->preemptible && !held.empty() && !target.empty();
  }
  // From then on it may be grown again.
  [[nodiscard]] Time cooled() const { return resized ? *resized + spec->cooldown : kStart; }
  [[nodiscard]] GpuTime attained(Time now) const {
    return attained_before + GpuTime::of(held.gpus(), now - counted_from);
  }
  [[nodiscard]] Duration ran(Time now) const {
    return held.empty() ? ran_before : ran_before + (now - counted_from);
  }
};

}  // namespace rubato::core
