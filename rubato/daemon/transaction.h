// The changes of one turn. Either all of them happen or none.
//
// Each row is folded into the state at once, so the next steps see it, and is kept for the journal.
// The owner of the state then stores all rows in one transaction of the journal. If that fails, or
// if a row cannot be folded, the state is dropped with the transaction and read back from the
// journal (state_store.h).
//
// If a row cannot be made or folded, there is a bug in the daemon or an impossible input.
// CannotFold is thrown, and the owner of the transaction catches it (core.cc, recovery.cc).
//
// Belongs to one thread.
#pragma once

#include <cstdint>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "rubato/daemon/daemon_state.h"

namespace rubato::daemon {

struct CannotFold : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct NodeMark {  // the operator's setting for a node, for the engine
  NodeId node;
  bool down = false;
};

class Transaction {
 public:
  // `last` is the newest row that is stored.
  Transaction(DaemonState& state, RowNumber last, Time now)
      : state_(state), last_(last), now_(now) {}

  [[nodiscard]] const DaemonState& state() const { return state_; }
  [[nodiscard]] Time now() const { return now_; }

  // --- rows ---

  void put(const char* type, const Json& body);
  // An event of the loop.
  void post(const Event& event);
  void put_job(const JobRecord& job);
  void put_user(const UserRecord& user);
  void remove_user(const std::string& name);
  // Without cells, the tenant has none any more. The policy decides at once.
  void put_cells(const TenantCells& quota);
  void put_policy(const PolicyInForce& policy);
  // The job ends as soon as it holds no GPU. The run that measures it ends, too.
  void end_job(JobId id, const JobEnding& ending);
  // Asks the policy (DaemonState::ask). The answer comes in this transaction, or in a later one
  // after decide_later().
  [[nodiscard]] Question ask();
  void decide_later();
  // Carries out the policy's decision.
  void answer(Question question);
  // Closes a question whose answer will never come.
  void drop_question();
  // Adds the row with all commands that follow from the rows so far.
  void put_commands();

  // --- what else comes out of the turn ---

  // Marks a job as changed, for event streams.
  void touch(JobId id) { touched_.insert(id); }
  void mark(NodeMark mark) { marks_.push_back(mark); }
  // The policy is asked in this turn, whatever the interval between decisions.
  void decide_now() { decide_now_ = true; }

  [[nodiscard]] const std::vector<JournalRow>& rows() const { return rows_; }
  [[nodiscard]] const std::vector<Command>& commands() const { return commands_; }
  [[nodiscard]] const std::set<JobId>& touched() const { return touched_; }
  [[nodiscard]] const std::vector<NodeMark>& marks() const { return marks_; }
  [[nodiscard]] bool users_changed() const { return users_changed_; }
  [[nodiscard]] bool must_decide() const { return decide_now_; }
  // The newest row so far.
  [[nodiscard]] RowNumber last_row() const { return RowNumber(last_.value() + rows_.size()); }
  // For metrics: submitted jobs, and jobs that were sent to other GPUs.
  [[nodiscard]] std::uint64_t submitted() const { return submitted_; }
  [[nodiscard]] std::uint64_t resizes() const { return resizes_; }

 private:
  void put(std::string type, int version, std::string body);
  [[nodiscard]] RowNumber next_row() const { return last_row().next(); }

  DaemonState& state_;
  RowNumber last_;
  Time now_;
  std::vector<JournalRow> rows_;
  std::vector<Command> commands_;
  std::set<JobId> touched_;
  std::vector<NodeMark> marks_;
  bool users_changed_ = false;
  bool decide_now_ = false;
  std::uint64_t submitted_ = 0;
  std::uint64_t resizes_ = 0;
};

}  // namespace rubato::daemon
