// Turns what the owner of a job wrote into what the loop is told about the job, and measurements
// into the speed that policies are told.
//
// Speeds are in the job's own unit of work per second. A speed that was not measured is guessed: an
// hour on the smallest GPU count that the job may have, with perfect scaling from there (CoDDL
// overestimates first, too: Hwang et al., NSDI'21). A job that does not say how much work it has
// counts as an hour of work, and its unit is a second of that hour. It ends when its program ends.
//
// What a policy is told:
//   jobs with a deadline, if the policy makes       only the measured counts, because a promise
//   promises                                        must not depend on a guess
//   if counts are tried out (policy/measuring.h,    the measured counts, and perfect scaling beyond
//   or by the policy itself)                        them
//   otherwise                                       the same estimate at every count worth trying
//   adaptive jobs, if the policy tunes batches      a GoodputEstimate, fitted to the measured steps
//                                                   of this job and of other jobs of its profile
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

// The limits of a job on this cluster: "as many as there are" becomes a number.
[[nodiscard]] GpuLimits limits_on(const Cluster& cluster, GpuLimits limits);

// The present limits of a job, as its owner has last set them.
[[nodiscard]] GpuLimits limits_now(const JobRecord& job, const DaemonState& state);

// Whether the speed of the job, or of a job of its profile, was measured on a GPU count that it may
// have. Otherwise its speed is a guess.
[[nodiscard]] bool speed_known(const JobRecord& job, const GpuLimits& limits);

// The work that the loop is told, known or guessed.
[[nodiscard]] Work work_of(const JobFile& file);

// `pairs`: the engine can run two jobs on the same GPUs.
[[nodiscard]] std::shared_ptr<const JobSpec> spec_of(const JobRecord& job, const DaemonState& state,
                                                     Duration restart_cost, bool pairs);

[[nodiscard]] std::shared_ptr<const SpeedModel> estimate_of(const JobRecord& job,
                                                            const GpuLimits& limits,
                                                            const PolicyInForce& policy);

// The speed of the job on the GPUs that it holds, in its own unit, as far as the policy knows. (A
// goodput has another unit. Then it is the measured speed, or the guess.)
[[nodiscard]] WorkRate rate_held(const JobRecord& job, const JobView& view);

[[nodiscard]] bool is_goodput(const SpeedModel& speed);
// The value of a sample at the present batch size, relative to the batch size for which the job was
// tuned. At most 1; 1 if it is not known.
[[nodiscard]] double efficiency_of(const JobRecord& job, const JobProgress& progress);
// The environment variables that tell the training library what the job file says about the batch
// (elastic/options.h). Empty for a job with a fixed batch.
[[nodiscard]] std::map<std::string, std::string> batch_environment(const JobFile& file);

// Whether the new speed differs from the told one so much that the policy should be told.
[[nodiscard]] bool tells_more(const SpeedModel& told, const SpeedModel& now,
                              const GpuLimits& limits);

// The work that is done, and the work per second, as the program reports them; 0: not reported.
[[nodiscard]] double done_by(const JobRecord& job, const JobProgress& progress);
[[nodiscard]] double rate_by(const JobRecord& job, const JobProgress& progress);

// The nonce of a run that measures another job.
[[nodiscard]] std::optional<std::string> nonce_of_run(const JobRecord& job, JobId run);

// The name of a job; if it has none, a new one, which is never only digits.
[[nodiscard]] std::string name_of(const JobFile& file);

}  // namespace rubato::daemon
