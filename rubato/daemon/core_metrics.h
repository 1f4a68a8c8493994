// What the core counts, and the text of it all for Prometheus (api/metrics.h).
#pragma once

#include <string>
#include <vector>

#include "rubato/api/metrics.h"
#include "rubato/daemon/core_parts.h"

namespace rubato::daemon {

// The pauses of resizes that were settled between two statuses of a job. A status has the newest
// ones: those that it shares with the end of the status before are known already.
void observe_pauses(const std::vector<double>& before, const std::vector<double>& after,
                    Histogram& histogram);

// A job that is gone.
void count_end(Metrics& metrics, const JobRecord& job);

// First starts, with the time the job has waited, and restarts.
void count_starts(Metrics& metrics, const std::vector<Command>& commands, const DaemonState& state,
                  Time now);

// What was counted and how things stand, as this caller may see it.
[[nodiscard]] std::string metrics_for(const Caller& caller, const CoreParts& core);

}  // namespace rubato::daemon
