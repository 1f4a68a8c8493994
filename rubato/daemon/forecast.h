// When jobs that wait may start: an honest guess for policies that promise nothing.
//
// The jobs that run end when their speed says so; those that wait are taken in order of submission,
// each when as many GPUs are free as it needs at least. Real policies do better or otherwise (they
// shrink jobs, let small ones pass); so it is no promise. Where the end of a job is not known, nor
// are the starts of those that need its GPUs.
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
// The same if the loop were in that state, with a job that the state does not know.
[[nodiscard]] std::map<JobId, Outlook> forecast(const DaemonState& state, const Snapshot& snapshot,
                                                const JobRecord& newcomer);

// When the job will be done if all goes on as it is.
[[nodiscard]] std::optional<Time> expected_end(const JobRecord& job, const JobView& view, Time now);

}  // namespace rubato::daemon
