// Who belongs to a training job, as one worker sees it: the protocol of docs/elastic.md without
// sockets, clocks or threads, so that thousands of crash orders can be tried in a second.
//
// Facts go in (a word arrived, a process is dead), actions come out (send this, the step is
// interrupted, go on with that). In undisturbed training it adds no message: the leader's word at
// the end of step t proposes the members of t + 1, and whoever completes t has it. Only a death
// needs more: every member that notices stops, reports what it has applied to all others, and
// the lowest living uid, once it knows of everybody else, commits a new record.
//
// A member is dead only when its process is known to have ended, or, in a job that spans hosts,
// when the master says that it is gone; silence and broken connections interrupt a step but remove
// nobody.
//
// In a job that spans hosts (docs/many-hosts.md) the master's list is the only source of deaths,
// and a worker on it may still live. Whoever knows a later death on the list knows all earlier
// ones, so nobody counts a worker as dead that does not count itself as gone: it ends instead.
//
// Why no two groups can go on apart:
//   * A recovery waits for every living member of the newest record known to any of them, joining
//     and leaving ones included. Whoever completes a step has heard every working member, so these
//     know the record it was done under.
//   * Leaving members send no words and may know an older record. Therefore nobody is taken in
//     from the step a member leaves until its process has ended: whoever may have gone on without
//     it is in the record it knows, and if they are all dead, it has the newest state.
//   * When the one that should commit dies, the next one asks again: a commit counts only if all
//     who are left have said that they will not follow the dead one any more. Whoever has already
//     followed it answers with its commit instead.
//
// Belongs to one thread.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <variant>
#include <vector>

#include "rubato/member/record.h"

namespace rubato::member {

class Membership {
 public:
  struct SendReport {
    Uid to;
    Report report;
  };
  struct SendCommit {
    Uid to;
    Commit commit;
  };
  // To a joiner that was dropped because its connection with another member broke: it may never
  // get all words of the step that says so. Behind the message that took it in, if that is still on
  // its way.
  struct SendDropped {
    Uid to;
    Level attempt;
  };
  // The current step cannot complete; its connections are void.
  struct Interrupted {};
  // Go on with this; if `behind`, first apply the gradient that the holder sends.
  struct Resume {
    Commit commit;
    bool behind;
  };
  // No longer a member, without state: wait to be taken in again.
  struct Dropped {};
  // No longer a member, as planned.
  struct Leave {};
  // No living member of the newest record known here has a complete state. A joining member may
  // be far behind: the job is lost only if no worker has one.
  struct Stranded {};
  // The master counts this worker as gone: end at once, and do nothing else before.
  struct Excluded {};
  using Action = std::variant<SendReport, SendCommit, SendDropped, Interrupted, Resume, Dropped,
                              Leave, Stranded, Excluded>;

  explicit Membership(Uid self) : self_(self) {}

  // This worker starts the job, after a checkpoint of an earlier generation if there is one.
  void found(const Plan& plan, const StepPlan& first, const Generation& after = {});
  // A donor has taken this worker in.
  void adopt(const Proposal& proposal);

  void plan(const Plan& plan);  // from the launcher; older ones are ignored
  void ready(Uid peer);         // connected both ways
  void unready(Uid peer);       // no longer
  void level(Uid peer, const Level& level);
  void dead(Uid peer);  // its process has ended
  // The master's list of all that are gone, taken as one fact: a member that hears only the later
  // deaths of a list would go on, though it is itself on the list.
  void gone(const std::vector<Uid>& list);
  void lost(Uid peer);  // its connection broke: whether it is dead is not known yet
  // A connection that broke was made again. What was on its way may be lost, so it is said again.
  void reconnected(Uid peer);
  void report(Uid from, const Report& report);
  void commit(Uid from, const Commit& commit);
  // The donor says that this attempt to join is over.
  void dropped(const Level& attempt);

  // The words of all working members for the current step.
  void completed(const std::map<Uid, Word>& words);
  // The gradient of the commit's step has been applied.
  void caught_up();

  // What the leader's word should propose for the next step.
  [[nodiscard]] Record propose() const;

  [[nodiscard]] const std::optional<Record>& record() const { return record_; }
  [[nodiscard]] const StepPlan& next() const { return next_; }  // the step after applied()
  [[nodiscard]] Step applied() const { return applied_; }
  [[nodiscard]] bool recovering() const { return recovering_; }
  [[nodiscard]] Role role() const;
  // What to say to all members when this joining one holds all of the state and is connected with
  // each of them.
  [[nodiscard]] Level own_level() const;
  [[nodiscard]] const Plan& newest_plan() const { return plan_; }
  [[nodiscard]] std::vector<Uid> ready_peers() const;
  // The joining members whose connection with this worker broke since they were taken in.
  [[nodiscard]] std::vector<Uid> broken_joiners() const;
  [[nodiscard]] bool is_dead(Uid uid) const { return dead_.contains(uid); }

  [[nodiscard]] std::vector<Action> take_actions();

 private:
  // What was last said to a peer in this recovery.
  struct Told {
    Generation generation;
    std::vector<Uid> dead;
    friend bool operator==(const Told&, const Told&) = default;
  };

  [[nodiscard]] bool planned(Uid uid) const;
  [[nodiscard]] bool may_take_in(const Record& next) const;
  [[nodiscard]] Report own_report() const;
  void enter(const Record& record);
  void start_recovery();
  void take_part(Uid from, const Report& report);
  void tell_all();
  void tell(Uid to, const Report& report);
  void answer_late(Uid to);
  void bury(Uid peer);
  void exclude_self();
  [[nodiscard]] bool works_without_connection(const Record& before) const;
  void tell_dropped(const Record& before);
  void evaluate();
  [[nodiscard]] bool left_out_by(const Commit& commit) const;
  [[nodiscard]] const Record& basis() const;
  [[nodiscard]] bool all_reported(const Record& record) const;
  [[nodiscard]] Commit decide(const Record& record) const;
  void leave_record(bool as_planned);
  void look_for_dead();

  Uid self_;
  Plan plan_;
  std::optional<Record> record_;
  std::optional<Record> known_;  // the newest heard of, kept when no longer a member
  StepPlan next_;
  Step applied_ = kNoState;
  std::optional<Commit> catching_up_;
  std::optional<Commit> last_commit_;

  std::set<Uid> ready_;
  std::set<Uid> ready_everywhere_;
  std::map<Uid, Step> broken_;      // joiners by `since`: the connection with this worker broke
  std::set<Uid> broken_somewhere_;  // joiners of the record with which somebody's connection broke
  std::map<Uid, Level> level_;
  std::set<Uid> dead_;
  std::set<Uid> left_;  // leaving or gone from the record, their process not yet ended

  bool recovering_ = false;
  // Both are of one recovery and hold until it ends: whoever has reported does not go on in it,
  // and says nothing twice.
  std::int64_t reports_of_ = 0;
  std::map<Uid, Report> reports_;
  std::map<Uid, Told> told_;
  std::map<Uid, Report> early_;  // of a later one, whose commit we do not have yet
  std::vector<Action> actions_;
};

}  // namespace rubato::member
