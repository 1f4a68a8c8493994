// What to know about a trace before its figures are believed: how much work it is for the cluster,
// and what is odd about its jobs.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "rubato/base/json.h"
#include "rubato/core/cluster.h"
#include "rubato/sim/trace.h"
#include "rubato/sim/workload.h"

namespace rubato::sim {

struct TraceVerdict {
  std::size_t jobs = 0;
  double gpu_hours = 0;  // each job on the GPUs it asks for
  double span_s = 0;     // from the first to the last submission
  // The GPU-time asked for, divided by the cluster's in that span; nullopt: all come at once.
  std::optional<double> load;
  std::size_t estimated = 0;  // jobs whose duration the trace does not give
  std::size_t zero = 0;       // jobs with nothing to do
  std::size_t too_large = 0;  // jobs that ask for more GPUs than the cluster has
  std::size_t gaps = 0;       // long times without a submission
  double longest_gap_s = 0;
  double longest_gap_at_s = 0;     // on the trace's clock
  std::vector<TraceRows> rows;     // of a log: what became of its rows
  std::vector<std::string> notes;  // what is odd, a sentence each; empty: nothing is
};

// `workload` was made from `trace`.
[[nodiscard]] TraceVerdict judge(const Trace& trace, const Workload& workload,
                                 const Cluster& cluster);

[[nodiscard]] Json to_json(const TraceVerdict& verdict);
[[nodiscard]] std::string to_text(const TraceVerdict& verdict);

}  // namespace rubato::sim
