// From what programs say of their speed to what policies are told of it.
#pragma once

#include "rubato/core/job.h"
#include "rubato/daemon/core_options.h"
#include "rubato/daemon/reports.h"
#include "rubato/daemon/transaction.h"

namespace rubato::daemon {

// Stores what the status says of the job's progress and speed, at most once in
// CoreOptions::measure_every, and tells the policy what makes a difference.
void measure(Transaction& tx, Reports& reports, const JobStatus& status,
             const CoreOptions& options);

// A program that does not speak to its launcher has one process: the job keeps the GPU of that
// process alone. If the program speaks after all, the job may have again what it had before.
void look_if_plain(Transaction& tx, const JobStatus& status);

// Tells the policy the speed of the job as it is known now.
void estimate(Transaction& tx, JobId id);

// How far the job has come by what its program says, and that it goes on at this rate.
[[nodiscard]] Progress progress_of(const Transaction& tx, const Reports& reports, JobId id,
                                   WorkRate rate);

}  // namespace rubato::daemon
