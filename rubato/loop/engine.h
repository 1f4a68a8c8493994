// The interface to the machines: this machine, Slurm, Kubernetes. An engine carries out commands
// and reports facts. It never decides. A command whose generation is not newer than the last one of
// its job changes nothing. GPUs count as used until ReleasedFact, Finished or FailedFact. A job
// that has finished obeys no further command. If a Resize finds its job failed, the answer is a
// FailedFact with the new generation; to a Stop, it is a ReleasedFact without GPUs.
// engine_contract.h tests all this.
//
// A fact says nothing about progress, because machines do not know how much work a job has left.
// The driver of the loop makes an event (core/event.h) of each fact, and adds the progress. Only
// the simulated machines know it. So sim/sim_engine.h follows the same contract, but its facts are
// whole events.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "rubato/base/time.h"
#include "rubato/core/command.h"
#include "rubato/core/event.h"

namespace rubato::loop {

// The engine has carried out a Start or a Resize of this generation.
struct RunningFact {
  JobId job;
  Generation generation;
};
// The job no longer uses these GPUs; with `stopped`, it uses none at all.
struct ReleasedFact {
  JobId job;
  Generation generation;
  Allocation gpus;
  bool stopped = false;
};
// The job's run failed.
struct FailedFact {
  JobId job;
  Generation generation;
  // An infrastructure failure: it does not count as a failure of the job.
  bool infrastructure = false;
  std::string why = {};
};
// The machines give the job no GPUs but these now, because of a limit of its user: its account's,
// for example. GPUs that it was to have besides are free for others.
struct QuotaFact {
  JobId job;
  Generation generation;
  Allocation gpus;
  std::string why;
};
// NodeAdded: the numbers of nodes are the engine's own, in order. A fact about a node comes after
// it.
using Fact = std::variant<RunningFact, ReleasedFact, Finished, FailedFact, NodeChanged, NodeAdded,
                          Reserved, QuotaFact>;

class Engine {
 public:
  Engine() = default;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  virtual ~Engine() = default;

  virtual void carry_out(Time now, std::span<const Command> commands) = 0;

  // Appends the facts up to `now`, in the order in which they happened.
  virtual void collect(Time now, std::vector<Fact>& facts) = 0;
};

}  // namespace rubato::loop
