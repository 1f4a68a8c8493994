// The one refusal that is not a policy's: a job that no state of the cluster could ever run.
#pragma once

#include <optional>

#include "rubato/core/event.h"
#include "rubato/policy/policy.h"

namespace rubato::loop {

[[nodiscard]] std::optional<Reject> never_fits(const Submitted& job, const Policy& policy,
                                               const Cluster& cluster);

}  // namespace rubato::loop
