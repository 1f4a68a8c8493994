// The daemon's core. Requests and reports of machines go in. Rows of the journal come out, then
// answers and commands. It uses no clock and no thread, and I/O only through its StateStore, its
// JobTexts and its Engine.
//
// turn() folds all inputs, asks the policy if a decision is due, stores everything in one
// transaction (transaction.h), and only then sends answers and commands. So every answer and every
// command is stored before it is sent, and a crash loses none of them. A policy may need longer
// than a turn (CoreOptions::background). Turns then continue, and a later turn takes the decision
// in. A submission is answered when a decision has seen it; other requests are answered at once. If
// the journal cannot be written, the turn is rolled back: the state is read back, requests are
// answered 503, and the engine's facts are kept for the next turn. When the journal can be written
// again, the core continues.
//
// Recovery folds rows. It asks neither a policy nor a placement (daemon_state.h).
//
// Belongs to one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "rubato/api/request.h"
#include "rubato/daemon/core_options.h"
#include "rubato/daemon/core_parts.h"
#include "rubato/daemon/reader.h"
#include "rubato/daemon/transaction.h"
#include "rubato/engine/engine_table.h"
#include "rubato/journal/journal.h"
#include "rubato/launch/master_messages.h"
#include "rubato/loop/engine.h"

namespace rubato::daemon {

// --- what goes in ---

struct Asked {
  std::uint64_t id = 0;  // chosen by the caller, to find the answer
  Request request;
};
using Input = std::variant<Asked, Fact, JobStatus>;

// --- what comes out ---

struct Turn {
  std::vector<std::pair<std::uint64_t, Answer>> answers;
  RowNumber stored;                // the last row
  std::vector<HistoryLine> lines;  // of this turn
  std::vector<JobId> changed;      // jobs that look different now, ascending
  std::vector<JobId> gone;         // their end is stored, so the engine may forget them
  std::vector<JobId> forgotten;    // ended long ago: their directories may be removed
  std::vector<NodeMark> marks;
  bool users_changed = false;
  std::string trouble;  // why nothing could be stored; or empty
};

class Core {
 public:
  // Continues from the journal. A new journal begins at `wall`. The error is one sentence.
  [[nodiscard]] static Result<std::unique_ptr<Core>> recover(Journal::Opened opened,
                                                             const CoreOptions& options,
                                                             Engine& engine, WallTime wall);

  // `now` is the loop's time, which continues from time() and never runs backwards. Collects the
  // engine's facts itself.
  [[nodiscard]] Turn turn(Time now, WallTime wall, std::vector<Input> inputs);

  // What recover() had to add, in one sentence; or empty.
  [[nodiscard]] const std::string& made_up_for() const { return made_up_for_; }

  // When turn() must be called at the latest, if nothing happens before; kNever: no need.
  [[nodiscard]] Time again_at() const;

  // An error if the journal's files are no longer where they were (journal.h).
  [[nodiscard]] Result<void> check_place() { return parts_.store.check_place(); }

  // Writes a snapshot now, so that the next start is quick.
  [[nodiscard]] Result<void> save();
  // For a clean stop: stores the loop's time and a snapshot.
  [[nodiscard]] Result<void> close();

  [[nodiscard]] Time time() const { return parts_.time; }
  [[nodiscard]] const DaemonState& state() const { return *parts_.state; }
  // The commands that the engine must get again after a restart.
  [[nodiscard]] std::vector<KnownJob> told() const;
  [[nodiscard]] std::vector<NodeMark> operators_words() const;
  // The user who has the token with this SHA-256.
  [[nodiscard]] std::optional<Caller> who(const Digest& token) const;
  // All that its master needs, except what the engine adds: home, generation, slots, token.
  [[nodiscard]] JobLaunch launch_of(JobId id) const;
  [[nodiscard]] const JobStatus* status(JobId id) const { return parts_.reports.of(id); }
  // The job as its owner sees it, for event streams; null if it is not remembered.
  [[nodiscard]] Json show(JobId id) const;
  // How long the newest decisions took.
  [[nodiscard]] const DecisionTimes& took() const { return parts_.took; }
  [[nodiscard]] const std::string& trouble() const { return parts_.trouble; }
  // Whether the journal could not be read back. The state is then lost until the daemon restarts.
  [[nodiscard]] bool lost() const { return parts_.state == nullptr; }

 private:
  // The inputs of a turn.
  struct Load {
    std::set<JobId> statuses;
    std::vector<Fact> facts;
    std::vector<Asked> asked;
    std::vector<Fact> later;  // facts that are left for the next turn
  };
  // The input that is being folded at the moment; none if that is not known.
  using Suspect = std::variant<std::monostate, const Fact*, const Asked*>;
  using Replies = std::vector<Reply>;
  // A request that is stored, and not answered yet.
  struct Waiting {
    std::uint64_t id = 0;
    Reply reply;
  };
  // A policy that decides while turns continue.
  struct Pending {
    std::shared_ptr<Question> question;
    std::shared_ptr<double> took;  // seconds
    std::unique_ptr<Task> task;
    RowNumber asked;  // the row that says so
  };

  Core(Journal::Opened opened, const CoreOptions& options, Engine& engine);

  [[nodiscard]] Transaction new_transaction() const {
    return {*parts_.state, parts_.store.last(), parts_.time};
  }
  void sort_inputs(std::vector<Input> inputs, std::vector<Asked>& asked);
  void try_to_work(WallTime wall, std::vector<Asked>& asked, Turn& turn);
  [[nodiscard]] std::optional<Transaction> take_in(WallTime wall, Load& load, Replies& replies,
                                                   Turn& turn);
  // Leaves out the inputs that may have caused the failure, before the turn is repeated. False if
  // there was nothing to leave out.
  [[nodiscard]] static bool drop_what_fails(Load& load, const Suspect& suspect,
                                            const std::string& why, Turn& turn);
  void work(Transaction& tx, WallTime wall, const Load& load, Replies& replies, Suspect& suspect);
  // The first moment from `t` on at which the policy may be asked (loop/decision_times.h).
  [[nodiscard]] Time may_decide_from(Time t) const;
  [[nodiscard]] bool may_decide() const { return may_decide_from(parts_.time) <= parts_.time; }
  void decide_if_due(Transaction& tx);
  void ask(Transaction& tx);
  void answer(Transaction& tx, Pending pending);
  [[nodiscard]] std::vector<std::optional<Answer>> answers_so_far(const Replies& replies) const;
  void give_answers(std::vector<std::optional<Answer>> answers, Turn& turn);
  [[nodiscard]] Result<void> commit(const Transaction& tx);
  void list_changes(const Transaction& tx, RowNumber before, Turn& turn);
  void fail(std::string why);
  void take_back();
  void refuse(const std::vector<Asked>& asked, Turn& turn);

  CoreParts parts_;
  Engine& engine_;
  std::vector<Fact> facts_;  // not yet stored
  std::optional<Pending> pending_;
  std::vector<Waiting> waiting_;
  std::string made_up_for_;
  Time retry_at_ = kStart;
  bool just_started_ = true;  // no turn has been stored yet
};

}  // namespace rubato::daemon
