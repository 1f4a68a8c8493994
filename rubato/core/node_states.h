// The names of the states of a node, in files, messages and metrics.
#pragma once

#include <array>
#include <string_view>

#include "rubato/base/json_reader.h"
#include "rubato/core/cluster.h"

namespace rubato::core {

inline constexpr std::array<NameOf<NodeState>, 4> kNodeStates = {{
    {NodeState::up, "up"},
    {NodeState::draining, "draining"},
    {NodeState::down, "down"},
    {NodeState::unknown, "unknown"},
}};

[[nodiscard]] constexpr std::string_view to_text(NodeState state) {
  return name_in(kNodeStates, state);
}

}  // namespace rubato::core
