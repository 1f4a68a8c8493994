// Adds a job: first its row, then the event that shows it to the policy. If the policy would have
// to guess the job's speed, the job is measured first: another job, a short run of the same
// program, runs until the speed is known on a few GPU counts (profiling.h).
#pragma once

#include <optional>

#include "rubato/daemon/core_options.h"
#include "rubato/daemon/transaction.h"

namespace rubato::daemon {

// The event that tells the loop about the job.
[[nodiscard]] Submitted submitted_event(const JobRecord& job, const DaemonState& state,
                                        const CoreOptions& options);

// Why the job is refused under every policy; nullopt if the policy must decide.
[[nodiscard]] std::optional<JobEnding> refuse_at_once(const JobRecord& job,
                                                      const DaemonState& state,
                                                      const CoreOptions& options);

// Whether the policy does admission control, the job has a deadline, and its speed is unknown.
[[nodiscard]] bool must_be_measured(const JobRecord& job, const DaemonState& state);

void enter(Transaction& tx, JobRecord job, const CoreOptions& options);

// Adds the event of a job whose other rows were lost in a damaged journal.
void enter_again(Transaction& tx, JobId id, const CoreOptions& options);

// Starts a run that measures the job. The job waits from the row of that run on.
void set_aside(Transaction& tx, JobId id, const CoreOptions& options);

// After a switch of the policy: measures the job first if the policy would have to guess its speed.
void measure_if_unknown(Transaction& tx, JobId id, const CoreOptions& options);

}  // namespace rubato::daemon
