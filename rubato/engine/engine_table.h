// The decisions of the live engine: which message goes to which agent, which facts follow from the
// agents' messages, when a node is unknown, and which processes must be killed before a fact may be
// reported.
//
// Pure: no clock, no process, no socket. The inputs are the time (the daemon's steady clock) and
// the agents' messages. The output is a list of orders, to be carried out in this order.
//
// A job has one home: the node of the first slice of its Start. The agent of the home speaks for
// the whole job. A status counts if it comes from the home and does not belong to an earlier start.
// GPUs are released when the home says that the newest generation is obeyed and that no process is
// left on them. Silence never releases a GPU. If the home is silent, only two things end the job:
// the operator marks a node down, or the job itself has asked to stop when it is left alone for so
// long (stop_after). In both cases all processes of the job on this machine are killed first.
//
// A node is used while its agent is connected, has settled, and says that jobs can be started
// there. Otherwise a NodeChanged gives the reason; jobs that run there go on.
//
// A job that has finished is never run again, whatever the generation and whoever reports it. All
// other facts carry the newest generation told, as the answer to that command.
//
// An agent has a *seat*; the GPUs are on *machines*. On one machine the agent of each node is the
// seat of the masters that have their home there, and says whether the node can be used. With a
// ShareTable, there is one seat, that of the front agent beside the daemon: all masters live there,
// and the cluster manager speaks for the machines. A GPU is then released when, in addition, no
// share of the job is left on it, and a job has ended when all its shares are gone.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <variant>
#include <vector>

#include "rubato/base/time.h"
#include "rubato/core/cluster.h"
#include "rubato/core/command.h"
#include "rubato/engine/live_engine.h"
#include "rubato/node/agent_messages.h"

namespace rubato::engine {

class ShareTable;

class EngineTable {
 public:
  // Tell this agent to launch the job. `gpus`: where its first workers run.
  struct Launch {
    NodeId node;
    JobId job;
    Generation generation;
    Allocation gpus;
    std::optional<Batch> batch;
  };
  struct Tell {
    NodeId node;
    ToAgent message;
  };
  // Kill everything that is left of the job on this machine, except starts newer than `generation`;
  // then say swept().
  struct Sweep {
    JobId job;
    Generation generation;
  };
  struct Disconnect {
    NodeId node;
  };
  // To the ShareTable: the job wants shares for these GPUs, is to stop, or has ended.
  struct Shares {
    enum class Wish : std::uint8_t { want, stop, end };
    JobId job;
    Wish wish = Wish::want;
    Generation generation;
    Allocation gpus;
  };
  // Also to the ShareTable: a status that counts, and what the operator says of a machine.
  struct Heard {
    JobStatus status;
  };
  struct Mark {
    NodeId node;
    bool down = false;
  };
  using Order = std::variant<Launch, Tell, Sweep, Disconnect, Shares, Heard, Mark>;

  // `cluster` has the node states that the daemon believes now. The agent of a node that is up has
  // `lease` to connect.
  EngineTable(Cluster cluster, Duration lease, Time now, const ShareTable* shares = nullptr);

  void know(const KnownJob& known);
  // If its home is silent for this long, the job has certainly stopped by itself.
  void ends_alone_after(JobId job, Duration silence);
  void told(const Command& command);
  // The job's end is stored.
  void forget(JobId id);

  void said_hello(Time now, NodeId id, const std::vector<JobStatus>& jobs);
  void heard(Time now, NodeId id, const JobStatus& status);
  // `trouble`: why no job can be started there; or empty.
  void heard_beat(Time now, NodeId id, const std::string& trouble);
  void settled(Time now, NodeId id);
  void lost(NodeId id);
  // No agent can be started there; `why` is the reason.
  void has_no_agent(NodeId id, const std::string& why);
  // Whether the job still waits to be swept: it may have ended by itself meanwhile.
  [[nodiscard]] bool sweeping(JobId id) const;
  // No process of the job is left. `finished`: how the job ended, if it had finished before that.
  void swept(JobId id, const std::optional<JobEnd>& finished);

  // The operator declares that the node is dead with everything on it, or that it may be used
  // again.
  void mark_down(NodeId id);
  void mark_up(NodeId id);

  // --- with shares only: what the ShareTable orders ---

  // Shares of the job are gone, so it may have released GPUs, or have ended.
  void look_again(JobId id);
  // The newest command must be sent again, because the shares have changed.
  void send_again(JobId id);
  void add_node(const NewNode& node);
  // What the manager says about a machine.
  void set_machine(NodeId id, NodeState state, const std::string& why);
  // The ShareTable has become ready: commands that waited for it are sent.
  void shares_ready();

  // To be called several times a second.
  void pass(Time now);

  [[nodiscard]] std::vector<Order> take_orders() { return std::exchange(orders_, {}); }
  [[nodiscard]] std::vector<Fact> take_facts() { return std::exchange(facts_, {}); }
  // The newest status of each job that has said anything since the last call.
  [[nodiscard]] std::vector<JobStatus> take_reports();

  [[nodiscard]] std::optional<NodeId> home_of(JobId job) const;
  [[nodiscard]] NodeState state_of(NodeId node) const { return machines_[node.index()].state; }
  [[nodiscard]] bool connected(NodeId seat) const { return seats_[seat.index()].connected; }
  // No agent is wanted there, because the operator has declared it dead.
  [[nodiscard]] bool is_closed(NodeId seat) const {
    return shares_ == nullptr && state_of(seat) == NodeState::down;
  }
  [[nodiscard]] const Cluster& cluster() const { return cluster_; }
  // Some command has not been answered yet.
  [[nodiscard]] bool waits() const;
  // The GPUs that no fact has released.
  [[nodiscard]] Allocation held_gpus(JobId job) const;

 private:
  struct Seat {
    bool connected = false;
    bool settled = false;
    bool settled_once = false;  // every job there was started or adopted by us
    std::string trouble;        // as its agent reports; without an agent, why there is none
    Time heard;
  };
  struct Machine {
    NodeState state = NodeState::up;
    std::string why;                    // as reported
    NodeState managed = NodeState::up;  // what its manager says
    std::string managed_why;
  };
  struct Job {
    NodeId home;  // its seat
    Command last;
    Generation told;
    Generation start;       // a status with an older generation is of an earlier run
    bool on_gpus = false;   // between its Start and its end
    Allocation held;        // empty unless on_gpus
    bool heard = false;     // its home has reported this run
    bool shown = false;     // also since its last Hello
    bool answered = false;  // `last` has been answered
    bool finished = false;
    bool doomed = false;   // being swept
    bool leaving = false;  // it has ended, but not all its shares are gone
    std::optional<Duration> ends_alone;
    bool infrastructure = false;  // its last run did not end by the job's fault
    std::string why;              // why its last run ended
    JobStatus status;
  };

  [[nodiscard]] Seat& seat(NodeId id) { return seats_[id.index()]; }
  [[nodiscard]] Machine& machine(NodeId id) { return machines_[id.index()]; }
  [[nodiscard]] NodeId seat_of(NodeId machine) const {
    return shares_ == nullptr ? machine : NodeId(0);
  }
  void set_state(NodeId id, NodeState state, std::string why);
  [[nodiscard]] static std::string obstacle(const Seat& seat);
  void judge_seat(NodeId id);
  void judge(NodeId id);
  void told(JobId id, Job& job, const Start& start);
  void told(JobId id, Job& job, const Resize& resize);
  void told(JobId id, Job& job, const Stop& stop);
  void place(JobId id, Job& job, const Allocation& gpus);
  [[nodiscard]] bool is_on(const Job& job, NodeId machine) const;
  [[nodiscard]] bool touches_dead(const Job& job);
  [[nodiscard]] Allocation held_by_shares(JobId id) const;
  void tell_shares(JobId id, Shares::Wish wish, const Allocation& gpus = {});
  void use(JobId id, Job& job);
  void send(JobId id, Job& job);
  void send_table(NodeId id);
  void digest(NodeId from, const JobStatus& status, bool in_hello);
  void obey_status(JobId id, Job& job);
  void leave(JobId id, Job& job);
  void finish(JobId id, Job& job);
  void end(JobId id, Job& job);
  [[nodiscard]] static FailedFact failed(JobId id, const Job& job);
  void doom(JobId id, Job& job);

  Cluster cluster_;
  Duration lease_;
  const ShareTable* shares_;
  std::vector<Seat> seats_;
  std::vector<Machine> machines_;
  std::map<JobId, Job> jobs_;
  std::set<JobId> reported_;
  std::vector<Order> orders_;
  std::vector<Fact> facts_;
};

}  // namespace rubato::engine
