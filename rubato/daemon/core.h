// The daemon's core: what people ask and what the machines report go in; rows of the journal, then
// answers and commands come out. Knows no clock, no thread and no I/O but through its StateStore,
// its JobTexts and its Engine.
//
// turn() takes in all that has come, asks the policy if that is due, stores everything in one
// transaction (transaction.h), and only then answers and commands. A policy may take its time
// (CoreOptions::background): turns go on, and its answer is taken in by the turn that finds it. A
// submission is answered when a decision has seen it; everything else is answered at once. So
// whatever anybody was told is stored, and a crash at any point loses nothing that was said. If the
// journal cannot be written, nothing of the turn has happened: the state is read back, people are
// answered 503, and the facts of the engine are kept for the next turn. There is nothing to repair
// when the journal can be written again.
//
// Recovery folds rows; it asks neither a policy nor a placement (daemon_state.h).
//
// Of one thread.
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
  std::uint64_t id = 0;  // the asker's own, to find the answer by
  Request request;
};
struct Fact {
  Event event;
};
using Input = std::variant<Asked, Fact, JobStatus>;

// --- what comes out ---

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
                                                             const CoreOptions& options,
                                                             Engine& engine, WallTime wall);

  // `now` is the loop's time, which continues from time() and never runs backwards. Collects the
  // engine's facts itself.
  [[nodiscard]] Turn turn(Time now, WallTime wall, std::vector<Input> inputs);

  // What recover() has made up for, in one sentence; or empty.
  [[nodiscard]] const std::string& made_up_for() const { return made_up_for_; }

  // When turn() should be called at the latest if nothing happens; kNever if never.
  [[nodiscard]] Time again_at() const;

  // Whether the journal's files are still where they were, or what is wrong (journal.h).
  [[nodiscard]] Result<void> check_place() { return parts_.store.check_place(); }

  // A snapshot now, for a quick start.
  [[nodiscard]] Result<void> save();
  // At a clean stop: how far time has come, and a snapshot.
  [[nodiscard]] Result<void> close();

  [[nodiscard]] Time time() const { return parts_.time; }
  [[nodiscard]] const DaemonState& state() const { return *parts_.state; }
  // What the engine is to be told again after a restart.
  [[nodiscard]] std::vector<KnownJob> told() const;
  [[nodiscard]] std::vector<NodeMark> operators_words() const;
  // Whose token it is, by its SHA-256.
  [[nodiscard]] std::optional<Caller> who(const Digest& token) const;
  // All that its master needs, but for what the engine knows: home, generation, slots, token.
  [[nodiscard]] JobLaunch launch_of(JobId id) const;
  [[nodiscard]] const JobStatus* status(JobId id) const { return parts_.reports.of(id); }
  // As its owner sees it, for those who watch; null if it is not remembered.
  [[nodiscard]] Json show(JobId id) const;
  [[nodiscard]] const std::string& trouble() const { return parts_.trouble; }
  // The journal could not even be read back: nothing is known any more, and only a new start helps.
  [[nodiscard]] bool lost() const { return parts_.state == nullptr; }

 private:
  // What a turn takes in.
  struct Load {
    std::set<JobId> statuses;
    std::vector<Event> facts;
    std::vector<Asked> asked;
    std::vector<Event> later;  // facts that are left for the next turn
  };
  // What of it is being taken in at the moment; none if that cannot be told.
  using Suspect = std::variant<std::monostate, const Event*, const Asked*>;
  using Replies = std::vector<Reply>;
  // Somebody whose request is stored, and whose answer is still to come.
  struct Waiting {
    std::uint64_t id = 0;
    Reply reply;
  };
  // A policy that thinks while turns go on.
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
  // Leaves out what may have been wrong: trying the same again would not help. False if there was
  // nothing to leave out.
  [[nodiscard]] static bool drop_what_fails(Load& load, const Suspect& suspect,
                                            const std::string& why, Turn& turn);
  void work(Transaction& tx, WallTime wall, const Load& load, Replies& replies, Suspect& suspect);
  [[nodiscard]] bool may_decide() const;
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
  std::vector<Event> facts_;  // not yet stored
  std::optional<Pending> pending_;
  std::vector<Waiting> waiting_;
  std::string made_up_for_;
  Time retry_at_ = kStart;
  bool just_started_ = true;  // no turn has been stored yet
};

}  // namespace rubato::daemon
