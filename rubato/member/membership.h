// The members of a training job, as one worker knows them. This is the protocol of docs/elastic.md
// without sockets, clocks and threads, so a test can try thousands of orders of crashes in a
// second.
//
// Inputs are facts: a word has arrived, a process is dead. Outputs are actions: send this message,
// interrupt the step, continue with that step. Training without failures needs no additional
// message: the leader's word at the end of step t proposes the members of step t + 1, and every
// member that completes t has this word. After a death, every member that notices it stops and
// reports to all others what it has applied. When the living member with the lowest uid has all
// reports, it commits a new record.
//
// A member is dead only when its process is known to have ended, or, in a job that spans hosts,
// when the master says that it is gone; silence and broken connections interrupt a step but remove
// nobody.
//
// In a job that spans hosts (docs/many-hosts.md) the master's list is the only source of deaths,
// and a worker on it may still live. Whoever knows a later death on the list knows all earlier
// ones, so nobody counts a worker as dead that does not count itself as gone: it ends instead.
//
// Why two groups can never continue separately:
//   * A recovery waits for every living member of the newest record that any of them knows, also
//     for joining and leaving members. A member that completes a step has the words of all working
//     members, so these know the record of the step.
//   * Leaving members send no words and may know an older record. So no worker is accepted from the
//     step at which a member leaves until its process has ended. Then all members that may have
//     continued without it are in the record that it knows. If they are all dead, the leaving
//     member has the newest state.
//   * If the member that should commit dies, the next one asks again. A commit counts only if all
//     remaining members have said that they will not follow the dead one any more. A member that
//     has already followed it answers with the commit of the dead one instead.
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
  // The current step cannot be completed. Its connections are not used any more.
  struct Interrupted {};
  // Continue with this. If `behind`, first apply the gradient that the holder sends.
  struct Resume {
    Commit commit;
    bool behind;
  };
  // No longer a member, and without state: wait to be accepted again.
  struct Dropped {};
  // No longer a member, as planned.
  struct Leave {};
  // No living member of the newest known record has a complete state. The job is lost only if no
  // other worker has one either.
  struct Stranded {};
  // The master counts this worker as gone: end at once, and do nothing else before.
  struct Excluded {};
  using Action = std::variant<SendReport, SendCommit, SendDropped, Interrupted, Resume, Dropped,
                              Leave, Stranded, Excluded>;

  explicit Membership(Uid self) : self_(self) {}

  // This worker starts the job. `after`: the generation of the checkpoint, if there is one.
  void found(const MembershipPlan& plan, const StepPlan& first,
             const MembershipGeneration& after = {});
  // A donor has accepted this worker.
  void adopt(const Proposal& proposal);

  void plan(const MembershipPlan& plan);  // from the launcher; older ones are ignored
  // Where a worker is, this one or another. Only in a job that spans hosts.
  void located(Uid uid, const std::string& host) { hosts_[uid] = host; }
  void ready(Uid peer);    // both connections exist
  void unready(Uid peer);  // ... and no longer do
  void level(Uid peer, const Level& level);
  void dead(Uid peer);  // its process has ended
  // The master's list of all that are gone, taken as one fact: a member that hears only the later
  // deaths of a list would go on, though it is itself on the list.
  void gone(const std::vector<Uid>& list);
  void lost(Uid peer);  // its connection broke; it may be alive
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

  // The record that the leader's word should propose for the next step.
  [[nodiscard]] Record propose() const;

  [[nodiscard]] const std::optional<Record>& record() const { return record_; }
  [[nodiscard]] const StepPlan& next() const { return next_; }  // the step after applied()
  [[nodiscard]] Step applied() const { return applied_; }
  [[nodiscard]] bool recovering() const { return recovering_; }
  [[nodiscard]] Role role() const;
  // What this joining worker says to all members when it has the whole state and is connected to
  // each of them.
  [[nodiscard]] Level own_level() const;
  [[nodiscard]] const MembershipPlan& newest_plan() const { return plan_; }
  [[nodiscard]] std::vector<Uid> ready_peers() const;
  // The joining members whose connection with this worker broke since they were taken in.
  [[nodiscard]] std::vector<Uid> broken_joiners() const;
  [[nodiscard]] bool is_dead(Uid uid) const { return dead_.contains(uid); }

  [[nodiscard]] std::vector<Action> take_actions();

 private:
  // What this worker has last said to a peer in this recovery.
  struct Told {
    MembershipGeneration generation;
    std::vector<Uid> dead;
    friend bool operator==(const Told&, const Told&) = default;
  };

  [[nodiscard]] bool planned(Uid uid) const;
  [[nodiscard]] std::string host_of(Uid uid) const;
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
  std::map<Uid, std::string> hosts_;
  MembershipPlan plan_;
  std::optional<Record> record_;
  std::optional<Record>
      known_;  // the newest one known; kept when this worker is no longer a member
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
  std::set<Uid> left_;  // leaving, or not in the record any more, with a process that has not ended

  bool recovering_ = false;
  // reports_ and told_ belong to one recovery, until it ends. A member that has reported does not
  // continue in it, and nothing is said twice.
  std::int64_t reports_of_ = 0;
  std::map<Uid, Report> reports_;
  std::map<Uid, Told> told_;
  std::map<Uid, Report> early_;  // reports of a later recovery, whose commit has not arrived yet
  std::vector<Action> actions_;
};

}  // namespace rubato::member
