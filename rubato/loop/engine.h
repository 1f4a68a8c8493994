// The interface to the machines: the simulator, this machine, Slurm, Kubernetes. An engine carries
// out commands and reports facts. It never decides. A command whose generation is not newer than
// the last one of its job changes nothing. GPUs count as used until Released, Finished or Failed. A
// job that has finished obeys no further command. If a Resize finds its job failed, the answer is
// Failed with the new generation; to a Stop, it is Released without GPUs. engine_contract.h tests
// all this.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "rubato/base/time.h"
#include "rubato/core/command.h"
#include "rubato/core/event.h"

namespace rubato::loop {

class Engine {
 public:
  Engine() = default;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  virtual ~Engine() = default;

  virtual void carry_out(Time now, std::span<const Command> commands) = 0;

  // Appends the facts up to `now`, in the order in which they happened.
  virtual void collect(Time now, std::vector<Event>& facts) = 0;
};

}  // namespace rubato::loop
