// The answer to `rubato explain`: why a job has the GPUs that it has, what it waits for, and what
// would change that. It uses the last decision; it guesses nothing.
#pragma once

#include "rubato/base/json.h"
#include "rubato/daemon/views.h"

namespace rubato::daemon {

// `sees_all`: the caller may see the jobs of all users. Otherwise jobs of other users are counted
// and not named.
[[nodiscard]] Json explain(const ViewContext& context, const JobRecord& job, bool sees_all);

}  // namespace rubato::daemon
