// Profiling: jobs whose speed must be known before a policy can promise a deadline (job_entry.h),
// and the runs that measure them.
#pragma once

#include "rubato/daemon/transaction.h"

namespace rubato::daemon {

// Moves each measuring run from one GPU count to the next. When the run is done, or has taken too
// long, the policy sees the job, or the job is refused.
void profile(Transaction& tx);

}  // namespace rubato::daemon
