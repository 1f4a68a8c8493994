// When nodes fail and come back in a simulation: read from a file, or drawn at random from rates.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "rubato/base/result.h"
#include "rubato/base/time.h"
#include "rubato/core/cluster.h"
#include "rubato/core/ids.h"

namespace rubato::sim {

struct NodeEvent {
  Time at = kStart;
  NodeId node;
  NodeState state = NodeState::up;  // up or down

  friend bool operator==(const NodeEvent&, const NodeEvent&) = default;
};

// CSV `time_s,node,event`: seconds since the first submission, node number from 0, down or up.
// The result is sorted by time, then node, then the order of the file.
[[nodiscard]] Result<std::vector<NodeEvent>> read_failures(const std::string& path,
                                                           const Cluster& cluster);
[[nodiscard]] Result<std::vector<NodeEvent>> parse_failures(std::string_view text,
                                                            const std::string& source,
                                                            const Cluster& cluster);

// Times between failures and repair times are exponential. Each node has its own random stream, so
// adding nodes does not change the others. Failures begin before `horizon`; their repairs may be
// later.
[[nodiscard]] Result<std::vector<NodeEvent>> random_failures(const Cluster& cluster,
                                                             double failures_per_node_day,
                                                             double mean_repair_s, Duration horizon,
                                                             std::uint64_t seed);

}  // namespace rubato::sim
