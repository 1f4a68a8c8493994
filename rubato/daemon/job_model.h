// From what the owner of a job wrote to what the loop is told of it, and from what was measured to
// what policies are told of its speed.
//
// Speeds are in the job's own unit of work a second. What nobody has measured is guessed: an hour
// on the smallest count it may have, and perfect scaling from there (CoDDL overestimates first,
// Hwang et al., NSDI'21). A job that does not say how much work it has is taken for one of an hour,
// and its unit is a second of that hour; it ends when its program says so.
//
// How a policy is told:
//   jobs with a deadline, where the policy promises   the counts that were measured, and no other:
//                                                     a promise on a guess is none
//   where counts are tried out (policy/measuring.h,   the measured counts, perfect scaling beyond
//   or by the policy itself)
//   else                                              the same estimate at every count worth trying
//   where the policy tunes batches, jobs that let     a GoodputEstimate, fitted to the steps that
//   their batch change                                were measured, of jobs of its profile, too
//
// Pure.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "rubato/base/result.h"
#include "rubato/core/cluster.h"
#include "rubato/core/job.h"
#include "rubato/daemon/daemon_state.h"
#include "rubato/daemon/records.h"

namespace rubato::daemon {

inline constexpr double kGuessedSeconds = 3600;

// The counts a job may have on this cluster: "as many as there are" made a number.
[[nodiscard]] GpuLimits limits_on(const Cluster& cluster, GpuLimits limits);

// The same of a job, by what its owner has last said of it.
[[nodiscard]] GpuLimits limits_now(const JobRecord& job, const DaemonState& state);

// Whether its speed was measured, of it or of its like, at a count that it may have: all else would
// be a guess.
[[nodiscard]] bool speed_known(const JobRecord& job, const GpuLimits& limits);

// The work the loop is told, known or guessed.
[[nodiscard]] Work work_of(const JobFile& file);

[[nodiscard]] std::shared_ptr<const JobSpec> spec_of(const JobRecord& job, const DaemonState& state,
                                                     Duration restart_cost);

[[nodiscard]] std::shared_ptr<const SpeedModel> estimate_of(const JobRecord& job,
                                                            const GpuLimits& limits,
                                                            const PolicyInForce& policy);

// What it does on the GPUs it holds, in its own unit, as far as its policy knows. (Goodput is told
// in another unit: then it is what was measured, or the guess.)
[[nodiscard]] WorkRate rate_held(const JobRecord& job, const JobView& view);

[[nodiscard]] bool is_goodput(const SpeedModel& speed);
// How much a sample is worth at its present batch, beside one at the batch it was tuned for: at
// most 1, and 1 if nothing is known.
[[nodiscard]] double efficiency_of(const JobRecord& job, const JobProgress& progress);
// The variables by which the training library learns what the file says of the batch
// (train/options.h); none for a job whose batch is fixed.
[[nodiscard]] std::map<std::string, std::string> batch_environment(const JobFile& file);

// Whether what is now known makes a difference somewhere, so that a policy should hear of it.
[[nodiscard]] bool tells_more(const SpeedModel& told, const SpeedModel& now,
                              const GpuLimits& limits);

// How much of its unit a job has done and does a second, by what its program tells; 0 = not told.
[[nodiscard]] double done_by(const JobRecord& job, const JobProgress& progress);
[[nodiscard]] double rate_by(const JobRecord& job, const JobProgress& progress);

// The nonce of a job that runs to measure another.
[[nodiscard]] std::optional<std::string> nonce_of_run(const JobRecord& job, JobId run);

// A name for a job without one, never all digits.
[[nodiscard]] std::string name_of(const JobFile& file);

}  // namespace rubato::daemon
