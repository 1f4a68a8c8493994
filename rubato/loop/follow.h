// Stored commands count, also if today's code would send others. A driver that reads commands back
// from a journal makes the state follow them.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "rubato/core/command.h"
#include "rubato/loop/state.h"

namespace rubato::loop {

// Changes the state as if the loop had sent the commands `told`, and as if each job in `untold` had
// got no command after the one that is given there. A decision is then due.
void follow(State& state, const std::vector<Command>& told,
            const std::map<JobId, std::optional<Command>>& untold);

// The GPUs that a command gives to its job; nullptr if it gives none.
[[nodiscard]] const Allocation* gpus_of(const Command& command);

}  // namespace rubato::loop
