// Pages that the program carries (pages.S), with their data.
#pragma once

#include <string>

#include "rubato/base/json.h"

namespace rubato::cmd {

// The report of the simulator.
[[nodiscard]] std::string report_page(const Json& data);
// What was learned: placements of a graph (data.kind is "graph"), or weights of a policy ("learn").
[[nodiscard]] std::string study_page(const Json& data);

}  // namespace rubato::cmd
