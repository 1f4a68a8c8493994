// Handles requests. A request is checked, adds its rows to the transaction, and returns a Reply,
// which makes the answer when the turn is over. The Reader answers requests that change nothing.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rubato/daemon/reader.h"
#include "rubato/daemon/transaction.h"

namespace rubato::daemon {

[[nodiscard]] bool changes_something(const Ask& ask);

class RequestHandler {
 public:
  RequestHandler(const CoreParts& core, Transaction& tx, Caller caller)
      : tx_(tx), reader_(core, std::move(caller)) {}

  // The reply outlives the handler and the transaction.
  [[nodiscard]] Reply take(const Ask& ask);

 private:
  // Handles a request that changes something. Each type of request has its specialization in the
  // .cc file; without one, the program does not link.
  template <class T>
  Reply handle(const T& ask);

  [[nodiscard]] const DaemonState& state() const { return tx_.state(); }
  [[nodiscard]] const CoreOptions& options() const { return reader_.core().options; }
  [[nodiscard]] bool chosen(const CancelJobs& ask, const JobRecord& job) const;
  // Cancels waiting jobs before those that hold GPUs. Returns how many were not leaving already.
  [[nodiscard]] std::size_t cancel_all(std::vector<JobId> jobs);

  [[nodiscard]] Result<JobRecord> record_of(const SubmitJob& ask) const;
  // Why the caller may not submit more: only an admin may use all that the daemon can take.
  [[nodiscard]] std::optional<std::string> beyond_share(std::size_t bytes) const;
  // Answers when a decision has seen the rows of this request, or when none is under way.
  [[nodiscard]] Reply after_decision(std::function<Answer()> answer) const;
  [[nodiscard]] std::function<Answer()> submit_answer(JobId id, int status) const;
  // Says what would happen, on copies of everything that would change.
  [[nodiscard]] Reply try_out(JobRecord job) const;

  Transaction& tx_;
  Reader reader_;
};

}  // namespace rubato::daemon
