// The only refusal outside of policies: a job that the cluster could never run.
#pragma once

#include <optional>

#include "rubato/core/event.h"
#include "rubato/policy/policy.h"

namespace rubato::loop {

[[nodiscard]] std::optional<Reject> never_fits(const Submitted& job, const Policy& policy,
                                               const Cluster& cluster);

}  // namespace rubato::loop
