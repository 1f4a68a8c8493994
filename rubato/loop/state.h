// Everything the scheduler knows, as the fold of the events so far. A plain value: copying it
// copies the cluster, and folding the same events gives the same bytes.
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
  std::vector<JobId> targeted;  // jobs that were given a target by the last decision
  // By node: jobs whose target waits for others to release GPUs there. A job is listed at one node
  // it misses; entries may be out of date, so who reads one asks the job again.
  std::vector<std::vector<JobId>> waiting_on;
  std::optional<Time> again_at;  // when the policy wants to be asked again at the latest
  bool decision_due = false;     // something a policy should look at has happened
  Time asked_at = kStart;        // the last time a policy was asked
  std::size_t told = 0;  // how many of snapshot.changed the policy now deciding has been told
};

// Folds one event. Events of an older generation change nothing, but for Finished, which is final.
// Decided is not folded here but by the Scheduler, which knows the placement.
void fold(State& state, Time now, const Event& event);

// Takes GPUs out of a job's target. Those that another job shares stay its own.
void give_up(State& state, JobView& job, const Allocation& gpus);

// Which GPUs are free, from the targets of all jobs.
void recount_free(State& state);

// Changes what a job physically holds, keeping its attained service and the busy GPUs in step.
void set_held(State& state, JobView& job, Allocation gpus);

}  // namespace rubato::loop
