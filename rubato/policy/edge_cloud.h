// Preemptive scheduling on edge and cloud sites (Wang, Zhou, Jiao, Zhang, Li, Li, "Preemptive
// Scheduling for Distributed Machine Learning Jobs in Edge-Cloud Networks", JSAC'22): the chunks of
// a job are dispatched to workers when it comes, and stay there; workers preempt.
//
//   dispatch  a chunk of length q goes to the worker where its own wait, plus its transfer, plus q,
//             plus q for each longer chunk there, is least
//   worker    runs its chunk with the least time left
//
// Sure (abstract): chunks are dispatched on arrival, workers preempt, then parameter servers are
// placed; D_max (1 + 1/eps)-competitive with (1 + eps) speed, D_max being the most chunks of a job.
// Our reading: the rule of dispatch and the order on a worker, those of the classical algorithm
// that has this bound.
//
// Here a worker is a GPU, and a site is a group of nodes as --cluster names them (`4x8:a,2x2:b`). A
// job has as many chunks as it asks for GPUs. `bandwidth` says how fast data reaches each site: a
// chunk of `data` GB then takes 8 data/bandwidth seconds to get there, which steers the dispatch.
// (Nobody simulates the transfer itself.)
//
// Deviates:
// - The chunks of a job are trained in step, so they run together or not at all. Jobs are visited
//   by time left, and a job runs if all its workers are free. Its chunks go to GPUs of one type:
//   the one where they cost least together.
// - There are no parameter servers to place: jobs exchange gradients among their workers.
// - After a fault, or where GPUs are taken away for jobs that may not be preempted, the jobs that
//   have lost a worker are dispatched again.
//
// Knows: GPUs asked for, work left, speed by type, restart cost. It is rigid.
//
// Pure: decide() is const; what it remembers between calls is State.
#pragma once

#include <vector>

#include "rubato/policy/policy.h"

namespace rubato::policy {

struct EdgeCloud {
  struct Config {
    std::vector<double> bandwidth;  // Gbit/s, by site; sites beyond these have their data
    double data = 1;                // GB a chunk
  };
  struct Record {
    JobId job;
    std::vector<int> workers;  // ascending; GPUs counted over all nodes; empty: none is up for it
  };
  struct State {
    std::vector<Record> records;  // by job
    [[nodiscard]] Json save() const;
    [[nodiscard]] static Result<State> load(const Json& json);
  };

  Config config;

  [[nodiscard]] Decision decide(const Snapshot& snapshot, State& state) const;
  [[nodiscard]] int least_gpus(const JobSpec& spec, const SpeedModel& /*speed*/) const {
    return spec.requested;
  }
};

// What a chunk adds to the sum of all ends on a worker whose chunks have these seconds left.
[[nodiscard]] double dispatch_cost(double chunk_s, double transfer_s,
                                   const std::vector<double>& left_s);

[[nodiscard]] std::vector<PolicyEntry> edge_cloud_rows();

}  // namespace rubato::policy
