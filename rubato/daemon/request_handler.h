// Takes requests: each is checked, changes what it changes by rows of the turn, and leaves a reply
// that makes the answer when the turn is over. Requests that only look are the Reader's.
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
  Reply operator()(const SubmitJob& ask);
  Reply operator()(const CancelJob& ask);
  Reply operator()(const CancelJobs& ask);
  Reply operator()(const HoldJob& ask);
  Reply operator()(const ResizeJob& ask);
  Reply operator()(const SetNode& ask);
  Reply operator()(const SwitchPolicy& ask);
  Reply operator()(const AddUser& ask);
  Reply operator()(const RemoveUser& ask);
  Reply operator()(const AddToken& ask);
  Reply operator()(const RemoveToken& ask);

  [[nodiscard]] const DaemonState& state() const { return tx_.state(); }
  [[nodiscard]] const CoreOptions& options() const { return reader_.core().options; }
  [[nodiscard]] bool chosen(const CancelJobs& ask, const JobRecord& job) const;
  // Those that wait before those that hold GPUs. How many were not leaving already.
  [[nodiscard]] std::size_t cancel_all(std::vector<JobId> jobs);

  [[nodiscard]] Result<JobRecord> record_of(const SubmitJob& ask) const;
  // Nobody but an admin may have all that the daemon takes. Why not, if the caller has enough.
  [[nodiscard]] std::optional<std::string> beyond_share(std::size_t bytes) const;
  // Once a decision has seen the rows of this request, or none is under way.
  [[nodiscard]] Reply after_decision(std::function<Answer()> answer) const;
  [[nodiscard]] std::function<Answer()> submit_answer(JobId id, int status) const;
  // What would happen, on copies of everything that would change.
  [[nodiscard]] Reply try_out(JobRecord job) const;

  Transaction& tx_;
  Reader reader_;
};

}  // namespace rubato::daemon
