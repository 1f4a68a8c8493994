// What happens. The loop's state is the fold of these; nothing else changes it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <variant>

#include "rubato/base/wall_time.h"
#include "rubato/core/change.h"
#include "rubato/core/decision.h"
#include "rubato/core/ids.h"
#include "rubato/core/job.h"

namespace rubato::core {

struct Submitted {
  JobId job;
  std::shared_ptr<const JobSpec> spec;
  std::shared_ptr<const SpeedModel> speed;
  Work work = 0;
};
// The engine has carried out a Start or a Resize of this generation, or the job's rate has changed.
struct Running {
  JobId job;
  Generation generation;
  Progress progress;
};
// The job no longer uses these GPUs; with `stopped`, it uses none at all.
struct Released {
  JobId job;
  Generation generation;
  Allocation gpus;
  Progress progress;
  bool stopped = false;
};
struct Finished {
  JobId job;
  Generation generation;
  std::optional<WallTime> at = std::nullopt;  // when it ended, where that is known
};
// The job's run ended by a fault; it can start again from `progress`.
struct Failed {
  JobId job;
  Generation generation;
  Progress progress;
  // The machines or Rubato itself are at fault: it is no failure of the job.
  bool infrastructure = false;
  std::string why = {};
};
struct NodeChanged {
  NodeId node;
  NodeState state = NodeState::up;
  std::string why = {};
};
// What is known of a job's speed, and of its convergence if `losses` is given, is better known now.
struct Estimated {
  JobId job;
  std::shared_ptr<const SpeedModel> speed;
  std::shared_ptr<const ShownLosses> losses = nullptr;
};
// The time a policy asked for (Decision::again_at) has come.
struct Wake {};
// Its owner wants it no more. It leaves at once, or when it has let go of its GPUs.
struct Cancelled {
  JobId job;
};
// It is to wait, or to wait no longer. Without `until` its owner says so; with it, its last run
// failed, and the daemon lets it start again at that time.
struct Held {
  JobId job;
  bool on = true;
  std::optional<Time> until = std::nullopt;
};
// How many GPUs it may have is another number: its owner has changed it, or its program cannot use
// more. `keeps`: of those it was given it uses these alone, and should have no other.
struct Limited {
  JobId job;
  GpuLimits limits;
  std::optional<Allocation> keeps = std::nullopt;
};
// Its deadline is another moment on the loop's clock than it was: the wall clock was set.
struct Due {
  JobId job;
  std::optional<Time> deadline;
};
// The newest of what was said and heard is lost: generations and the numbers of jobs jump ahead of
// all that may have been used, and everybody is told again.
struct Skipped {
  int jobs = 0;
  int generations = 0;
};
// With what became of it, it is the past that is told again: nothing is checked, and no placement
// is asked where the GPUs are.
struct Decided {
  Decision decision;
  std::optional<Carried> carried = std::nullopt;
};

using Event = std::variant<Submitted, Running, Released, Finished, Failed, NodeChanged, Estimated,
                           Wake, Cancelled, Held, Limited, Due, Skipped, Decided>;

}  // namespace rubato::core
