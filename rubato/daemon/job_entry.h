// How a job comes in: as a row of its own, then as an event that shows it to the policy. A job that
// the policy would judge by a guess of its speed is measured first: another job, a short run of the
// same program, takes its place until the speed is known at a few counts (profiling.h).
#pragma once

#include <optional>

#include "rubato/daemon/core_options.h"
#include "rubato/daemon/transaction.h"

namespace rubato::daemon {

// What the loop is told of the job.
[[nodiscard]] Submitted submitted_event(const JobRecord& job, const DaemonState& state,
                                        const CoreOptions& options);

// Why no policy need be asked about the job; nullopt if one must be.
[[nodiscard]] std::optional<JobEnding> refuse_at_once(const JobRecord& job,
                                                      const DaemonState& state,
                                                      const CoreOptions& options);

// The policy promises, the job has a deadline, and nobody knows how fast it is.
[[nodiscard]] bool must_be_measured(const JobRecord& job, const DaemonState& state);

void enter(Transaction& tx, JobRecord job, const CoreOptions& options);

// A job of which a damaged journal has left its own row alone.
void enter_again(Transaction& tx, JobId id, const CoreOptions& options);

// Starts a run that measures the job, which waits from the row of that run on.
void set_aside(Transaction& tx, JobId id, const CoreOptions& options);

// The policy is new: sets the job aside if this policy would judge it by a guess.
void measure_if_unknown(Transaction& tx, JobId id, const CoreOptions& options);

}  // namespace rubato::daemon
