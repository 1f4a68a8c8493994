// Events. The state of the loop is the fold of these events; nothing else changes it.
#pragma once

#include <cstdint>
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
  std::optional<WallTime> at = std::nullopt;  // when it ended, if that is known
};
// The job's run failed. It can start again from `progress`.
struct Failed {
  JobId job;
  Generation generation;
  Progress progress;
  // An infrastructure failure: it does not count as a failure of the job.
  bool infrastructure = false;
  std::string why = {};
};
struct NodeChanged {
  NodeId node;
  NodeState state = NodeState::up;
  std::string why = {};
};
// A node has joined the cluster. Its number is the next one.
struct NodeAdded {
  NodeId node;
  NewNode added;
};
// Exactly these GPUs of the node are reserved from now on: others use them, for the reason given.
// Jobs must leave them, and they come back with a later Reserved.
struct Reserved {
  NodeId node;
  std::uint64_t gpus = 0;
  std::string why = {};
};
// A new estimate of a job's speed, and of its convergence if `losses` is given. With `skew`, the
// job has said what share of it its largest tensor is.
struct Estimated {
  JobId job;
  std::shared_ptr<const SpeedModel> speed;
  std::shared_ptr<const ShownLosses> losses = nullptr;
  std::optional<double> skew = std::nullopt;
};
// The time a policy asked for (Decision::again_at) has come.
struct Wake {};
// The job was cancelled. It leaves at once, or when it has released its GPUs.
struct Cancelled {
  JobId job;
};
// The job must wait, or must no longer wait. Without `until`, its owner has put it on hold. With
// `until`, its last run failed, and the daemon lets it start again at that time (backoff).
struct HoldChanged {
  JobId job;
  bool on = true;
  std::optional<Time> until = std::nullopt;
};
// New limits on the number of GPUs: the owner has changed them, or the program cannot use more.
// `keeps`: the job uses only these of its GPUs, and should have no others.
struct Limited {
  JobId job;
  GpuLimits limits;
  std::optional<Allocation> keeps = std::nullopt;
};
// The deadline has moved on the loop's clock, because the wall clock was set.
struct Due {
  JobId job;
  std::optional<Time> deadline;
};
// The newest messages are lost. Generations and job numbers skip all values that may have been
// used, and every job gets its command again.
struct Skipped {
  int jobs = 0;
  int generations = 0;
};
// If the result is given, this is a stored decision during recovery: it is not checked, and no
// placement is asked.
struct Decided {
  Decision decision;
  std::optional<Carried> carried = std::nullopt;
};

using Event =
    std::variant<Submitted, Running, Released, Finished, Failed, NodeChanged, NodeAdded, Reserved,
                 Estimated, Wake, Cancelled, HoldChanged, Limited, Due, Skipped, Decided>;

}  // namespace rubato::core
