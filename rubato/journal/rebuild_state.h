// The parts of a loop's state that are not stored: free and busy GPUs. They follow from its jobs.
#pragma once

#include <string>

#include "rubato/loop/state.h"

namespace rubato::journal {

// Checks the jobs of a state against each other, and computes from them what is not stored. Returns
// the first contradiction; empty if there is none.
[[nodiscard]] std::string rebuild_state(State& state);

}  // namespace rubato::journal
