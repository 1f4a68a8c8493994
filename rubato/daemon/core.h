// The daemon's core: what people ask and what the machines report go in, rows of the journal, then
// answers and commands come out. Knows no clock, no thread and no I/O but through its Journal, its
// JobTexts and its Engine.
//
// turn() folds all that has come, asks the policy once if that is due, stores everything in one
// transaction, and only then answers and commands. So whatever anybody was told is stored, and a
// crash at any point loses nothing that was said. If the journal cannot be written, nothing of the
// turn has happened: the ledger is read back, people are answered 503, the facts of the engine are
// kept for the next turn; there is nothing to repair when it can be written again.
//
// Recovery folds rows; it asks neither a policy nor a placement (daemon_state.h).
//
// Of one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "rubato/api/metrics.h"
#include "rubato/api/request.h"
#include "rubato/daemon/daemon_state.h"
#include "rubato/daemon/job_texts.h"
#include "rubato/daemon/views.h"
#include "rubato/engine/engine_table.h"
#include "rubato/journal/journal.h"
#include "rubato/launch/master_messages.h"
#include "rubato/loop/engine.h"

namespace rubato::daemon {

struct CoreOptions {
  Cluster cluster;  // must be the one the journal began with
  // In an old journal, whether its own cluster takes the place of `cluster`.
  bool cluster_of_journal = false;
  Placement placement = Placement::pack;
  Duration interval{};                  // between decisions; 0: whenever something happens
  Duration lateness = from_seconds(5);  // that plans which are promised leave spare
  std::string policy = "afs-l";
  // In an old journal, whether `policy` takes the place of the one in force.
  bool switch_policy = false;
  Duration measuring =
      from_seconds(10);  // how long to stay on a count that is tried out; 0: no trying
  Duration restart_cost = from_seconds(5);  // of a job of which none was measured
  DaemonStateOptions ledger;

  // The simulator's engine knows how much work is left; a real one reports what programs count.
  bool engine_knows_work = false;

  double most_weight = 1;           // of users without a record
  std::size_t most_jobs = 100'000;  // that are not gone; beyond it, submissions are answered 429
  // Of one user who is no admin: jobs that are not gone, and bytes of their large files.
  std::size_t most_jobs_of_user = 25'000;
  std::int64_t most_text_of_user = std::int64_t{256} << 20U;
  std::shared_ptr<JobTexts> texts;              // where large job files are kept; unset: in memory
  Duration measure_every = from_seconds(5);     // at most one row of measurements a job
  Duration settle = from_seconds(3);            // after a start or resize, before speed is measured
  Duration verdict_within = from_seconds(120);  // for measuring a job that is to be promised
  std::uint64_t snapshot_rows = 50'000;
  std::uint64_t history_rows = 20'000;  // that one question about the past reads
  Duration snapshot_every = std::chrono::hours(1);
  Duration keep_journal{};     // how long archived rows are kept; 0: for ever
  std::string jobs_directory;  // of FindLog
  // Whether what lies in the directory of this job is the job's; unset: it is.
  std::function<Result<void>(JobId)> check_directory;
  // The largest number that a directory of a job has, if there are any.
  std::optional<JobId> newest_directory;
  std::int64_t log_limit = kLogLimit;  // bytes, of each job
  Duration hello = kHelloWithin;
  // Whether a job of this caller can run here, or why not; unset: everybody's can.
  std::function<Result<void>(const Caller&)> may_run;
  // Whether there is room for more jobs, or why not; unset: there is.
  std::function<Result<void>()> may_grow;
  // What is wrong outside of the core, for those who ask for its health.
  std::function<std::vector<Problem>()> problems;
  // Seconds of some clock, for metrics alone: how long decisions and the journal take.
  std::function<double()> stopwatch;
};

// --- what goes in ---

struct Asked {
  std::uint64_t id = 0;  // the asker's own, to find the answer by
  Request request;
};
struct Fact {
  Event event;
};
using Input = std::variant<Asked, Fact, JobStatus>;

// --- what comes out ---

struct NodeMark {  // the operator's word, which an engine must hear
  NodeId node;
  bool down = false;
};

struct Turn {
  std::vector<std::pair<std::uint64_t, Answer>> answers;
  RowNumber stored;                // the last row
  std::vector<HistoryLine> lines;  // of this turn
  std::vector<JobId> changed;      // jobs that look different now, ascending
  std::vector<JobId> gone;         // whose end is stored: the engine may forget them
  std::vector<JobId> forgotten;    // ended long ago: not even their directories are needed
  std::vector<NodeMark> marks;
  bool users_changed = false;
  std::string trouble;  // why nothing could be stored; or empty
};

class Core {
 public:
  // Goes on from what the journal has; a new one is begun at `wall`. The error is one sentence.
  [[nodiscard]] static Result<std::unique_ptr<Core>> recover(Journal::Opened opened,
                                                             CoreOptions options, Engine& engine,
                                                             WallTime wall);

  // `now` is the loop's time, which continues from time() and never runs backwards. Collects the
  // engine's facts itself.
  [[nodiscard]] Turn turn(Time now, WallTime wall, std::vector<Input> inputs);

  // What recover() has made up for, in one sentence; or empty.
  [[nodiscard]] const std::string& made_up_for() const { return made_up_for_; }

  // When turn() should be called at the latest if nothing happens; kNever if never.
  [[nodiscard]] Time again_at() const;

  // Whether the journal's files are still where they were, or what is wrong (journal.h).
  [[nodiscard]] Result<void> check_place() { return journal_.check_place(); }

  // A snapshot now, for a quick start.
  [[nodiscard]] Result<void> save();
  // At a clean stop: how far time has come, and a snapshot.
  [[nodiscard]] Result<void> close();

  [[nodiscard]] Time time() const { return time_; }
  [[nodiscard]] const DaemonState& ledger() const { return *ledger_; }
  // What the engine is to be told again after a restart.
  [[nodiscard]] std::vector<KnownJob> told() const;
  [[nodiscard]] std::vector<NodeMark> operators_words() const;
  // Whose token it is, by its SHA-256.
  [[nodiscard]] std::optional<Caller> who(const Digest& token) const;
  // All that its master needs, but for what the engine knows: home, generation, slots, token.
  [[nodiscard]] JobLaunch launch_of(JobId id) const;
  [[nodiscard]] const JobStatus* status(JobId id) const;
  // As its owner sees it, for those who watch; null if it is not remembered.
  [[nodiscard]] Json show(JobId id);
  [[nodiscard]] const std::string& trouble() const { return trouble_; }
  // The journal could not even be read back: nothing is known any more, and only a new start helps.
  [[nodiscard]] bool lost() const { return ledger_ == nullptr; }

 private:
  class RequestHandler;  // takes requests (request_handler.h)

  // What a turn takes in.
  struct Load {
    std::set<JobId> statuses;
    std::vector<Event> facts;
    std::vector<Asked> asked;
    std::vector<Event> later;  // facts that are left for the next turn
  };

  Core(Journal journal, CoreOptions options, Engine& engine);

  [[nodiscard]] Result<void> begin(WallTime wall, bool repaired);
  [[nodiscard]] Result<PolicyInForce> choose(const std::string& text) const;
  [[nodiscard]] Result<std::int64_t> jobs_to_skip(bool repaired);
  void finish_torn_turn(std::int64_t skipped);
  void skip(std::int64_t jobs);
  void switch_policy(const PolicyInForce& policy);
  [[nodiscard]] Result<std::unique_ptr<DaemonState>> reload() const;

  // Makes a row, folds it, and keeps it for the transaction.
  void put(std::string type, int version, std::string body);
  void put(const char* type, const Json& body);
  void put_policy(const PolicyInForce& policy);
  void put_job(const JobRecord& job);
  // As it was submitted, if it is large from disk.
  [[nodiscard]] Result<JobFile> whole_file(const JobRecord& job) const;
  void put_user(const UserRecord& user);
  void put_commands();
  void post(const Event& event);
  [[nodiscard]] RowNumber next_row() const;

  void try_to_work(WallTime wall, std::vector<Asked>& asked, Turn& turn);
  [[nodiscard]] bool take_in(WallTime wall, Load& load,
                             std::vector<std::function<Answer()>>& answers, Turn& turn);
  [[nodiscard]] bool drop_what_fails(Load& load, Turn& turn) const;
  void fail(std::string why);
  void take_back();
  void refuse(const std::vector<Asked>& asked, Turn& turn);
  void forget_turn();
  void work(WallTime wall, const Load& load, std::vector<std::function<Answer()>>& answers);
  void set_clock(WallTime wall);
  void keep_time(Duration unsaid);
  void take_fact(Event fact);
  void take_end(Finished finished);
  void take_failure(const Failed& failed);
  void pause_restart(JobId id);
  void end_pauses();
  void take_node(const NodeChanged& fact);
  void set_node(NodeId node);
  [[nodiscard]] Progress progress_of(JobId id, WorkRate rate) const;
  void look_if_plain(const JobStatus& status);
  void measure(const JobStatus& status);
  void tell_goodput(JobId id);
  void tell_estimate(JobId id, std::shared_ptr<const SpeedModel> speed);
  void tell_speed(JobId id, int gpus, WorkRate rate);
  void estimate(JobId id);
  void profile();
  [[nodiscard]] std::optional<int> next_count(const JobRecord& run) const;
  void learn_from_end(const JobRecord& job);
  void give_verdict(const JobRecord& job, std::optional<JobId> run);
  void end_job(JobId id, const JobEnding& ending);
  void decide();
  [[nodiscard]] bool may_decide() const;
  [[nodiscard]] Result<void> store();
  void prune();
  void snapshot_if_due(bool quiet);
  void list_changes(Turn& turn, RowNumber before);
  [[nodiscard]] Shown shown();
  // The lines of all rows after `after` one by one, until `take` has enough, or so many rows were
  // read that others have waited long enough: then the last of these is the answer.
  [[nodiscard]] Result<std::optional<RowNumber>> each_line(
      RowNumber after, const std::function<bool(const HistoryLine&)>& take) const;
  [[nodiscard]] Answer history(const Caller& caller, const History& ask,
                               std::optional<JobId> only) const;
  [[nodiscard]] std::string metrics_for(const Caller& caller);
  void count_end(const JobRecord& job);

  Journal journal_;
  CoreOptions options_;
  Engine& engine_;
  std::unique_ptr<DaemonState> ledger_;
  std::optional<JournalSnapshot> base_;  // the newest snapshot: where reload() begins

  Time time_ = kStart;  // of the present turn
  std::vector<JournalRow> rows_;
  std::vector<Command> issued_;  // by this turn
  std::string wrong_;  // a row that could not be folded: our own mistake, or nonsense from outside
  // Of what the turn took in, what that was; none if it cannot be told.
  std::variant<std::monostate, const Event*, const Asked*> culprit_;
  bool decide_now_ = false;
  std::vector<NodeMark> marks_;
  std::set<JobId> touched_;
  bool users_changed_ = false;
  std::optional<std::map<JobId, Outlook>> outlooks_;  // once they were asked for

  Metrics metrics_;

  std::vector<Event> facts_;             // not yet stored
  std::map<JobId, JobStatus> statuses_;  // the newest of each job that is not gone
  std::set<JobId> unmeasured_;           // with a status that measure() has not seen
  std::string trouble_;
  std::string made_up_for_;
  Time retry_at_ = kStart;
  std::uint64_t rows_since_snapshot_ = 0;
  Time snapshot_at_ = kStart;
  bool just_started_ = true;  // no turn has been stored yet
};

}  // namespace rubato::daemon
