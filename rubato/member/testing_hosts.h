// For tests: a job whose workers are on several hosts, with the real Membership, Standing,
// RosterMaster and ShareState of every process, and a simulated network (testing_network.h).
//
// Faults: workers, hosts and masters die; masters and workers are frozen and thawed; hosts are cut
// off, also in one direction; connections break and lose their last bytes; masters crash between a
// write and what they wanted to say; several masters live at once; the cluster manager calls a
// share gone whose processes live.
//
// A host has two addresses. A worker tells its peers the one that leads to its master. So two peers
// may know it by different ones after it has found another master.
//
// What must always hold:
//   * Workers of one round that are not gone have one record a generation, and equal states.
//   * Nobody, not even a worker that is gone, takes a step that the others have not taken or will
//     repeat as it was: no two groups step.
//   * All who take a step in one recovery know each member on the same host, which is really its
//     host: the ways of the sums follow from this (elastic/reduction_plan.h).
//   * No step is given up while a worker that is not gone has applied it. A round is given up only
//     if no worker can go on.
//   * A round begins with the newest checkpoint of the round before.
//   * When the faults stop, training goes on with exactly the planned workers.
//
// `Rules` switches off one rule of the driver at a time. What is tested here are the pure classes,
// so a rule is broken by what surrounds them: a store that forgets, a message that is incomplete, a
// fact that is told too early.
#pragma once

#include <cstdint>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "rubato/launch/roster_master.h"
#include "rubato/launch/share_state.h"
#include "rubato/member/checkpoint_fence.h"
#include "rubato/member/membership.h"
#include "rubato/member/standing.h"
#include "rubato/member/testing_network.h"

namespace rubato::member::hosts {

using launch::Roster;
using launch::RosterMaster;
using launch::RosterVersion;

struct Rules {
  bool exclusive_versions = true;  // of the roster
  bool durable_before_said = true;
  bool survivor_never_omitted = true;
  bool survivor_says_so_itself = true;
  bool survivor_linked = true;
  bool nothing_said_while_ending = true;
  bool master_reads_epoch = true;
  bool hello_names_epoch = true;
  bool worker_refuses_lower_epoch = true;
  bool share_refuses_lower_epoch = true;
  bool share_starts_once = true;
  bool share_repeats_ends = true;
  bool death_only_from_gone = true;
  bool whole_gone_list = true;
  bool gone_worker_ends_first = true;
  bool unknown_members_live = true;
  bool found_once = true;
  bool peers_compare_rounds = true;
  bool told_again = true;  // Membership::reconnected
  bool newer_connection_voids = true;
  bool broken_joiner_dropped = true;
  bool donor_tells_dropped = true;
  bool broken_joiner_interrupts = true;
  bool checkpoint_names = true;
  bool base_of_own_round = true;
  bool hosts_by_record = true;
};

using History = std::map<Step, std::uint64_t>;  // the state after each step, as a hash

inline std::uint64_t after_step(std::uint64_t before, const StepPlan& step) {
  Random mixed(before ^
               static_cast<std::uint64_t>(step.step * 1000003 + step.cursor * 7919 + step.samples));
  return mixed.next();
}

// --- what is durable ---

struct Versions {
  std::map<std::int64_t, Roster> all{{0, Roster()}};
  [[nodiscard]] const Roster& newest() const { return all.rbegin()->second; }
};

// One master's access to the versions. If nothing is durable before it is said, writes wait here
// and are lost with the master.
class Store : public launch::RosterStore {
 public:
  Store(Versions& versions, const Rules& rules) : versions_(versions), rules_(rules) {}
  [[nodiscard]] RosterVersion newest() const override {
    return {versions_.all.rbegin()->first, versions_.newest()};
  }
  [[nodiscard]] bool create(std::int64_t number, const Roster& roster) override {
    if (!rules_.durable_before_said) {
      waiting_.emplace_back(number, roster);
      return true;
    }
    return make(number, roster);
  }
  [[nodiscard]] bool flush() {
    const auto waiting = std::exchange(waiting_, {});
    return std::all_of(waiting.begin(), waiting.end(),
                       [&](const auto& one) { return make(one.first, one.second); });
  }

 private:
  bool make(std::int64_t number, const Roster& roster) {
    if (rules_.exclusive_versions) return versions_.all.emplace(number, roster).second;
    versions_.all.insert_or_assign(number, roster);
    return true;
  }
  Versions& versions_;
  const Rules& rules_;
  std::vector<std::pair<std::int64_t, Roster>> waiting_;
};

struct Checkpoint {
  CheckpointName name;
  StepPlan next;
  History history;
};

struct CheckpointDirectory {
  std::map<CheckpointName, Checkpoint> files;
  std::vector<CheckpointClaim> claims;
  std::optional<Checkpoint> best;  // the newest that was written by the claimed round
  [[nodiscard]] std::int64_t claimed() const { return claims.empty() ? 0 : claims.back().round; }
};

// --- processes ---

struct Master : Process {
  Master(Pid number, int on, Versions& versions, const Rules& rules)
      : Process(number, on), store(versions, rules) {}
  Store store;
  std::optional<RosterMaster> core;
  std::map<Uid, int> workers;  // connections
  std::map<wire::ShareName, int> shares;
  Roster last;
  [[nodiscard]] bool serves() const { return alive && core && !core->ended(); }
};

struct Share : Process {
  Share(Pid number, int on, const wire::ShareName& called)
      : Process(number, on), name(called), core(called) {}
  wire::ShareName name;
  launch::ShareState core;
  int master = kNone;  // connection
  bool gone = false;   // by the manager's word
};

struct Heard {
  std::int64_t recovery;
  Word word;
};
struct Gradient {
  std::int64_t recovery;
  Step step;
  Uid from;
  std::uint64_t state;
};

using Places = std::map<Uid, std::string>;  // the host of each working member
struct Done {
  std::int64_t recovery = 0;  // in which a step was taken
  Places places{};
};

// Those who went on together after a recovery.
struct Group {
  std::int64_t recovery = 0;
  Step after = 0;  // which step
  std::vector<Member> members{};
  friend bool operator==(const Group&, const Group&) = default;
};

struct Worker : Process {
  Worker(Pid number, int on, Uid self, std::int64_t round, Pid parent)
      : Process(number, on), uid(self), share(parent), membership(self), standing(self, round) {}

  Uid uid;
  Pid share;
  Membership membership;
  Standing standing;
  int master = kNone;   // connection
  std::string address;  // of its host, as it tells its peers
  std::optional<wire::WorkerHello> said_to_master;
  bool welcomed = false;
  bool founding = false;

  struct Peer {
    int connection = kNone;
    int pending = kNone;
    int newest = kNone;  // connection that was ever made
    bool dials = false;
    std::string address{};                                      // as it was told last
    std::vector<std::function<void(int connection)>> unsent{};  // data of this recovery
  };
  std::map<Uid, Peer> peers;

  History history;
  std::map<Step, Done> completed_under;
  std::vector<Heard> words;
  std::pair<std::int64_t, Step> said{-1, -1};
  std::vector<Gradient> gradients;
  std::optional<Commit> behind;
  std::optional<Group> resumed;
  std::map<Uid, Step> broken;  // for a switched-off rule
  int steps_to_level = 0;
  bool said_level = false;
  Step steps_done = 0;

  [[nodiscard]] bool holds_state() const { return alive && membership.applied() != kNoState; }
  [[nodiscard]] bool connected(Uid peer) const {
    const auto found = peers.find(peer);
    return found != peers.end() && found->second.connection != kNone;
  }
};

class Hosts : public Network {
 public:
  explicit Hosts(std::uint64_t seed, Rules rules = {});

  // Faults at random for so many events, then none: everything must come right.
  void run(int events);

  struct Counts {
    int steps = 0;
    int stormy_steps = 0;  // while there were faults
    int recoveries = 0;
    int joins = 0;
    int leaves = 0;
    int drops = 0;
    int exclusions = 0;  // of workers that lived
    int adoptions = 0;   // masters
    int rounds = 0;
    int zombies = 0;  // workers that heard that they were gone
    int stranded = 0;
    int checkpoints = 0;
    void add(const Counts& other) {
      steps += other.steps;
      stormy_steps += other.stormy_steps;
      recoveries += other.recoveries;
      joins += other.joins;
      leaves += other.leaves;
      drops += other.drops;
      exclusions += other.exclusions;
      adoptions += other.adoptions;
      rounds += other.rounds;
      zombies += other.zombies;
      stranded += other.stranded;
      checkpoints += other.checkpoints;
    }
    [[nodiscard]] std::string text() const {
      return fmt::format(
          "steps {} with faults {} recoveries {} joins {} leaves {} drops {} exclusions {} masters "
          "{} rounds {} "
          "zombies {} stranded {} checkpoints {}",
          steps, stormy_steps, recoveries, joins, leaves, drops, exclusions, adoptions, rounds,
          zombies, stranded, checkpoints);
    }
  } counts;

 protected:
  void on_lost(Process& process, int connection) override;
  void on_event(Process& process) override;

  // --- the world ---
  void inject();
  void time_out();
  void freeze_or_thaw();
  void cut_or_heal();
  void kill_somebody();
  void kill_host(int host);
  void manager_says_gone(Share& share);
  void keep_running();
  Share& start_share(int host);
  Master& start_master();
  void settle();
  [[nodiscard]] bool settled(std::map<Uid, Step>& base);
  [[nodiscard]] std::string describe() const;
  // RUBATO_TRACE=1 prints what happens.
  template <class... Arguments>
  void trace(fmt::format_string<Arguments...> text, Arguments&&... arguments) const {
    if (tracing_) fmt::print("{}\n", fmt::format(text, std::forward<Arguments>(arguments)...));
  }

  // --- a master ---
  void tick(Master& m);
  void choose(Master& m);
  void change_plan(Master& m, std::vector<Uid> workers);
  void obey(Master& m);
  void say(Master& m, const RosterMaster::SayToWorker& action);
  void order(Master& m, const RosterMaster::SayToShare& action);
  void cancel(const wire::ShareName& name);
  void after_write(Master& m, const Roster& before);
  void end_master(Master& m);
  void hear_worker(Master& m, int connection, const wire::WorkerHello& hello,
                   const std::vector<Uid>& working);
  void hear_share(Master& m, int connection, const wire::ShareHello& hello);

  // --- a share ---
  void dial_master(Share& s);
  void say_hello(Share& s);
  void obey(Share& s, const wire::StartOrder& order);
  void obey(Share& s, const wire::KillOrder& order);
  void obey(Share& s, const wire::EndsKept& kept);

  // --- a worker ---
  void dial_master(Worker& w);
  void say_hello(Worker& w);
  [[nodiscard]] wire::WorkerHello hello_of(const Worker& w) const;
  void hear(Worker& w, wire::RosterWord word);
  void take_word(Worker& w, const wire::RosterWord& word);
  void meet_others(Worker& w);
  void dial(Worker& w, Uid to);
  void hello_from(Worker& w, Worker& from, int connection, const std::string& address);
  void connected(Worker& w, Uid peer, int connection, const std::string& address);
  void lost_peer(Worker& w, Uid peer);
  void lost_connection(Worker& w, int connection);
  void lost_connection(Master& m, int connection);
  void found(Worker& w);
  void end_worker(Worker& w);
  void start_worker(Share& s, const wire::StartOrder& order);
  [[nodiscard]] Master* some_master();
  [[nodiscard]] bool accepts(const Worker& w, const Worker& from) const;
  void leave_if_unplanned(Worker& w);
  void send_control(Worker& w, Uid to, std::function<void(Worker&)> message);
  void send_data(Worker& w, Uid to, std::function<void(Worker&)> message);
  void bury_unknown(Worker& w, const Record& record);

  void progress(Worker& w);
  bool advance(Worker& w);
  void say_word(Worker& w, std::pair<std::int64_t, Step> of);
  void say_level(Worker& w);
  bool complete(Worker& w);
  void take_in(Worker& w, const Record& before);
  void taken_in(Worker& w, const Proposal& proposal, const History& history);
  bool catch_up(Worker& w);
  void write_checkpoint(Worker& w);
  void written(Worker& w, const Checkpoint& checkpoint);

  void act(Worker& w);
  void perform(Worker& w, const Membership::SendReport& send);
  void perform(Worker& w, const Membership::SendCommit& send);
  void perform(Worker& w, const Membership::SendDropped& send);
  void perform(Worker& w, const Membership::Interrupted&);
  void perform(Worker& w, const Membership::Resume& resume);
  void perform(Worker& w, const Membership::Dropped&);
  void perform(Worker& w, const Membership::Leave&);
  void perform(Worker& w, const Membership::Stranded&);
  void perform(Worker& w, const Membership::Excluded&);
  void forget(Worker& w);

  // --- what must hold ---
  void check_record(const Worker& w) const;
  void check_state(const Worker& w) const;
  [[nodiscard]] bool stepped(const Worker& besides, std::int64_t recovery) const;
  void check_groups(const Worker& w, std::int64_t recovery, Step step);
  [[nodiscard]] Places places_of(const Worker& w, const Record& record) const;
  void check_places(const Worker& w, Step step, const Done& own) const;
  void check_end(const Master& m, const Roster& before) const;

  template <class Kind>
  [[nodiscard]] static std::vector<Kind*> living(std::vector<Kind*> all) {
    std::erase_if(all, [](const Kind* process) { return !process->alive; });
    return all;
  }
  [[nodiscard]] Worker* worker(Uid uid) const;
  [[nodiscard]] Share* share(const wire::ShareName& name) const;
  // It counts: neither gone nor of an earlier round, by what is durable.
  [[nodiscard]] bool counts_on(const Worker& w) const;
  [[nodiscard]] bool chance(double of) { return random_.uniform() < of; }

  Rules rules_;
  int host_count_ = 2;
  int wanted_ = 2;
  double fault_chance_ = 0;
  double exclude_chance_ = 0;
  double plan_chance_ = 0;
  double lie_chance_ = 0;
  double crash_chance_ = 0;
  int faults_ = 0;
  int most_faults_ = 0;
  bool settling_ = false;
  bool tracing_ = false;
  bool scripted_ = false;  // masters choose nothing by themselves
  int names_ = 0;
  Versions versions_;
  CheckpointDirectory directory_;
  std::map<Uid, Pid> by_uid_;
  std::set<int> dead_hosts_;
  std::vector<Master*> masters_;
  std::vector<Share*> shares_;
  std::vector<Worker*> workers_;
  std::map<std::int64_t, std::map<std::int64_t, Group>> groups_;  // by round, recovery: who stepped
};

}  // namespace rubato::member::hosts
