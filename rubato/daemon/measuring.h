// Turns the speeds that programs report into what policies are told.
#pragma once

#include "rubato/core/job.h"
#include "rubato/daemon/core_options.h"
#include "rubato/daemon/reports.h"
#include "rubato/daemon/transaction.h"

namespace rubato::daemon {

// Stores the job's progress and speed from the status, at most once in CoreOptions::measure_every.
// Tells the policy if the difference matters.
void measure(Transaction& tx, Reports& reports, const JobStatus& status,
             const CoreOptions& options);

// A program that does not say hello to its launcher has one process. The job then keeps only the
// GPU of that process. After a late hello, the job may have as many GPUs as before.
void look_if_plain(Transaction& tx, const JobStatus& status);

// Tells the policy the speed of the job as it is known now.
void estimate(Transaction& tx, JobId id);

// The job's progress as its program reports it, with the present rate.
[[nodiscard]] Progress progress_of(const Transaction& tx, const Reports& reports, JobId id,
                                   WorkRate rate);

}  // namespace rubato::daemon
