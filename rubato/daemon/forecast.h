// Estimates when waiting jobs will start, for policies that promise nothing.
//
// Assumptions: a running job ends when its speed says. Waiting jobs start in order of submission,
// each as soon as its smallest number of GPUs is free. Real policies shrink jobs or let small jobs
// overtake, so the estimate is no promise. If the end of a job is unknown, the start of every job
// that needs its GPUs is unknown, too.
//
// Pure.
#pragma once

#include <map>
#include <optional>

#include "rubato/daemon/daemon_state.h"

namespace rubato::daemon {

struct Outlook {
  int position = 0;           // in the queue, from 1
  std::optional<Time> start;  // nullopt: unknown
};

// The outlook of every waiting job.
[[nodiscard]] std::map<JobId, Outlook> forecast(const DaemonState& state);
// The same for another snapshot of the loop, with a job that `state` does not have.
[[nodiscard]] std::map<JobId, Outlook> forecast(const DaemonState& state, const Snapshot& snapshot,
                                                const JobRecord& newcomer);

// When the job will end if nothing changes. nullopt if that is unknown.
[[nodiscard]] std::optional<Time> expected_end(const JobRecord& job, const JobView& view, Time now);

}  // namespace rubato::daemon
