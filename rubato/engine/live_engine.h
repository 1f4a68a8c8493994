// The seam between the daemon and the machines of a live cluster. The daemon knows no other type of
// the engine, so a Slurm or Kubernetes engine can stand here beside LocalEngine.
//
// Beyond loop/engine.h, whose contract holds, a live engine outlives no daemon but its jobs do: it
// is opened with what the journal says was told to the last one, and goes on from there. It reports
// what programs say of their progress; the journal decides when a job may be forgotten.
//
// The facts that collect() gives carry no progress: an engine does not know how much work a job has
// left. Whoever posts a Running, Released or Failed to the loop counts that from the reports.
//
// Belongs to one thread; nothing blocks. collect() is also where time passes: call it several times
// a second.
#pragma once

#include <vector>

#include "rubato/base/result.h"
#include "rubato/core/allocation.h"
#include "rubato/core/command.h"
#include "rubato/core/ids.h"
#include "rubato/launch/master_messages.h"
#include "rubato/loop/engine.h"

namespace rubato::engine {

// What the journal knows an engine to have been told of a job that has, or may have, GPUs.
struct KnownJob {
  JobId job;
  NodeId home;
  Command last;
  Allocation held;
};

class LiveEngine : public Engine {
 public:
  // Once, before all else. An error if the machines cannot be reached at all.
  [[nodiscard]] virtual Result<void> open(const std::vector<KnownJob>& jobs) = 0;

  // The newest status of each job that has said anything since the last call.
  [[nodiscard]] virtual std::vector<JobStatus> take_reports() = 0;
  // The job's end is stored, and it has no GPUs: nothing of it need be remembered.
  virtual void forget(JobId job) = 0;

  // The operator's word that a node is dead with all on it. Every job with a part there fails, once
  // nothing of it is left.
  virtual void mark_down(NodeId node) = 0;
  // The operator takes that word back.
  virtual void mark_up(NodeId node) = 0;

  // About once a second, while the state directory is in its place: whatever others may have
  // deleted, and machines need to reach the engine, is made again.
  virtual void keep_reachable() = 0;
  // The daemon ends and no job has GPUs: what the engine keeps running on the machines may end.
  virtual void retire() = 0;
};

}  // namespace rubato::engine
