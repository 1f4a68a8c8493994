// The engine of a live cluster on this machine: an agent a node, a master a job, workers in slots.
// The thin shell around EngineTable that owns agents, sockets and the clock; it decides nothing.
//
// Everything belongs to the thread of its Poller and nothing blocks. carry_out() sends at once
// where an agent is connected; elsewhere the newest command of a job waits for its home's Hello.
// collect() is also where time passes: call it several times a second.
//
// Agents and masters outlive it. Opened again after a crash with what the journal knows to be told,
// it goes on where it was: agents say what has happened meanwhile, and the facts follow from that.
// A node is unknown from the loss of its agent's connection, or from `lease` of silence on the
// steady clock, until its agent has said Hello and settled its table; see engine_table.h.
//
// Its word on a node is only whether it can be used: that an operator drains a node is the daemon's
// to lay over it. Whether a failed job is worth another start is the daemon's, too: the reports say
// how each run ended.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "rubato/engine/engine_table.h"
#include "rubato/loop/engine.h"
#include "rubato/node/leftovers.h"
#include "rubato/wire/frames.h"
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
  // All but the home, the generation, the slots with their GPUs and the batch is taken from it.
  std::function<JobLaunch(JobId)> launch_of;
  // What a job has done, as the loop counts it; by default nothing is known to be left.
  std::function<Progress(JobId, const JobProgress&, Time now)> progress_of;
};

class LocalEngine : public Engine {
 public:
  LocalEngine(wire::Poller& poller, LocalEngineOptions options);
  ~LocalEngine() override;

  // Listens, and starts an agent for every node that has none alive; once, before all else.
  [[nodiscard]] Result<void> open(const std::vector<KnownJob>& jobs);

  void carry_out(Time now, std::span<const Command> commands) override;
  void collect(Time now, std::vector<Event>& facts) override;

  // The newest status of each job that has said anything since the last call.
  [[nodiscard]] std::vector<JobStatus> take_reports() { return table_.take_reports(); }
  // nullopt: it has no GPUs.
  [[nodiscard]] std::optional<NodeId> home_of(JobId job) const { return table_.home_of(job); }
  // Its end is stored; it has no GPUs.
  void forget(JobId job);

  // The operator's word that a node is dead with all on it. Every job with a part there fails, once
  // nothing of it is left.
  void mark_down(NodeId node);
  void mark_up(NodeId node);

  // To be called about once a second while the state directory is in its place: the agents' socket
  // is made again if somebody has deleted it.
  void keep_listening();

  // Ends the agents that are connected; jobs go on, and so does a later engine with new agents.
  void dismiss_agents();

  [[nodiscard]] NodeState state_of(NodeId node) const { return table_.state_of(node); }
  [[nodiscard]] bool connected(NodeId node) const { return table_.connected(node); }
  // Some command has not been answered yet.
  [[nodiscard]] bool waits() const { return table_.waits(); }
  // The process that is the node's agent, as far as is known.
  [[nodiscard]] std::optional<ProcessName> agent_of(NodeId node) const;

 private:
  struct Link {
    wire::FrameStream stream;
    std::optional<NodeId> node;  // once it has said Hello
  };
  struct AgentProcess {
    std::optional<ProcessName> process;
    wire::Fd ended;
    Time start_at;
    Duration patience{};
  };

  [[nodiscard]] Time now() const { return options_.clock(); }
  [[nodiscard]] Result<void> prepare();
  [[nodiscard]] Result<void> listen();
  void accept_all();
  void read_link(int key);
  void drop_link(int key);
  void handle(int key, const Json& json);
  void greet(int key, const AgentHello& hello);
  [[nodiscard]] Link* link_of(NodeId node);
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
  [[nodiscard]] std::optional<JobEnd> had_finished(JobId job) const;
  [[nodiscard]] bool is_of_another(const JobStatus& status) const;

  wire::Poller& poller_;
  LocalEngineOptions options_;
  EngineTable table_;
  std::string token_;
  wire::Fd listener_;
  std::optional<wire::Inode> socket_;  // that it listens on, if it is a file
  std::map<int, Link> links_;
  int next_link_ = 0;
  std::vector<AgentProcess> agents_;  // by node
  bool dismissed_ = false;
  Time beat_due_;
  Leftovers leftovers_;
};

}  // namespace rubato::engine
