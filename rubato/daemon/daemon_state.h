// What the daemon knows: the fold of its journal's rows (docs/journal.md lists them). The loop with
// its policy, the records of jobs and users, what was measured, the offset of the wall clock.
//
// One way in: apply() folds a row, whether it is new or read back, so that what was recovered is
// what was there before. Nothing is decided twice: a "decided" row carries what became of it, and
// the policy is given the state it had. decide() alone asks the policy; it gives the rows that say
// what it did. A row that cannot be folded is an error, after which the state is of no more use.
//
// Pure but for the files a policy reads when it is made; of one thread.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rubato/base/json.h"
#include "rubato/base/result.h"
#include "rubato/daemon/history.h"
#include "rubato/daemon/records.h"
#include "rubato/daemon/text_delta.h"
#include "rubato/journal/codec.h"
#include "rubato/journal/journal_file.h"
#include "rubato/loop/scheduler.h"
#include "rubato/policy/all.h"

namespace rubato::daemon {

struct DaemonStateOptions {
  PolicyInputs inputs;
  // Jobs that are gone, with their keys. Beyond it, who has the most loses their oldest, so that
  // nobody pushes out what others did. Jobs that never started go first, unless they are a quarter
  // or less: who cancels a long queue loses no job that ran.
  std::size_t ended_kept = 10'000;
  std::size_t lines_kept = 10'000;  // of history
};

// Numbers of jobs, or generations, that one row may leave out.
inline constexpr int kMostSkipped = 1'000'000;

// The policy in force, and how it is told of speeds.
struct PolicyInForce {
  std::string text;  // canonical
  const PolicyEntry* entry = nullptr;
  Duration measuring{};  // > 0: jobs are first tried at smaller counts (policy/measuring.h)

  // Admits or refuses jobs by deadline, for which it must know how fast they are.
  [[nodiscard]] bool admits() const;
  // Chooses batches by goodput.
  [[nodiscard]] bool tunes_batches() const { return entry != nullptr && entry->tunes_batches; }
};

// Whether it is told to go to other GPUs than before; else only its batch is another.
[[nodiscard]] bool moves(const Command& command, const JobRecord& job);

struct LastDecision {
  RowNumber number;
  Time at = kStart;
  std::string policy;
  Decision decision;
  std::string refused;  // why it was not carried out; or empty
};

class DaemonState {
 public:
  explicit DaemonState(DaemonStateOptions options);

  // The types of rows it folds, for JournalOptions.
  [[nodiscard]] static const std::map<std::string, int, std::less<>>& row_types();
  static constexpr int kSnapshotVersion = 1;

  [[nodiscard]] Result<void> apply(RowNumber number, const JournalRow& row);

  // Asks the policy now and carries out what it says. The rows are folded already; the first gets
  // `number`.
  [[nodiscard]] Result<std::vector<JournalRow>> decide(Time now, RowNumber number);

  // The row of the commands that were issued since the last one; nullopt if there are none.
  [[nodiscard]] Result<std::optional<JournalRow>> row_of_commands(Time now) const;
  [[nodiscard]] const std::vector<Command>& issued() const { return issued_; }

  // All of it as the body of a JournalSnapshot, and back into a state without rows.
  [[nodiscard]] Result<std::string> snapshot() const;
  [[nodiscard]] Result<void> load(const JournalSnapshot& snapshot);
  // After load() and rows that were read back, before anything is decided.
  [[nodiscard]] Result<void> load_policy();

  // --- looking ---

  [[nodiscard]] bool begun() const { return scheduler_ != nullptr; }
  [[nodiscard]] const Scheduler& loop() const { return *scheduler_; }
  [[nodiscard]] const Snapshot& now() const { return scheduler_->snapshot(); }
  [[nodiscard]] Placement placement() const { return placement_; }
  [[nodiscard]] const PolicyInForce& policy() const { return policy_; }
  [[nodiscard]] const Policy& policy_object() const { return *policy_object_; }
  // A second one in the same state, to ask what if.
  [[nodiscard]] Result<std::unique_ptr<Policy>> another_policy() const;
  [[nodiscard]] const std::optional<LastDecision>& last_decision() const { return last_decision_; }

  [[nodiscard]] Time time() const { return time_; }  // of the last row
  [[nodiscard]] Duration offset() const { return offset_; }
  [[nodiscard]] WallTime wall(Time t) const { return WallTime(t.time_since_epoch() + offset_); }
  [[nodiscard]] Time loop_time(WallTime t) const { return Time(t.time_since_epoch() - offset_); }
  [[nodiscard]] Duration offset_at(RowNumber number) const;
  [[nodiscard]] bool clock_set() const { return !offsets_.empty(); }

  [[nodiscard]] const std::map<JobId, JobRecord>& jobs() const { return jobs_; }
  [[nodiscard]] const JobRecord* job(JobId id) const;
  [[nodiscard]] const JobView* view(JobId id) const { return now().jobs.find(id); }
  [[nodiscard]] std::optional<JobId> by_key(const std::string& user, const std::string& key) const;
  [[nodiscard]] JobId next_job() const { return next_job_; }
  // How many are not gone.
  [[nodiscard]] std::size_t alive() const { return jobs_.size() - ran_.count - never_ran_.count; }
  // What the jobs of one user that are not gone take up.
  struct Holding {
    std::size_t jobs = 0;
    std::int64_t bytes = 0;  // of texts that are kept on disk
  };
  [[nodiscard]] Holding held_by(const std::string& user) const;
  // Texts (job_texts.h) that jobs which are not gone need, and how many of them.
  [[nodiscard]] const std::map<Digest, int>& texts() const { return texts_; }
  // Texts that nobody needs any more since this was asked last.
  [[nodiscard]] std::set<Digest> take_unused_texts();
  // GPU time that jobs have had which are no longer known, by user.
  [[nodiscard]] const std::map<std::string, GpuTime>& used_by_forgotten() const {
    return used_by_forgotten_;
  }
  // Those that were forgotten since this was asked last; after a recovery, since the snapshot. Of
  // those that started: others have left nothing anywhere.
  [[nodiscard]] std::vector<JobId> take_forgotten() { return std::exchange(forgotten_, {}); }
  // Jobs that wait to be started again after a failure.
  [[nodiscard]] const std::set<JobId>& pausing() const { return pausing_; }
  // Jobs that wait for what another measures for them.
  [[nodiscard]] const std::set<JobId>& to_be_measured() const { return to_be_measured_; }
  [[nodiscard]] const std::map<std::string, UserRecord>& users() const { return users_; }
  [[nodiscard]] const Rates* profile(const std::string& name) const;
  // What the operator wants of a node, whatever the engine says of it.
  [[nodiscard]] NodeState wish(NodeId node) const;
  // The last state that the engine said the node is in.
  [[nodiscard]] NodeState reported(NodeId node) const;
  // Why it said so; or empty.
  [[nodiscard]] const std::string& node_why(NodeId node) const;
  [[nodiscard]] WallTime node_since(NodeId node) const;

  [[nodiscard]] const std::deque<HistoryLine>& lines() const { return lines_; }
  // Rows before it are in the journal only.
  [[nodiscard]] RowNumber first_line_row() const { return first_line_row_; }

 private:
  using Fold = Result<void> (DaemonState::*)(RowNumber, const JournalRow&, const Json&);
  [[nodiscard]] static const std::map<std::string, Fold, std::less<>>& folds();

  [[nodiscard]] Result<void> fold_event(RowNumber number, const JournalRow& row);
  [[nodiscard]] Result<void> fold_began(RowNumber, const JournalRow&, const Json&);
  [[nodiscard]] Result<void> fold_settings(RowNumber, const JournalRow&, const Json&);
  [[nodiscard]] Result<void> fold_clock(RowNumber, const JournalRow&, const Json&);
  [[nodiscard]] Result<void> fold_policy(RowNumber, const JournalRow&, const Json&);
  [[nodiscard]] Result<void> fold_policy_state(const std::string& body);
  [[nodiscard]] Result<void> fold_undecided(RowNumber, const JournalRow&, const Json&);
  [[nodiscard]] Result<void> fold_job(RowNumber, const JournalRow&, const Json&);
  [[nodiscard]] Result<void> fold_ended(RowNumber, const JournalRow&, const Json&);
  [[nodiscard]] Result<void> fold_measured(RowNumber, const JournalRow&, const Json&);
  [[nodiscard]] Result<void> fold_verdict(RowNumber, const JournalRow&, const Json&);
  [[nodiscard]] Result<void> fold_plain(RowNumber, const JournalRow&, const Json&);
  [[nodiscard]] Result<void> fold_commands(RowNumber, const JournalRow&, const Json&);
  [[nodiscard]] Result<void> fold_user(RowNumber, const JournalRow&, const Json&);
  [[nodiscard]] Result<void> fold_user_removed(RowNumber, const JournalRow&, const Json&);
  [[nodiscard]] Result<void> fold_node(RowNumber, const JournalRow&, const Json&);

  [[nodiscard]] Result<void> make_policy(const std::string& text, Duration measuring);
  void post(Time now, Event event, Reaction& reaction);
  void note_event(Time now, const Event& event);
  void note_failure(Time now, const Failed& failed);
  void note_hold(const Held& held);
  void note_decision(RowNumber number, Time now, Decision decision, const Reaction& reaction);
  void left(Time now, const JobView& view, JobEnding ending);
  void gone(JobRecord& job, JobEnding ending, WallTime at);
  void forget_one();
  void follow(const std::vector<Command>& told);
  void enter(JobRecord job);
  void count(const JobRecord& job, int by);
  void keep_lines(std::vector<HistoryLine> lines);
  JobRecord* find(JobId id);

  DaemonStateOptions options_;
  Time time_ = kStart;
  SpeedPool pool_;
  std::unique_ptr<Scheduler> scheduler_;
  Placement placement_ = Placement::pack;
  PolicyInForce policy_;
  std::unique_ptr<Policy> policy_object_;
  DeltaText policy_state_;     // as last stored; empty: a new policy's
  bool policy_loaded_ = true;  // it is in that state
  std::optional<LastDecision> last_decision_;
  Duration offset_{};
  std::map<RowNumber, Duration> offsets_;  // every one there was, by the row that said so

  std::map<JobId, JobRecord> jobs_;
  std::map<std::pair<std::string, std::string>, JobId> by_key_;
  // Jobs that are gone, by user, in the order in which they went.
  struct GoneJobs {
    std::map<std::string, std::deque<JobId>> by_user;
    std::size_t count = 0;
    void add(const JobRecord& job);
    JobId take_one();  // the oldest of the user who has the most
  };
  GoneJobs ran_;
  GoneJobs never_ran_;
  std::map<std::string, Holding> holdings_;
  std::map<Digest, int> texts_;
  std::set<Digest> unused_texts_;
  std::map<std::string, GpuTime> used_by_forgotten_;
  std::vector<JobId> forgotten_;
  std::set<JobId> pausing_;
  std::set<JobId> to_be_measured_;
  JobId next_job_{1};
  std::map<std::string, UserRecord> users_;
  std::map<std::string, Rates> profiles_;
  std::vector<NodeState> wishes_;    // by node
  std::vector<NodeState> reported_;  // by node
  std::vector<std::string> whys_;    // of what was reported, by node
  std::vector<WallTime> node_since_;

  std::vector<Command> issued_;  // since the last row of commands
  std::deque<HistoryLine> lines_;
  RowNumber first_line_row_{1};
};

}  // namespace rubato::daemon
