// The simulated machines. They follow the contract of loop/engine.h, but their facts are events
// with the progress of the job, because only this class knows the truth about jobs. GPUs are
// released at once (grace 0). A start or a change of the GPU set costs the job its restart time,
// and a node failure costs no more than that. Two jobs on the same GPUs run at the speeds of the
// pair. When one of them comes or goes, a Running reports the other's speed. An opportunistic job
// beside a guaranteed one has only the share of its speed that leaves the other 95% of its own
// (model/guest.h).
//
// A job with a profile (sim/profiles.h) advances from epoch to epoch. Within an epoch its rate is
// constant, so its end is exact. Its agent measures when a restart is over, when the batch changes,
// and at each new epoch. Its speed always depends on its nodes.
//
// A job that changes its batch size by itself (BatchPhases) goes from phase to phase in the same
// way. At each change, policies are told what they may know of it from then on.
//
// With a contention model, jobs that share nodes slow each other down as it says. If it is one of
// links, an order may say who sends first (sim/link_order.h).
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "rubato/base/indexed_heap.h"
#include "rubato/base/ordered_bits.h"
#include "rubato/core/cluster.h"
#include "rubato/core/command.h"
#include "rubato/core/event.h"
#include "rubato/core/gpu_use.h"
#include "rubato/model/contention.h"
#include "rubato/sim/contention.h"
#include "rubato/sim/link_order.h"
#include "rubato/sim/sim_agent.h"
#include "rubato/sim/workload.h"

namespace rubato::sim {

class SimEngine {
 public:
  // With `topology`, speed depends on the nodes of a job's GPUs.
  // `contention`: what a job loses to others on its nodes; nullptr: nothing.
  SimEngine(const Workload& workload, const Cluster& cluster, bool topology,
            std::shared_ptr<const ContentionModel> contention = nullptr,
            LinkOrder order = LinkOrder::fair);

  // From now on the job's stage ends when so much work is left. Until then, and for jobs that are
  // no trials, it ends with the job.
  void set_stage(JobId job, Work left_at_end);

  void carry_out(Time now, std::span<const Command> commands);
  void collect(Time now, std::vector<Event>& facts);

  // When the next fact will happen if no command comes.
  [[nodiscard]] std::optional<Time> next_fact() const;

  // A simulated failure or repair: the node goes down or comes back.
  void change_node(Time now, NodeId node, NodeState state);

  // How fast the job trains now, once it has restarted.
  [[nodiscard]] WorkRate rate(JobId job) const { return runs_[job.index()].progress.rate; }
  [[nodiscard]] int gpus(JobId job) const { return runs_[job.index()].gpus.gpus(); }

  // What policies may know about a job's speed now.
  [[nodiscard]] std::shared_ptr<const SpeedModel> estimate(JobId job);

 private:
  struct Run {
    Generation generation;
    Allocation gpus;
    Progress progress;
    std::optional<JobId> partner;  // a job that shares its GPUs
    bool ended = false;
    double kept = 1;  // the share of its speed beside the jobs on its nodes
    int turn = 0;     // Tenant::turn
    Work left_after_stage = 0;
    std::size_t phase = 0;  // of a job that changes its batch size by itself
  };
  // The state of a job with a profile.
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

  // Stores the generation and returns the job; nullptr if the command is old or the job has ended.
  [[nodiscard]] Run* accept(JobId id, Generation generation);

  void use(Time now, JobId id, Generation generation, const Allocation& gpus,
           const std::optional<Batch>& batch);
  void resize(Time now, const Resize& command);
  void stop(Time now, JobId id, Generation generation);
  void advance(Time now, JobId id, std::vector<Event>& facts);
  void next_phase(Time now, JobId id, std::vector<Event>& facts);
  void finish(Time now, JobId id, std::vector<Event>& facts);
  void choose_batch(JobId id, const std::optional<Batch>& granted);
  void schedule(JobId id);
  void update_contention(Time now);
  void order_links(Time now);
  void order_stages(Time now, const LinkContention& links);
  void order_by_intensity(const LinkContention& links);
  [[nodiscard]] Tenant tenant(std::size_t job) const;
  [[nodiscard]] double kept_beside_others(std::size_t job) const;
  [[nodiscard]] WorkRate true_rate(JobId id) const;
  [[nodiscard]] WorkRate undisturbed_rate(JobId id) const;
  // Both of jobs without a profile.
  [[nodiscard]] WorkRate rate_beside(JobId id, JobId other, const Shape& shape) const;
  [[nodiscard]] BatchSpeed speed_now(JobId id) const;

  // Changes a job's GPUs, and so the speed of the job that shared or will share them.
  void set_gpus(Time now, JobId id, Allocation gpus);
  void pair_up(Time now, JobId id);
  void pair_off(Time now, JobId id);
  void change_speed(Time now, JobId id);

  const Workload& workload_;
  const Cluster& cluster_;
  bool topology_;
  std::shared_ptr<const ContentionModel> contention_;
  LinkOrder order_;
  bool order_changed_ = false;
  std::vector<Run> runs_;                             // by job
  std::vector<std::unique_ptr<Training>> trainings_;  // by job; nullptr without a profile
  NodeTenants tenants_;                               // with a contention model
  std::vector<NodeId> disturbed_;                     // nodes where a job came or went
  OrderedBits on_gpus_;                               // jobs that hold some
  GpuUse in_use_;
  IndexedHeap<Time> ends_;  // when a job ends or (with a profile) advances
  std::vector<Event> facts_;
};

}  // namespace rubato::sim
