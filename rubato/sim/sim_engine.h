// The simulated machines: an Engine like any other, whose workers are arithmetic. It alone knows
// the truth about jobs. GPUs are released at once (grace 0), a start or a change of the GPU set
// costs the job its restart time, and nothing but that is lost by a node failure. Two jobs on the
// same GPUs run at the speeds of the pair; when one comes or goes, a Running tells the other's
// speed.
//
// A job with a profile (sim/profiles.h) advances from epoch to epoch: within one its rate is
// constant, so its end is exact. Its agent measures when a restart is over, when the batch changes
// and at each new epoch. The nodes it is on always matter.
//
// With interference, two jobs that each span several nodes and meet on one are both slowed down.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "rubato/base/indexed_heap.h"
#include "rubato/base/ordered_bits.h"
#include "rubato/core/cluster.h"
#include "rubato/core/gpu_use.h"
#include "rubato/loop/engine.h"
#include "rubato/sim/sim_agent.h"
#include "rubato/sim/workload.h"

namespace rubato::sim {

class SimEngine final : public Engine {
 public:
  // With `topology`, speed depends on the nodes that a job's GPUs are on.
  // `interference` is the share of its speed that a job loses to another on the same network.
  SimEngine(const Workload& workload, const Cluster& cluster, bool topology,
            double interference = 0);

  void carry_out(Time now, std::span<const Command> commands) override;
  void collect(Time now, std::vector<Event>& facts) override;

  // When the next fact will be there if no command comes.
  [[nodiscard]] std::optional<Time> next_fact() const;

  // A fault of the simulated world: the node goes down or comes back.
  void change_node(Time now, NodeId node, NodeState state);

  // How fast the job trains now, once it has restarted.
  [[nodiscard]] WorkRate rate(JobId job) const { return runs_[job.index()].progress.rate; }
  [[nodiscard]] int gpus(JobId job) const { return runs_[job.index()].gpus.gpus(); }

  // What policies may know of a job's speed now.
  [[nodiscard]] std::shared_ptr<const SpeedModel> estimate(JobId job);

 private:
  struct Run {
    Generation generation;
    Allocation gpus;
    Progress progress;
    std::optional<JobId> partner;  // a job that shares its GPUs
    bool ended = false;
    bool interfered = false;
  };
  // Of a job with a profile.
  struct Training {
    Training(const Application& what, std::optional<int> owners_batch)
        : application(what), agent(what, owners_batch) {}

    const Application& application;
    SimAgent agent;
    std::optional<Batch> granted;  // nullopt: its owner's
    Batch batch;
    StepSeconds seconds;
    int epoch = 0;
    bool measured = false;  // since the GPUs or the batch changed

    // Work left when the epoch ends.
    [[nodiscard]] Work left_after_epoch() const {
      return application.work() - application.progress_after(epoch);
    }
  };

  // Notes the generation and gives the job, or nullptr if the command is old or the job has ended.
  [[nodiscard]] Run* accept(JobId id, Generation generation);

  void use(Time now, JobId id, Generation generation, const Allocation& gpus,
           const std::optional<Batch>& batch);
  void resize(Time now, const Resize& command);
  void stop(Time now, JobId id, Generation generation);
  void advance(Time now, JobId id, std::vector<Event>& facts);
  void finish(Time now, JobId id, std::vector<Event>& facts);
  void choose_batch(JobId id, const std::optional<Batch>& granted);
  void schedule(JobId id);
  void update_interference(Time now);
  [[nodiscard]] bool meets_another(const Allocation& gpus) const;
  [[nodiscard]] WorkRate true_rate(JobId id) const;
  [[nodiscard]] WorkRate undisturbed_rate(JobId id) const;

  // Changes a job's GPUs and with them the speed of the job that shared or will share them.
  void set_gpus(Time now, JobId id, Allocation gpus);
  void pair_up(Time now, JobId id);
  void pair_off(Time now, JobId id);
  void change_speed(Time now, JobId id);

  const Workload& workload_;
  const Cluster& cluster_;
  bool topology_;
  double interference_;
  std::vector<Run> runs_;                             // by job
  std::vector<std::unique_ptr<Training>> trainings_;  // by job; nullptr without a profile
  std::vector<int> spanning_;                         // by node: jobs there that span several
  bool spans_changed_ = false;
  OrderedBits on_gpus_;  // jobs that hold some
  GpuUse in_use_;
  IndexedHeap<Time> ends_;  // when a job ends or, with a profile, advances
  std::vector<Event> facts_;
};

}  // namespace rubato::sim
