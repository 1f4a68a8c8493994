// The answer to History: lines of the past, from memory or from the journal.
#pragma once

#include <cstdint>
#include <optional>

#include "rubato/api/request.h"
#include "rubato/daemon/daemon_state.h"
#include "rubato/journal/journal.h"

namespace rubato::daemon {

// The lines that `caller` may see; with `only`, those of one job. Reads at most `most_rows` rows.
[[nodiscard]] Answer history_for(const Caller& caller, const History& ask,
                                 std::optional<JobId> only, const DaemonState& state,
                                 const Journal& journal, std::uint64_t most_rows);

}  // namespace rubato::daemon
