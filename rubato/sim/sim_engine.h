// The simulated machines: an Engine like any other, whose workers are arithmetic. It alone knows
// the truth about jobs. GPUs are released at once (grace 0), a start or a change of the GPU set
// costs the job its restart time, and nothing but that is lost by a node failure.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "rubato/base/indexed_heap.h"
#include "rubato/base/ordered_bits.h"
#include "rubato/core/cluster.h"
#include "rubato/loop/engine.h"
#include "rubato/sim/workload.h"

namespace rubato {

class SimEngine final : public Engine {
 public:
  // With `topology`, speed depends on the nodes that a job's GPUs are on.
  SimEngine(const Workload& workload, const Cluster& cluster, bool topology);

  void carry_out(Time now, std::span<const Command> commands) override;
  void collect(Time now, std::vector<Event>& facts) override;

  // When the next fact will be there if no command comes.
  [[nodiscard]] std::optional<Time> next_fact() const;

  // A fault of the simulated world: the node goes down or comes back.
  void change_node(Time now, NodeId node, NodeState state);

  // How fast the job trains now, once it has restarted.
  [[nodiscard]] WorkRate rate(JobId job) const { return runs_[job.index()].progress.rate; }
  [[nodiscard]] int gpus(JobId job) const { return runs_[job.index()].gpus.gpus(); }

 private:
  struct Run {
    Generation generation;
    Allocation gpus;
    Progress progress;
    bool ended = false;
  };

  // Notes the generation and gives the job, or nullptr if the command is old or the job has ended.
  [[nodiscard]] Run* accept(JobId id, Generation generation);

  void use(Time now, JobId id, Generation generation, const Allocation& gpus);
  void resize(Time now, const Resize& command);
  void stop(Time now, JobId id, Generation generation);
  [[nodiscard]] WorkRate true_rate(JobId id, const Allocation& gpus) const;

  const Workload& workload_;
  const Cluster& cluster_;
  bool topology_;
  std::vector<Run> runs_;  // by job
  OrderedBits on_gpus_;    // jobs that hold some
  IndexedHeap<Time> ends_;
  std::vector<Event> facts_;
};

}  // namespace rubato
