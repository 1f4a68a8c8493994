// Everything that the scheduler knows: the fold of the events so far. A plain value: a copy copies
// the cluster, and folding the same events gives the same bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "rubato/core/event.h"
#include "rubato/core/gpu_use.h"
#include "rubato/core/snapshot.h"
#include "rubato/place/free_gpus.h"

namespace rubato::loop {

struct State {
  explicit State(Cluster cluster);

  Snapshot snapshot;
  FreeGpus free;                // GPUs in no job's target
  GpuUse busy;                  // GPUs that some job may still be using
  std::vector<JobId> targeted;  // jobs that got a target from the last decision
  // By node: jobs whose target waits until others release GPUs there. A job is listed at one of the
  // nodes that it waits for. Entries may be out of date, so a reader checks the job again.
  std::vector<std::vector<JobId>> waiting_on;
  std::optional<Time> again_at;  // the latest time at which the policy wants to be asked again
  bool decision_due = false;     // something has happened that a policy should see
  Time asked_at = kStart;        // the last time a policy was asked
  std::size_t told = 0;  // how many of snapshot.changed the policy that decides now has seen
};

// Folds one event. Events of an older generation change nothing, except Finished, which is final.
// The Scheduler folds Decided, because it knows the placement.
void fold(State& state, Time now, const Event& event);

// The jobs whose target has some of these GPUs.
[[nodiscard]] std::vector<JobId> jobs_to_move(const State& state, const Reserved& reserved);

// Removes GPUs from a job's target. GPUs that another job shares stay in that job's target.
void give_up(State& state, JobView& job, const Allocation& gpus);

// Computes which GPUs are free from the targets of all jobs.
void recount_free(State& state);

// Changes the GPUs that a job physically holds, and updates its attained service and the busy GPUs.
void set_held(State& state, JobView& job, Allocation gpus);

}  // namespace rubato::loop
