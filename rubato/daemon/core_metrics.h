// The counters of the core, and their text for Prometheus (api/metrics.h).
#pragma once

#include <string>
#include <vector>

#include "rubato/api/metrics.h"
#include "rubato/daemon/core_parts.h"

namespace rubato::daemon {

// Counts the pauses of resizes that ended between two statuses of a job. A status lists the newest
// pauses. Those that the status before also had were counted then.
void observe_pauses(const std::vector<double>& before, const std::vector<double>& after,
                    Histogram& histogram);

// Counts a job that has ended.
void count_end(Metrics& metrics, const JobRecord& job);

// Counts first starts, with the time that the job has waited, and restarts.
void count_starts(Metrics& metrics, const std::vector<Command>& commands, const DaemonState& state,
                  Time now);

// All metrics that this caller may see.
[[nodiscard]] std::string metrics_for(const Caller& caller, const CoreParts& core);

}  // namespace rubato::daemon
