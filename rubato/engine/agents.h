// The agents of an engine: starts them, listens for them, and carries messages between them and an
// EngineTable, which decides. It also kills what is left of jobs on this machine. It is the only
// way in which an engine runs agents.
//
// Agents outlive the engine. The next one finds those that live, and they connect again.
//
// Everything runs on the thread of its Poller.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "rubato/engine/engine_table.h"
#include "rubato/node/leftovers.h"
#include "rubato/wire/frame_server.h"
#include "rubato/wire/inode.h"
#include "rubato/wire/poller.h"

namespace rubato::engine {

struct AgentsOptions {
  std::string state_directory;
  std::string program;    // `program agent ...`; empty: the one that is running
  std::size_t seats = 1;  // how many agents
  std::string address;    // to listen on; empty: the agents' socket of the state directory
  std::string dial;       // where agents are told to connect; empty: the address
  Duration lease = from_seconds(5);
  std::function<Time()> clock;  // a steady one; empty: the machine's
  // How to run a job. The home, the generation, the slots, their GPUs and the batch are set here.
  std::function<JobLaunch(JobId)> launch_of;
};

// Fills in what is empty.
void fill_in(AgentsOptions& options);

class Agents {
 public:
  // Called when the table may have orders.
  using Changed = std::function<void()>;

  // The options with their defaults.
  Agents(wire::Poller& poller, AgentsOptions options, EngineTable& table, Changed changed);
  ~Agents();
  Agents(const Agents&) = delete;
  Agents& operator=(const Agents&) = delete;

  // Listens, and starts an agent for every seat that has none alive.
  [[nodiscard]] Result<void> open();
  // Call it several times a second, before EngineTable::pass().
  void pass();
  // The agents' socket is made again if somebody has deleted it.
  void keep_reachable();
  // Ends the agents that are connected. A later engine starts new ones.
  void retire();
  // Watches the agent that is alive, or starts one.
  void see_to(NodeId seat);
  // If the job has stop_after: its home's silence ends it some time.
  void limit_silence(JobId job);

  void carry_out(const EngineTable::Launch& order,
                 std::optional<SharesLaunch> shares = std::nullopt);
  void carry_out(const EngineTable::Tell& order);
  void carry_out(const EngineTable::Sweep& order);
  void carry_out(const EngineTable::Disconnect& order);

  [[nodiscard]] Time now() const { return options_.clock(); }
  // The process that is the agent of a seat, as far as is known.
  [[nodiscard]] std::optional<ProcessName> process_of(NodeId seat) const;

 private:
  struct AgentProcess {
    std::optional<ProcessName> process;
    wire::Fd ended;
    Time start_at;
    Duration patience{};
  };

  [[nodiscard]] Result<void> prepare();
  [[nodiscard]] Result<void> listen();
  void dropped(int key);
  void handle(int key, const Json& json);
  void greet(int key, const AgentHello& hello);
  [[nodiscard]] std::optional<int> link_of(NodeId node) const;
  void tell(NodeId node, const ToAgent& message);
  void watch_agent(NodeId node, const ProcessName& process);
  void agent_ended(NodeId node);
  [[nodiscard]] std::optional<JobEnd> end_of_finished(JobId job) const;
  [[nodiscard]] bool is_of_another(const JobStatus& status) const;

  wire::Poller& poller_;
  AgentsOptions options_;
  EngineTable& table_;
  Changed changed_;
  std::string token_;
  wire::FrameServer server_;
  std::optional<wire::Inode> socket_;  // that it listens on, if it is a file
  std::map<int, NodeId> links_;        // connections whose agent has said Hello
  std::vector<AgentProcess> agents_;   // by seat
  bool retired_ = false;
  Time beat_due_;
  Leftovers leftovers_;
};

}  // namespace rubato::engine
