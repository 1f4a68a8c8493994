// The state of the daemon: the fold of the rows of its journal (docs/journal.md lists them). It has
// the loop with its policy, the records of jobs and users, measurements, and the offset of the wall
// clock.
//
// apply() is the only way to change it. It folds new rows and rows that are read back alike, so
// recovery gives the state that was there before. No decision is taken twice: a "decided" row
// contains the result of the decision, and the policy gets the state that was stored for it. If a
// row cannot be folded, that is an error, and the state must not be used any more.
//
// The policy is asked in three steps. ask() makes a Question. think() lets the policy decide, on
// any thread. answer() carries out the decision and returns its rows. The state may change between
// ask() and answer(). Then the journal has a row "asked" where ask() was called. The policy keeps
// the loop that it looks at, and the state goes on with a copy.
//
// Pure, except that a policy may read files when it is made. Belongs to one thread, except think().
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
#include "rubato/cells/quotas.h"
#include "rubato/daemon/chronicle.h"
#include "rubato/daemon/history.h"
#include "rubato/daemon/job_past.h"
#include "rubato/daemon/records.h"
#include "rubato/daemon/text_delta.h"
#include "rubato/journal/codec.h"
#include "rubato/journal/journal_file.h"
#include "rubato/loop/scheduler.h"
#include "rubato/policy/all.h"

namespace rubato::daemon {

struct DaemonStateOptions {
  PolicyInputs inputs;
  // How many ended jobs are remembered, with their keys. When there are more, the oldest one is
  // forgotten of the user who has the most, so no user can push out the jobs of others. Jobs that
  // never started are forgotten first while they are more than a quarter of all. So a user who
  // cancels a long queue loses no job that ran.
  std::size_t ended_kept = 10'000;
  std::size_t lines_kept = 10'000;  // lines of history that are kept in memory
  ChronicleLimits chronicle;
};

// The most job numbers, and the most generations, that one row may skip.
inline constexpr int kMostSkipped = 1'000'000;

// The policy in force, and how it learns the speed of jobs.
struct PolicyInForce {
  std::string text;  // canonical
  const PolicyEntry* entry = nullptr;
  bool admission = false;  // ChosenPolicy::admits()
  Duration measuring{};    // > 0: jobs are first tried at smaller counts (policy/measuring.h)

  // Whether it admits or refuses jobs by their deadline. Then it must know how fast they are.
  [[nodiscard]] bool admits() const { return admission; }
  // Whether it chooses batches by goodput.
  [[nodiscard]] bool tunes_batches() const { return entry != nullptr && entry->tunes_batches; }
  // Whether it tries counts that were not measured, and guesses their speed itself.
  [[nodiscard]] bool explores() const { return entry != nullptr && entry->explores; }
};

// The body of a row "cells".
[[nodiscard]] Json write_cells(const TenantCells& quota, const Cluster& cluster);

// The job that the event is about; JobId() if there is none.
[[nodiscard]] JobId job_of(const Event& event);

// Whether the command sends the job to other GPUs; otherwise it changes only the batch.
[[nodiscard]] bool moves(const Command& command, const JobRecord& job);

struct LastDecision {
  RowNumber number;
  Time at = kStart;
  std::string policy;
  Decision decision;
  std::string refused;  // why it could not be carried out; or empty
  // What the policy says about its jobs; nullptr if it says nothing. It is not stored, so after a
  // restart of the daemon it is missing until the next decision.
  std::shared_ptr<const Quotes> quotes = nullptr;
  std::shared_ptr<const CellUse> cell_use = nullptr;  // the same for tenants' cells
};

// A question to the policy, and its answer. It uses nothing that the state changes meanwhile.
struct Question {
  std::shared_ptr<Policy> policy;
  std::shared_ptr<const Scheduler> loop;  // as it was when the policy was asked
  std::optional<Result<Decision>> decision;
  std::optional<Result<std::string>> policy_state;  // after the decision, as text
  std::vector<double> prices = {};                  // Policy::prices()
  std::shared_ptr<const Quotes> quotes = nullptr;   // Policy::quotes()
  std::shared_ptr<const CellUse> cell_use = nullptr;
};
void think(Question& question);

class DaemonState {
 public:
  explicit DaemonState(DaemonStateOptions options);

  // The types of rows that it can fold, for JournalOptions.
  [[nodiscard]] static const std::map<std::string, int, std::less<>>& row_types();
  static constexpr int kSnapshotVersion = 1;

  [[nodiscard]] Result<void> apply(RowNumber number, const JournalRow& row);

  // Asks the policy about the state as it is now. If a row follows before the answer, the first one
  // must be "asked".
  [[nodiscard]] Question ask(Time now);
  // Carries out the decision. Parts that no longer fit the state are left out. The rows that it
  // returns are folded already; the first one must get `number`.
  [[nodiscard]] Result<std::vector<JournalRow>> answer(Question question, Time now,
                                                       RowNumber number);
  // The row that asked the policy, if its answer is still to come.
  [[nodiscard]] std::optional<RowNumber> asked() const { return asked_; }
  // The last decision knew all rows before this one.
  [[nodiscard]] RowNumber decided_before() const { return decided_before_; }

  // The row of the commands that were issued since the last one; nullopt if there are none.
  [[nodiscard]] Result<std::optional<JournalRow>> row_of_commands(Time now) const;
  [[nodiscard]] const std::vector<Command>& issued() const { return issued_; }

  // The whole state as the body of a JournalSnapshot. load() reads it into a new state.
  [[nodiscard]] Result<std::string> snapshot() const;
  [[nodiscard]] Result<void> load(const JournalSnapshot& snapshot);
  // Call it after load() and apply() of the rows that were read back, before anything is decided.
  [[nodiscard]] Result<void> load_policy();

  // --- looking ---

  [[nodiscard]] bool begun() const { return scheduler_ != nullptr; }
  [[nodiscard]] const Scheduler& loop() const { return *scheduler_; }
  [[nodiscard]] const Snapshot& now() const { return scheduler_->snapshot(); }
  [[nodiscard]] Placement placement() const { return placement_; }
  [[nodiscard]] const PolicyInForce& policy() const { return policy_; }
  // The fewest GPUs on which the policy would run the job.
  [[nodiscard]] int least_gpus(const JobSpec& spec, const SpeedModel& speed) const {
    return policy_object_->least_gpus(spec, speed);
  }
  [[nodiscard]] std::optional<Reject> never_fits(const Submitted& submitted) const;
  // Whether the policy has admitted the job by its deadline, as of its last answer.
  [[nodiscard]] bool keeps_deadline(JobId id) const;
  // A second policy in the state of the last answer, for dry runs.
  [[nodiscard]] Result<std::unique_ptr<Policy>> another_policy() const;
  // The chosen policy in its first state, with the cells of tenants.
  [[nodiscard]] Result<std::unique_ptr<Policy>> make(const ChosenPolicy& chosen,
                                                     Duration measuring) const;
  // The cells of tenants.
  [[nodiscard]] const Quotas& quotas() const { return quotas_; }
  [[nodiscard]] const std::optional<LastDecision>& last_decision() const { return last_decision_; }
  // The prices of GPUs, by type, as of the last answer. Empty if the policy has none.
  [[nodiscard]] const std::vector<double>& prices() const { return prices_; }

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
  // The number of jobs that have not ended.
  [[nodiscard]] std::size_t alive() const { return jobs_.size() - ran_.count - never_ran_.count; }
  // What the jobs of one user that have not ended take up.
  struct UserUsage {
    std::size_t jobs = 0;
    std::int64_t bytes = 0;  // of job files that are kept on disk
  };
  [[nodiscard]] UserUsage usage_of(const std::string& user) const;
  // The texts (job_texts.h) that are still needed, and by how many jobs.
  [[nodiscard]] const std::map<Digest, int>& texts() const { return texts_; }
  // The texts that have become unused since the last call.
  [[nodiscard]] std::set<Digest> take_unused_texts();
  // The GPU time of jobs that are forgotten, by user.
  [[nodiscard]] const std::map<std::string, GpuTime>& used_by_forgotten() const {
    return used_by_forgotten_;
  }
  // The jobs that were forgotten since the last call; after a recovery, since the snapshot. Only
  // jobs that have started: the others have left no files.
  [[nodiscard]] std::vector<JobId> take_forgotten() { return std::exchange(forgotten_, {}); }
  // Jobs that wait to be started again after a failure.
  [[nodiscard]] const std::set<JobId>& pausing() const { return pausing_; }
  // Jobs that have a quota (JobRecord::has_quota).
  [[nodiscard]] const std::set<JobId>& with_quota() const { return with_quota_; }
  // Jobs that wait while another run measures their speed.
  [[nodiscard]] const std::set<JobId>& to_be_measured() const { return to_be_measured_; }
  // The newest trial of this user's search; nullopt if none is remembered.
  [[nodiscard]] std::optional<JobId> newest_trial(const std::string& user,
                                                  const std::string& search) const;
  // The trials of a search, in the order of their submission. Those that are forgotten are missing.
  [[nodiscard]] const std::vector<JobId>& trials(JobId search) const;
  // The searches in which something has happened since the last call.
  [[nodiscard]] std::set<JobId> take_unjudged() { return std::exchange(unjudged_, {}); }
  [[nodiscard]] const std::map<std::string, UserRecord>& users() const { return users_; }
  [[nodiscard]] const Rates* profile(const std::string& name) const;
  // The state that the operator wants the node to be in.
  [[nodiscard]] NodeState wish(NodeId node) const;
  // The state that the engine has last reported for the node.
  [[nodiscard]] NodeState reported(NodeId node) const;
  // The reason that the engine gave; or empty.
  [[nodiscard]] const std::string& node_why(NodeId node) const;
  [[nodiscard]] WallTime node_since(NodeId node) const;
  // Why others have GPUs of the node; empty if nobody said so.
  [[nodiscard]] const std::string& reserved_why(NodeId node) const;

  [[nodiscard]] const Chronicle& chronicle() const { return chronicle_; }
  [[nodiscard]] const JobPasts& pasts() const { return pasts_; }
  [[nodiscard]] const std::deque<HistoryLine>& lines() const { return lines_; }
  // The first row whose lines are in memory. Older lines must be made from the journal.
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
  [[nodiscard]] Result<void> fold_asked(RowNumber, const JournalRow&, const Json&);
  [[nodiscard]] Result<void> fold_unanswered(RowNumber, const JournalRow&, const Json&);
  [[nodiscard]] Result<void> fold_undecided(RowNumber, const JournalRow&, const Json&);
  [[nodiscard]] Result<void> fold_job(RowNumber, const JournalRow&, const Json&);
  [[nodiscard]] Result<void> fold_ended(RowNumber, const JournalRow&, const Json&);
  [[nodiscard]] Result<void> fold_measured(RowNumber, const JournalRow&, const Json&);
  [[nodiscard]] Result<void> fold_verdict(RowNumber, const JournalRow&, const Json&);
  [[nodiscard]] Result<void> fold_plain(RowNumber, const JournalRow&, const Json&);
  [[nodiscard]] Result<void> fold_quota(RowNumber, const JournalRow&, const Json&);
  [[nodiscard]] Result<void> fold_trial(RowNumber, const JournalRow&, const Json&);
  [[nodiscard]] Result<void> fold_commands(RowNumber, const JournalRow&, const Json&);
  [[nodiscard]] Result<void> fold_user(RowNumber, const JournalRow&, const Json&);
  [[nodiscard]] Result<void> fold_user_removed(RowNumber, const JournalRow&, const Json&);
  [[nodiscard]] Result<void> fold_cells(RowNumber, const JournalRow&, const Json&);
  [[nodiscard]] Result<void> fold_node(RowNumber, const JournalRow&, const Json&);

  [[nodiscard]] Result<void> make_policy(const std::string& text, Duration measuring);
  [[nodiscard]] Result<void> remake_policy();
  [[nodiscard]] Result<void> read_cells(const Json& json);
  [[nodiscard]] Result<void> renew_policy();
  void heard(RowNumber number);
  void post(Time now, Event event, Reaction& reaction);
  void note_event(Time now, const Event& event);
  void note_failure(Time now, const Failed& failed);
  void note_hold(const HoldChanged& hold);
  void add_nodes(std::size_t nodes, WallTime since);
  void note_decision(RowNumber number, Time now, Decision decision, const Reaction& reaction);
  void note_cause(const Event& event);
  void note_pause(JobRecord& job, double pause);
  void note_promise(const JobRecord& job, WallTime at, PromiseKind kind);
  void note_end_of_promise(const JobRecord& job);
  void note_changes(RowNumber number, Time now, const Reaction& reaction);
  [[nodiscard]] std::string reason_of(const Change& change, int from, const Decision& decision,
                                      bool others_gain) const;
  void note_holds(const std::vector<Command>& commands, JobId job, WallTime at);
  void mark_command(Time now, const Command& command);
  [[nodiscard]] bool comes_back(const JobRecord& job) const;
  void gone(JobRecord& job, JobEnding ending, WallTime at);
  void forget_one();
  void forget_trial(const JobRecord& job);
  void follow(const std::vector<Command>& told);
  void enter(JobRecord job);
  void count(const JobRecord& job, int by);
  void keep_lines(std::vector<HistoryLine> lines);
  JobRecord* find(JobId id);

  DaemonStateOptions options_;
  Time time_ = kStart;
  SpeedPool pool_;
  std::shared_ptr<Scheduler> scheduler_;
  std::optional<RowNumber> asked_;
  RowNumber decided_before_;
  bool loop_lent_ = false;    // a Question has scheduler_
  bool policy_lent_ = false;  // a Question has policy_object_: do not read its state
  bool renewal_due_ = false;  // when it is returned
  mutable std::unique_ptr<Policy> stand_in_;  // used in its place meanwhile; made when needed
  Placement placement_ = Placement::pack;
  PolicyInForce policy_;
  std::shared_ptr<Policy> policy_object_;
  DeltaText policy_state_;     // as last stored; empty: that of a new policy
  bool policy_loaded_ = true;  // policy_object_ is in that state
  std::optional<LastDecision> last_decision_;
  std::vector<double> prices_;  // part of the policy's state, so they need no row
  Duration offset_{};
  std::map<RowNumber, Duration> offsets_;  // all offsets so far, by the row that set them

  std::map<JobId, JobRecord> jobs_;
  std::map<std::pair<std::string, std::string>, JobId> by_key_;
  // Ended jobs, by user, in the order in which they ended.
  struct GoneJobs {
    std::map<std::string, std::deque<JobId>> by_user;
    std::size_t count = 0;
    void add(const JobRecord& job);
    JobId take_one();  // the oldest of the user who has the most
  };
  GoneJobs ran_;
  GoneJobs never_ran_;
  std::map<std::string, UserUsage> usage_;
  std::map<Digest, int> texts_;
  std::set<Digest> unused_texts_;
  std::map<std::string, GpuTime> used_by_forgotten_;
  std::vector<JobId> forgotten_;
  std::set<JobId> pausing_;
  std::set<JobId> with_quota_;
  std::set<JobId> to_be_measured_;
  std::map<JobId, std::vector<JobId>> trials_;                          // by search
  std::map<std::pair<std::string, std::string>, JobId> newest_trials_;  // by user and search
  std::set<JobId> unjudged_;
  JobId next_job_{1};
  std::map<std::string, UserRecord> users_;
  Quotas quotas_;
  std::map<std::string, Rates> profiles_;
  std::vector<NodeState> wishes_;           // by node
  std::vector<NodeState> reported_;         // by node
  std::vector<std::string> whys_;           // reasons for the reported states, by node
  std::vector<std::string> reserved_whys_;  // reasons for reserved GPUs, by node
  std::vector<WallTime> node_since_;

  std::vector<Command> issued_;  // since the last row of commands
  std::deque<HistoryLine> lines_;
  RowNumber first_line_row_{1};
  Chronicle chronicle_;
  JobPasts pasts_;
};

}  // namespace rubato::daemon
