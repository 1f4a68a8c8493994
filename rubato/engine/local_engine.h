// The live engine of a cluster on this machine: one agent per node, one master per job, workers in
// slots. A thin shell around EngineTable, which decides, and Agents, which owns agents, sockets and
// the clock.
//
// Everything runs on the thread of its Poller. carry_out() sends at once if the agent is connected;
// otherwise the newest command of a job waits for the Hello of its home's agent.
//
// Agents and masters outlive the engine. After a crash of the daemon the next engine is opened with
// what the journal says was told; the agents report what has happened since.
// A node is unknown when its agent's connection is lost, or after `lease` of silence on the steady
// clock, until an agent has said Hello and settled its table (engine_table.h).
//
// The engine reports only whether a node can be used. The daemon adds that an operator drains it.
// The daemon also decides whether a failed job starts again: the reports say how each run ended.
#pragma once

#include <optional>
#include <vector>

#include "rubato/engine/agents.h"
#include "rubato/engine/engine_table.h"
#include "rubato/engine/live_engine.h"
#include "rubato/wire/poller.h"

namespace rubato::engine {

struct LocalEngineOptions : AgentsOptions {
  Cluster cluster;  // with the states its nodes are believed to be in; the seats are its nodes
};

class LocalEngine final : public LiveEngine {
 public:
  LocalEngine(wire::Poller& poller, LocalEngineOptions options);

  // Listens, and starts an agent for every node that has none alive.
  [[nodiscard]] Result<void> open(const std::vector<KnownJob>& jobs) override;

  void carry_out(Time now, std::span<const Command> commands) override;
  void collect(Time now, std::vector<Fact>& facts) override;
  [[nodiscard]] std::vector<JobStatus> take_reports() override { return table_.take_reports(); }
  void forget(JobId job) override;
  void mark_down(NodeId node) override;
  void mark_up(NodeId node) override;
  void keep_reachable() override { agents_.keep_reachable(); }
  void retire() override { agents_.retire(); }

  // nullopt if it has no GPUs.
  [[nodiscard]] std::optional<NodeId> home_of(JobId job) const { return table_.home_of(job); }
  [[nodiscard]] NodeState state_of(NodeId node) const { return table_.state_of(node); }
  [[nodiscard]] bool connected(NodeId node) const { return table_.connected(node); }
  // Some command has not been answered yet.
  [[nodiscard]] bool waits() const { return table_.waits(); }
  // The process that is the node's agent, as far as is known.
  [[nodiscard]] std::optional<ProcessName> agent_of(NodeId node) const {
    return agents_.process_of(node);
  }

 private:
  LocalEngine(LocalEngineOptions options, wire::Poller& poller);  // complete ones
  void carry_out_orders();

  EngineTable table_;
  Agents agents_;
};

}  // namespace rubato::engine
