// The decisions about shares: which ones the cluster manager is asked for, which ones are
// cancelled, which GPUs of our jobs may still have processes, and which GPUs others use.
//
// Pure: no clock, no process, no socket. The inputs are the time, what the engine's jobs want, what
// masters report and what the manager says. The output is a list of orders.
//
// - A share has 1 GPU, or all GPUs of its job on a node if the program restarts at a resize anyway.
// - Its name is never used again, so a request that got lost can be given up: if it was carried out
//   after all, a later listing shows a share that nobody wants, and it is cancelled. The name says
//   which GPUs it has, so the next engine needs no file to adopt it. GPU numbers are our own:
//   managers choose theirs.
// - A share is gone when a listing says so, or does not have it though it began after the share was
//   known to be there. Until then its GPUs are held. Nothing is asked for on GPUs that are held.
// - A wanted share that is gone is replaced by one with another name. If the manager refuses one,
// or
//   does not start it for a while, or it ends at once again and again, its GPUs are reserved for a
//   time, with the manager's reason; so the policy moves or shrinks the job. One of these GPUs
//   after the other is tried again, and if a share starts there, all with the same reason are free
//   again.
// - If a limit of its user is the reason, no GPU is reserved: the job alone is told (QuotaFact).
// - A share whose time limit comes near is replaced by another one on the same GPUs.
// - The manager says how many GPUs of a node others have, not which. They get the highest numbers
//   that none of our jobs has.
// - The nodes of a cluster never change their size. GPUs that a node of the manager gets later are
// a
//   part of it that joins as a node of its own. GPUs that it loses are reserved.
// - If the manager is silent, nothing changes.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "rubato/base/time.h"
#include "rubato/core/allocation.h"
#include "rubato/core/cluster.h"
#include "rubato/core/event.h"
#include "rubato/engine/cluster_manager.h"
#include "rubato/launch/master_messages.h"
#include "rubato/loop/engine.h"

namespace rubato::engine {

// What the name of a share says.
struct NamedShare {
  JobId job;
  Generation generation;  // of the command that asked for it
  NodeId node;
  std::uint64_t gpus = 0;
  std::string serial;  // tells it from all others
  friend bool operator==(const NamedShare&, const NamedShare&) = default;
};
[[nodiscard]] ShareName name_of(const std::string& identity, const NamedShare& share);
// nullopt if it is not spelled as name_of() does, or is of another journal.
[[nodiscard]] std::optional<NamedShare> parse_share_name(const std::string& identity,
                                                         const ShareName& name);

// The node as one that joins a cluster.
[[nodiscard]] NewNode new_node(const ManagedNode& node);
// The name of a part of the manager's node: that of the node itself, NODE+1, NODE+2.
[[nodiscard]] std::string name_of_part(const std::string& node, std::size_t part);
// The manager's name of the node that has this part.
[[nodiscard]] std::string node_of_part(const std::string& name);

class ShareTable {
 public:
  struct Submit {
    ShareName name;
    JobId job;
    NodeId node;
    int gpus = 1;
  };
  struct Cancel {
    ShareName name;
  };
  // Begin a listing, then say listing_began().
  struct List {};
  // The shares of the job are not those that its master knows: it must get a Place.
  struct TellMaster {
    JobId job;
  };
  // Ask held() of the job again: a share is gone.
  struct LookAgain {
    JobId job;
  };
  // What the manager says about the state of a node, apart from its GPUs.
  struct NodeWord {
    NodeId node;
    NodeState state = NodeState::up;
    std::string why;
  };
  using Order = std::variant<Submit, Cancel, List, TellMaster, LookAgain, NodeWord>;

  // `identity` is that of the journal: a-z and 0-9, at most 12. `life` tells this table from all
  // others of the journal, by at most 6 such characters.
  ShareTable(Cluster cluster, std::string identity, std::string life);

  // --- what the engine says ---

  // From now on the job should have these GPUs.
  void want(Time now, JobId id, Generation generation, const Allocation& gpus, bool whole_nodes);
  // The job is to stop. Its shares stay until it has ended, but none is asked for any more.
  void stop(JobId job) { jobs_[job].stopping = true; }
  // The job has no master any more, so all its shares must go.
  void end(Time now, JobId id);
  void heard(const JobStatus& status);
  // The operator says that the node is dead with everything on it, or takes that back.
  void mark_down(Time now, NodeId node);
  void mark_up(NodeId node);

  // --- what the manager says ---

  void listing_began(std::int64_t number) { begun_ = number; }
  void answered(Time now, const ManagerAnswer& answer);

  // To be called several times a second.
  void pass(Time now);

  [[nodiscard]] std::vector<Order> take_orders() { return std::exchange(orders_, {}); }
  // NodeAdded, Reserved and QuotaFact.
  [[nodiscard]] std::vector<Fact> take_facts() { return std::exchange(facts_, {}); }

  // --- questions ---

  // A listing was heard. Before that nobody knows which GPUs are held.
  [[nodiscard]] bool ready() const { return ready_; }
  // GPUs on which there is a share of the job, or may be one.
  [[nodiscard]] Allocation held(JobId job) const;
  // The shares for the GPUs that the job should have. Each GPU is in one of them.
  [[nodiscard]] std::vector<PlacedShare> placed(JobId job) const;
  // Completes the newest Place of a job, or what a Launch says about shares.
  void complete(Place& place, JobId id) const;
  [[nodiscard]] const Cluster& cluster() const { return cluster_; }
  // The manager's name of the node.
  [[nodiscard]] std::string managed_name(NodeId node) const;
  // Why the manager does not answer; empty if it does.
  [[nodiscard]] const std::string& trouble() const { return trouble_; }
  // How many shares may exist, of all jobs.
  [[nodiscard]] std::size_t shares() const;

 private:
  struct Share {
    enum class Stage : std::uint8_t {
      planned,  // not asked for yet
      asked,    // no answer yet: it may be made at any time
      there,    // it was made, or nobody knows: the next listing tells
    };
    JobId job;
    NodeId node;
    std::uint64_t gpus = 0;
    bool wanted = true;
    Stage stage = Stage::planned;
    ManagedShare::State state = ManagedShare::State::waiting;
    std::string why;
    Time since;                      // of this stage and state, or not being wanted
    std::int64_t after = 0;          // a listing that began later tells whether it is there
    std::optional<Time> seen_at;     // in a listing, the last time
    std::optional<Time> cancelled;   // the last time
    std::optional<Time> running_at;  // since when it runs
    bool of_user = false;            // it waits because of a limit of its user
  };
  struct Job {
    Generation generation;
    Allocation gpus;
    bool whole_nodes = false;
    bool stopping = false;
    bool master = true;             // may be alive
    std::int64_t revision = 0;      // of the shares, within the generation
    bool adopted = false;           // its master may know shares that an earlier table planned
    std::vector<ShareName> ended;   // of this generation, for its master
    std::set<ShareName> of_master;  // the shares that the master has by its status
    Allocation in_use;
    Generation obeyed;
    std::int64_t obeyed_revision = 0;
    Time told;                    // when the master was last told
    std::optional<Time> limited;  // since when this generation gets no more shares
  };
  // GPUs that are reserved for a time.
  struct Block {
    Time until;
    std::string why;
    Time scout_after;  // it may be tried earlier than at its end
  };
  struct Machine {
    NodeState state = NodeState::up;
    std::string why;
    std::optional<Time> silent_since;  // by the manager's word
    std::uint64_t others = 0;
    std::uint64_t missing = 0;  // GPUs that it had once
    std::string missing_why;
    bool down = false;                 // by the operator
    std::map<int, Block> blocks;       // by GPU
    std::map<int, std::string> tried;  // the reasons of blocks that are over
    std::map<int, int> failures;       // in a row, by GPU
    std::string reserved_why;          // as reported
  };

  // GPUs of a node that are in our shares: planned ones, and those that may be there.
  struct Use {
    std::uint64_t planned = 0;
    std::uint64_t there = 0;
  };

  void answer(Time now, const Listing& listing);
  void answer(Time now, const ShareTaken& taken);
  void answer(Time now, const ShareRefused& refused);
  void answer(Time now, const ShareUnknown& unknown);
  void answer(Time now, const ManagerTrouble& trouble);
  void see(Time now, const ManagedShare& seen);
  void adopt(Time now, const ManagedShare& seen, const NamedShare& named);
  void see(Time now, const ManagedNode& seen);
  void grow(const ManagedNode& seen);
  void see_part(Time now, NodeId id, const ManagedNode& seen, int gpus);
  // Those that others may have, from the best to the worst choice.
  [[nodiscard]] std::array<std::uint64_t, 4> for_others(NodeId node, const Use& ours) const;
  void set_others(const std::vector<NodeId>& parts, int others, const std::vector<Use>& uses);
  [[nodiscard]] std::vector<Use> uses_of_nodes() const;
  void fit(Time now, JobId id, Job& job);
  void plan(Time now, JobId id, Job& job, NodeId node, std::uint64_t gpus);
  void renew(Time now, Share& share);
  void gone(Time now, const ShareName& name, const std::string& why);
  [[nodiscard]] static bool is_limited(Time now, const Job& job);
  void limit(Time now, const Share& share);
  void unblock(const std::string& why);
  void unblock_all();
  void send_scout(Time now);
  // `scouts`: one may try whether the reason is over.
  void block(Time now, NodeId node, std::uint64_t gpus, const std::string& why, bool scouts = true);
  void tell_master(Time now, JobId id, Job& job);
  void look_at_master(Time now, JobId id, Job& job);
  void submit_planned(Time now);
  void look_at(Time now, const ShareName& name, Share& share);
  void report_reserved(NodeId node);

  Cluster cluster_;
  std::string identity_, life_;
  std::uint64_t serial_ = 0;
  bool ready_ = false;
  bool adopting_ = false;    // in the first listing
  std::int64_t begun_ = 0;   // the newest listing that began
  std::int64_t listed_ = 0;  // the newest listing that was heard
  Time list_at_;             // the next one is due
  Time scout_at_;            // a GPU that is blocked is tried again
  std::string settings_;     // of the manager
  std::string trouble_;
  std::map<ShareName, Share> shares_;  // those that are gone are erased
  std::map<JobId, Job> jobs_;
  std::vector<Machine> machines_;                     // by node
  std::map<std::string, std::vector<NodeId>> parts_;  // of each node of the manager
  std::vector<Order> orders_;
  std::vector<Fact> facts_;
};

}  // namespace rubato::engine
