// When waiting jobs may start: an estimate for policies that promise nothing.
//
// Running jobs are taken to end as their speed says. Waiting jobs are taken in order of submission;
// each starts when its smallest number of GPUs is free. Real policies shrink jobs or let small jobs
// pass, so the estimate is no promise. If the end of a job is unknown, the start of every job that
// needs its GPUs is unknown, too.
//
// Pure.
#pragma once

#include <map>
#include <optional>

#include "rubato/daemon/daemon_state.h"

namespace rubato::daemon {

struct Outlook {
  int position = 0;           // among those that wait, from 1
  std::optional<Time> start;  // nullopt: unknown
};

// For every job that waits.
[[nodiscard]] std::map<JobId, Outlook> forecast(const DaemonState& state);
// The same for a loop in another state, with a job that `state` does not know.
[[nodiscard]] std::map<JobId, Outlook> forecast(const DaemonState& state, const Snapshot& snapshot,
                                                const JobRecord& newcomer);

// When the job will be done if all goes on as it is.
[[nodiscard]] std::optional<Time> expected_end(const JobRecord& job, const JobView& view, Time now);

}  // namespace rubato::daemon
