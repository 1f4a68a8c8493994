// For policies that decide in rounds and leave everything as it is in between.
#pragma once

#include <map>
#include <optional>

#include "rubato/base/json.h"
#include "rubato/core/decision.h"
#include "rubato/core/snapshot.h"

namespace rubato::policy {

// Every job keeps its GPUs and its batch.
[[nodiscard]] Decision as_it_is(const Snapshot& snapshot);

// The first multiple of the interval, counted from the start of time, that is after `now`.
[[nodiscard]] Time first_multiple_after(Time now, Duration interval);

// A number for each job, such as how often it was restarted, as [[job, count], ...].
[[nodiscard]] Json counts_json(const std::map<JobId, int>& counts);
[[nodiscard]] std::optional<std::map<JobId, int>> counts_of(const Json& json);
// Whether it is a whole number from 0 to the largest int.
[[nodiscard]] bool is_count(const Json& json);

}  // namespace rubato::policy
