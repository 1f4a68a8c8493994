// The answer to `rubato health`, as far as the state knows it: nodes that cannot be used, a
// decision that could not be carried out, jobs that will be late or fail repeatedly.
#pragma once

#include <functional>
#include <vector>

#include "rubato/api/request.h"
#include "rubato/daemon/daemon_state.h"

namespace rubato::daemon {

// The present problems, each with its remedy. Of jobs, only those that are visible.
[[nodiscard]] std::vector<Problem> problems_of(const DaemonState& state,
                                               const std::function<bool(JobId)>& visible);

}  // namespace rubato::daemon
