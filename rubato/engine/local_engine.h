// The live engine of a cluster on this machine: one agent per node, one master per job, workers in
// slots. A thin shell around EngineTable, which decides; this class owns agents, sockets and the
// clock.
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

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "rubato/engine/engine_table.h"
#include "rubato/engine/live_engine.h"
#include "rubato/node/leftovers.h"
#include "rubato/wire/frame_server.h"
#include "rubato/wire/inode.h"
#include "rubato/wire/poller.h"

namespace rubato::engine {

struct LocalEngineOptions {
  std::string state_directory;
  std::string program;  // `program agent ...`; empty: the one that is running
  Cluster cluster;      // with the states its nodes are believed to be in
  std::string address;  // to listen on; empty: the agents' socket of the state directory
  std::string dial;     // where agents are told to connect; empty: the address
  Duration lease = from_seconds(5);
  std::function<Time()> clock;  // a steady one; empty: the machine's
  // How to run a job. The engine sets the home, the generation, the slots, their GPUs and the
  // batch.
  std::function<JobLaunch(JobId)> launch_of;
};

class LocalEngine final : public LiveEngine {
 public:
  LocalEngine(wire::Poller& poller, LocalEngineOptions options);
  ~LocalEngine() override;

  // Listens, and starts an agent for every node that has none alive.
  [[nodiscard]] Result<void> open(const std::vector<KnownJob>& jobs) override;

  void carry_out(Time now, std::span<const Command> commands) override;
  void collect(Time now, std::vector<Fact>& facts) override;
  [[nodiscard]] std::vector<JobStatus> take_reports() override { return table_.take_reports(); }
  void forget(JobId job) override;
  void mark_down(NodeId node) override;
  void mark_up(NodeId node) override;
  // The agents' socket is made again if somebody has deleted it.
  void keep_reachable() override;
  // Ends the agents that are connected. A later engine starts new ones.
  void retire() override;

  // nullopt if it has no GPUs.
  [[nodiscard]] std::optional<NodeId> home_of(JobId job) const { return table_.home_of(job); }
  [[nodiscard]] NodeState state_of(NodeId node) const { return table_.state_of(node); }
  [[nodiscard]] bool connected(NodeId node) const { return table_.connected(node); }
  // Some command has not been answered yet.
  [[nodiscard]] bool waits() const { return table_.waits(); }
  // The process that is the node's agent, as far as is known.
  [[nodiscard]] std::optional<ProcessName> agent_of(NodeId node) const;

 private:
  struct AgentProcess {
    std::optional<ProcessName> process;
    wire::Fd ended;
    Time start_at;
    Duration patience{};
  };

  [[nodiscard]] Time now() const { return options_.clock(); }
  [[nodiscard]] Result<void> prepare();
  [[nodiscard]] Result<void> listen();
  void dropped(int key);
  void handle(int key, const Json& json);
  void greet(int key, const AgentHello& hello);
  [[nodiscard]] std::optional<int> link_of(NodeId node) const;
  void tell(NodeId node, const ToAgent& message);

  void pass();
  void see_to_agent(NodeId node);
  void watch_agent(NodeId node, const ProcessName& process);
  void agent_ended(NodeId node);

  void carry_out_orders();
  void carry_out(const EngineTable::Launch& order);
  void carry_out(const EngineTable::Tell& order);
  void carry_out(const EngineTable::Sweep& order);
  void carry_out(const EngineTable::Disconnect& order);
  void limit_silence(JobId job);
  [[nodiscard]] std::optional<JobEnd> end_of_finished(JobId job) const;
  [[nodiscard]] bool is_of_another(const JobStatus& status) const;

  wire::Poller& poller_;
  LocalEngineOptions options_;
  EngineTable table_;
  std::string token_;
  wire::FrameServer server_;
  std::optional<wire::Inode> socket_;  // that it listens on, if it is a file
  std::map<int, NodeId> links_;        // connections whose agent has said Hello
  std::vector<AgentProcess> agents_;   // by node
  bool retired_ = false;
  Time beat_due_;
  Leftovers leftovers_;
};

}  // namespace rubato::engine
