// Phrases that several views use: times, plans, nodes and failures in words.
//
// Pure functions of the state.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "rubato/base/json.h"
#include "rubato/daemon/daemon_state.h"

namespace rubato::daemon {

// ISO 8601, or null.
[[nodiscard]] Json number_or_null(const std::optional<double>& value);
[[nodiscard]] Json iso(const std::optional<WallTime>& time);
[[nodiscard]] Json iso_of(const DaemonState& state, const std::optional<Time>& time);

// nullopt for no time and for kNever.
[[nodiscard]] std::optional<WallTime> wall(const DaemonState& state,
                                           const std::optional<Time>& time);

// The time by which the job was promised to be done, as all commands show it.
[[nodiscard]] std::optional<WallTime> promised_by(const DaemonState& state, const JobRecord& job);

// "17:40:00 UTC"; with the date if it is not the day of `now`.
[[nodiscard]] std::string clock_text(WallTime time, WallTime now);
[[nodiscard]] std::string clock_at(const DaemonState& state, Time time);

// ", planned 2 -> 4 GPUs": the GPU counts of a plan in order.
[[nodiscard]] std::string plan_text(const std::vector<GpuStep>& plan);

// "node 1 is unknown: its agent is not connected".
[[nodiscard]] std::string node_text(const DaemonState& state, NodeId node);
// "node 3", or "node tux07" if it has a name.
[[nodiscard]] std::string node_called(const Cluster& cluster, NodeId node);
// "2 GPUs of node tux07 are reserved: why", for each such node.
[[nodiscard]] std::vector<std::string> others_texts(const DaemonState& state);
// The first node that is unknown: its agent is silent, or no job can be started there.
[[nodiscard]] std::optional<NodeId> node_in_trouble(const DaemonState& state);
// The same words for all unknown nodes on which a job has GPUs. Empty if there are none.
[[nodiscard]] std::string unknown_nodes(const DaemonState& state, const Allocation& held);

// The last failure of a job that has failed: "failure 2: exited with code 1".
[[nodiscard]] std::string setback_text(const JobRecord& job);

}  // namespace rubato::daemon
