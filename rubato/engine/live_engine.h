// The interface between the daemon and the machines of a live cluster. The daemon knows no other
// type of the engine, so an engine for Slurm or Kubernetes can be added beside LocalEngine.
//
// The contract of loop/engine.h holds. In addition: an engine ends with its daemon, but its jobs
// continue. So it is opened with the commands that the journal has stored for the last engine, and
// continues from there. It reports the progress that programs report. The journal decides when a
// job may be forgotten.
//
// Belongs to one thread; nothing blocks. Time passes in collect(): call it several times a second.
#pragma once

#include <string>
#include <vector>

#include "rubato/base/result.h"
#include "rubato/core/allocation.h"
#include "rubato/core/command.h"
#include "rubato/core/ids.h"
#include "rubato/launch/master_messages.h"
#include "rubato/loop/engine.h"

namespace rubato::engine {

// The last command to a job that has, or may have, GPUs, as the journal has it.
struct KnownJob {
  JobId job;
  NodeId home;
  Command last;
  Allocation held;
};

class LiveEngine : public Engine {
 public:
  // Call it once, before anything else. An error if the machines cannot be reached at all.
  [[nodiscard]] virtual Result<void> open(const std::vector<KnownJob>& jobs) = 0;

  // The newest status of each job that has said anything since the last call.
  [[nodiscard]] virtual std::vector<JobStatus> take_reports() = 0;
  // The job's end is stored and it has no GPUs, so the engine may forget it.
  virtual void forget(JobId job) = 0;

  // The operator declares that a node is dead with everything on it. Every job with a GPU there
  // fails as soon as no process of it is left.
  virtual void mark_down(NodeId node) = 0;
  // The operator takes that back.
  virtual void mark_up(NodeId node) = 0;

  // Call it about once a second, while the state directory is in its place. It creates again what
  // machines need to reach the engine, if somebody has deleted it.
  virtual void keep_reachable() = 0;
  // Why nothing is known of the machines now; empty if all is well.
  [[nodiscard]] virtual std::string trouble() const { return ""; }
  // The daemon exits and no job has GPUs, so the engine's processes on the machines may exit, too.
  virtual void retire() = 0;
};

}  // namespace rubato::engine
