// Jobs whose speed must be known before a policy can promise anything (job_entry.h): the runs that
// measure them, and the moment at which the policy is shown the job.
#pragma once

#include "rubato/daemon/transaction.h"

namespace rubato::daemon {

// Takes each run that measures from one GPU count to the next. When it is done, or has taken too
// long, the policy is shown the job, or the job is refused.
void profile(Transaction& tx);

}  // namespace rubato::daemon
