// AOnline (Zhou, Pang, Zhang, Wu, Jiao, Zhong, Li, "Online Scheduling Algorithm for Heterogeneous
// Distributed Machine Learning Jobs", TCC'22; its first form at MobiHoc'20): least total weighted
// completion time by iterated batches. When a job is planned, its window, its number of workers and
// their type are fixed; it is never preempted and never refused.
//
//   batches  at unit, 2 unit, 4 unit, ... after the start: the batch at 2^l unit takes the jobs
//            that have come and have no plan, and plans them into the window that ends at 2^(l+1)
//            unit
//   plan     the cheapest start, type and count by the prices of OASiS (slot_plan.h), among those
//            that end in the window; a job is in if its weight is above that cost. Who is not in
//            waits for the next batch, which is twice as long
//
// Sure (abstract): window, number and type of workers are decided together; batches, and an
// algorithm for a batch that maximises the weight of the jobs in it. By a summary: no preemption;
// the bound. Our reading: the doubling times, the prices inside of a batch, and the order in it (by
// weight per GPU-time, the largest first). Its bound is about completion times that count from the
// start, not about waiting, and it shows: in a long busy time a newcomer waits for the next batch,
// which may be as far away as the start is.
//
// It is not a key of oasis: another goal (no utilities, deadlines or refusals), other plans (one
// count and one type, no pause) and another cluster (several types). They share the prices.
//
// Deviates:
// - The times count from the moment at which a job came to an empty system, not from the beginning
//   of all times.
// - A batch has at most 64 slots, all of the same length, in which jobs start and end.
// - The range of prices is that of the jobs of the batch.
// - Ends are not exact (a placement may move jobs, programs vary). A job that is late keeps its
//   GPUs, and the job that should have them waits. A job that loses its GPUs to a fault has no plan
//   any more.
//
// Knows: weight, work left, speed by GPU type and count, restart cost.
//
// Pure: decide() is const; what it remembers between calls is State.
#pragma once

#include <vector>

#include "rubato/policy/policy.h"

namespace rubato::policy {

struct Aonline {
  struct Config {
    Duration unit{};
  };
  struct Record {  // of a job without GPUs
    JobId job;
    bool planned = false;
    GpuType type;
    int gpus = 0;
    Time start = kNever;
  };
  struct State {
    std::vector<Record> records;  // by job
    Time origin = kStart;
    int batch = 0;  // the next one
    [[nodiscard]] Json save() const;
    [[nodiscard]] static Result<State> load(const Json& json);
  };

  Config config;

  [[nodiscard]] Decision decide(const Snapshot& snapshot, State& state) const;
  [[nodiscard]] int least_gpus(const JobSpec& spec, const SpeedModel& speed) const;
};

[[nodiscard]] std::vector<PolicyEntry> aonline_rows();

}  // namespace rubato::policy
