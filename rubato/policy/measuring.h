// CoDDL's throughput measurement (Hwang et al., NSDI'21) as a wrapper around any elastic policy.
// The policy first overestimates a new job, so the job starts on as many GPUs as the policy wants.
// Then quick resizes measure it on smaller counts. After that the policy decides on the measured
// speeds.
//
// A count is measured by running there for a while. The estimate in the snapshot lists the measured
// counts (SpeedModel::measured). For each job the wrapper halves the count that the policy wants,
// again and again, and sends the job to the first count without a measurement within a factor of
// sqrt(2). GPUs that this frees stay idle for the moment, so no other job moves twice. A newer
// resize replaces an older one in flight: every command carries a generation.
//
// It is a wrapper and not part of AFS, because every policy that reads curves needs it. So each
// policy can be compared with and without full knowledge.
//
// Knows: which counts were measured, restart costs, estimated time left. Our reading: jobs that
// will end within ten times the cost of a measurement are not measured.
#pragma once

#include <memory>

#include "rubato/policy/policy.h"

namespace rubato::policy {

// `measuring_time`: how long a job must run on a count until its speed there is known.
[[nodiscard]] std::unique_ptr<Policy> measure_first(std::unique_ptr<Policy> policy,
                                                    Duration measuring_time);

}  // namespace rubato::policy
