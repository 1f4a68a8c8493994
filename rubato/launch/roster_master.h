// The rules of a master whose workers are on several hosts. Pure: facts go in, actions come out.
//
// What LiveRun chooses (how many workers, on which shares) is not decided here. This class keeps
// the roster and sees to three things:
//
//   * Durable before said. Whatever a worker or a share hears is in the roster first, so the next
//     master knows it. A master whose write fails has been replaced, and ends without a word.
//   * A worker is gone only by the word of the share that started it, or by exclusion. Silence is
//     no death. If a share is silent, its workers X may be excluded when some other worker S,
//     not gone and linked to this master now, has itself said that it works with state in a record
//     R, and no plan since R's has omitted S. Then S works in every record that X can still reach,
//     and X cannot complete a step without S: X has stopped, whether it lives or not.
//       - S must say it itself: the leader may know that S works while S does not. If all others
//         are then excluded, nobody has the state.
//       - Before a founder is appointed nobody has a state, and anybody may be excluded.
//       - "No plan has omitted S": else a leader in X may have let S leave, and goes on without it.
//   * A round ends only when nothing can be saved by waiting, and the next begins only when every
//     worker of it is gone. While it ends, nothing is said to its workers: the manager may call a
//     worker gone that lives, and the others must not go on without it.
//
// If no share is linked, the master itself is cut off, and does nothing.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <utility>
#include <variant>
#include <vector>

#include "rubato/launch/roster.h"

namespace rubato::launch {

class RosterMaster {
 public:
  struct SayToWorker {
    Uid uid;
    wire::RosterWord word;
  };
  struct SayToShare {
    ShareName share;
    std::variant<wire::StartOrder, wire::KillOrder, wire::EndsKept> order;
  };
  // The cluster manager should end this share. Asked again until share_gone().
  struct CancelShare {
    ShareName share;
  };
  using Action = std::variant<SayToWorker, SayToShare, CancelShare>;

  // Takes the job over after the version that was read. Ended at once if another was quicker.
  RosterMaster(RosterStore& store, const RosterVersion& seen);

  // --- facts ---
  // False: a later connection has replaced the one on which this was said, or this master ends.
  // Only the end of the latest connection makes a share or a worker silent.
  bool share_said(const wire::ShareHello& hello);
  void share_silent(const ShareName& share);
  // The cluster manager says that it has ended. Its processes may live on.
  void share_gone(const ShareName& share);
  bool worker_said(const wire::WorkerHello& hello);
  void worker_silent(Uid uid);

  // Whether this is the process that has the share's name: the first one that asked. Another one
  // must end.
  bool admit(const wire::ShareHello& hello);

  // --- decisions; false: not possible now ---
  // Starts one more worker, which no plan names yet.
  std::optional<Uid> add_worker(const ShareName& share);
  // With this number, which was never used.
  bool add_worker(const ShareName& share, Uid uid, const Slot& slot = {});
  bool plan(std::vector<Uid> workers);
  bool kill(Uid uid);
  // Excludes the workers of shares that are silent or gone, if that is legal.
  bool exclude_silent();
  // Gives the round up if no worker can have the state, or if a share is gone whose workers cannot
  // be excluded. Begins the next round when all workers of one that ends are gone.
  bool look_for_end();
  // Ends the round: the caller knows that no worker has the state.
  bool give_up();
  // A new start of the job: whoever is left of the earlier one has no part in it.
  bool begin_start(std::int64_t start);
  // What the next master should know. set_run() waits for the next version, note() writes one.
  void set_run(RosterRun run) { roster_.run = std::move(run); }
  bool note(RosterRun run);
  // Reads the epoch again. A master that no worker needs to talk to would never hear that it was
  // replaced, and would keep its connections for ever.
  void read_epoch();

  [[nodiscard]] bool ended() const { return ended_; }  // replaced by a later master
  [[nodiscard]] const Roster& roster() const { return roster_; }
  [[nodiscard]] std::vector<ShareName> linked_shares() const;
  [[nodiscard]] bool linked(Uid uid) const { return said_.contains(uid); }
  [[nodiscard]] std::vector<Action> take_actions() { return std::exchange(actions_, {}); }

 private:
  [[nodiscard]] bool write(const Roster& next);
  void write_gone(const std::vector<Uid>& uids);
  [[nodiscard]] bool appoint_founder();
  void say(Uid uid);
  void say_to_all();
  void order_share(const wire::ShareHello& hello);
  void kill_all();
  [[nodiscard]] bool share_linked(const ShareName& share) const { return shares_.contains(share); }
  [[nodiscard]] bool is_survivor(Uid uid) const;
  [[nodiscard]] bool has_survivor(const std::set<Uid>& excluded) const;
  [[nodiscard]] std::set<Uid> on_gone_shares() const;
  [[nodiscard]] bool cannot_be_saved() const;
  [[nodiscard]] bool surely_without_state(Uid uid) const;

  RosterStore& store_;
  std::int64_t version_;
  Roster roster_;
  bool ended_ = false;
  std::map<ShareName, std::int64_t> share_connections_;  // the latest of each
  std::map<Uid, std::int64_t> worker_connections_;
  std::set<ShareName> shares_;  // linked
  std::set<ShareName> gone_shares_;
  std::map<Uid, wire::WorkerHello> said_;  // the last word of each linked worker
  std::vector<Action> actions_;
};

}  // namespace rubato::launch
