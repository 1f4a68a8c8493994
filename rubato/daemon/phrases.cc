#include "rubato/daemon/phrases.h"

#include <bit>
#include <ctime>
#include <fmt/chrono.h>
#include <fmt/format.h>

#include "rubato/base/text.h"
#include "rubato/core/node_states.h"
#include "rubato/jobfile/times.h"

namespace rubato::daemon {

Json number_or_null(const std::optional<double>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json iso(const std::optional<WallTime>& time) {
  return time ? Json(jobfile::to_text(*time)) : Json(nullptr);
}

std::string clock_text(WallTime time, WallTime now) {
  using std::chrono::floor;
  const auto day = floor<std::chrono::days>(time);
  // In seconds, because a system_clock in nanoseconds ends in the year 2262.
  const std::tm parts = fmt::gmtime(floor<std::chrono::seconds>(time).time_since_epoch().count());
  if (day == floor<std::chrono::days>(now)) return fmt::format("{:%H:%M:%S} UTC", parts);
  return fmt::format("{:%Y-%m-%d %H:%M:%S} UTC", parts);
}

std::optional<WallTime> wall(const DaemonState& state, const std::optional<Time>& time) {
  if (!time || *time == kNever) return std::nullopt;
  return state.wall(*time);
}

std::optional<WallTime> promised_by(const DaemonState& state, const JobRecord& job) {
  if (!job.promise) return std::nullopt;
  return job.deadline ? job.deadline : wall(state, job.promise->finish);
}

Json iso_of(const DaemonState& state, const std::optional<Time>& time) {
  return iso(wall(state, time));
}

std::string clock_at(const DaemonState& state, Time time) {
  return clock_text(state.wall(time), state.wall(state.time()));
}

std::string plan_text(const std::vector<GpuStep>& plan) {
  std::string text;
  int last = -1;
  int shown = 0;
  for (const GpuStep& step : plan) {
    if (step.gpus == last || (step.gpus == 0 && last < 0)) continue;
    if (++shown > 6) {
      text += " -> ...";
      break;
    }
    text += fmt::format("{}{}", text.empty() ? "" : " -> ", step.gpus);
    last = step.gpus;
  }
  return text.empty() ? "" : fmt::format(", planned {} GPU{}", text, text == "1" ? "" : "s");
}

std::optional<NodeId> node_in_trouble(const DaemonState& state) {
  const auto& nodes = state.now().cluster.nodes();
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].state == NodeState::unknown) return NodeId(static_cast<NodeId::rep>(i));
  }
  return std::nullopt;
}

std::string node_called(const Cluster& cluster, NodeId node) {
  return cluster.has_own_name(node) ? fmt::format("node {}", cluster.name(node))
                                    : fmt::format("node {}", node.value());
}

std::string node_text(const DaemonState& state, NodeId node) {
  const std::string& why = state.node_why(node);
  return fmt::format("{} is {}{}{}", node_called(state.now().cluster, node),
                     to_text(state.now().cluster.node(node).state), why.empty() ? "" : ": ", why);
}

std::vector<std::string> others_texts(const DaemonState& state) {
  std::vector<std::string> texts;
  const Cluster& cluster = state.now().cluster;
  for (std::size_t i = 0; i < cluster.nodes().size(); ++i) {
    const NodeId node(static_cast<NodeId::rep>(i));
    const int gpus = std::popcount(cluster.node(node).reserved);
    if (gpus == 0) continue;
    const std::string& why = state.reserved_why(node);
    texts.push_back(fmt::format("{} of {} {} reserved{}{}", plural(gpus, "GPU"),
                                node_called(cluster, node), gpus == 1 ? "is" : "are",
                                why.empty() ? "" : ": ", why));
  }
  return texts;
}

std::string setback_text(const JobRecord& job) {
  if (job.has_quota()) return fmt::format("a limit of its user: {}", job.quota->why);
  const Setbacks& last = *job.setbacks;
  const std::string what = last.infrastructure
                               ? std::string("a start that failed because of the infrastructure")
                               : fmt::format("failure {}", job.failures);
  return last.why.empty() ? what : fmt::format("{}: {}", what, last.why);
}

std::string unknown_nodes(const DaemonState& state, const Allocation& held) {
  std::vector<std::string> unknown;
  for (const Slice& slice : held.slices()) {
    if (state.now().cluster.node(slice.node).state == NodeState::unknown)
      unknown.push_back(node_text(state, slice.node));
  }
  return fmt::format("{}", fmt::join(unknown, "; "));
}

}  // namespace rubato::daemon
