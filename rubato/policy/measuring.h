// CoDDL's throughput measurement (Hwang et al., NSDI'21) around any elastic policy: a new job
// starts on as many GPUs as the policy, which first overestimates it, wants it to have; then it is
// measured at smaller counts by quick resizes, and after that the policy decides on what was
// measured.
//
// A count is measured by running there for a while; the estimate in the snapshot lists the counts
// it was made from (SpeedModel::measured). For each job the wrapper looks down from the count the
// policy wants, halving: the first count that has no measurement within a factor of sqrt(2) is
// where the job goes. GPUs that this leaves free stay idle for the moment, so nobody else is moved
// twice. A newer resize supersedes the older one in flight: every command carries a generation.
//
// It is a wrapper, not part of AFS, because what it needs is what every policy that reads curves
// needs: wrapped, each of them can be compared with itself knowing everything.
//
// Knows: which counts were measured, restart costs, estimated time left. Our reading: jobs that
// will be over in less than ten times what a measurement costs are not measured.
#pragma once

#include <memory>

#include "rubato/policy/policy.h"

namespace rubato::policy {

// `measuring_time` is how long a job must run on a count until its speed there is known.
[[nodiscard]] std::unique_ptr<Policy> measure_first(std::unique_ptr<Policy> policy,
                                                    Duration measuring_time);

}  // namespace rubato::policy
