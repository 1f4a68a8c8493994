// Where requests are taken: each is checked, changes what it changes by rows of the turn, and
// leaves a function that gives the answer once the turn has been decided.
//
// One user can neither see nor touch another's job: it is answered like one that is not there.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rubato/daemon/core.h"
#include "rubato/daemon/views.h"

namespace rubato::daemon {

class Core::RequestHandler {
 public:
  using Reply = std::function<Answer()>;

  RequestHandler(Core& core, Caller caller) : core_(core), caller_(std::move(caller)) {}

  [[nodiscard]] Reply take(const Ask& ask);
  // A job of which its own row alone is left.
  void take_again(JobId id);
  // A job that waits, under a policy that is new: is measured first if that one would judge it by a
  // guess.
  void measure_if_unknown(JobId id);

 private:
  Reply operator()(const SubmitJob& ask);
  Reply operator()(const CancelJob& ask);
  Reply operator()(const CancelJobs& ask);
  Reply operator()(const HoldJob& ask);
  Reply operator()(const ResizeJob& ask);
  Reply operator()(const ShowJob& ask);
  Reply operator()(const ListJobs& ask);
  Reply operator()(const ExplainJob& ask);
  Reply operator()(const FindLog& ask);
  Reply operator()(const History& ask);
  Reply operator()(const ShowNodes& ask);
  Reply operator()(const SetNode& ask);
  Reply operator()(const ShowPolicy& ask);
  Reply operator()(const SwitchPolicy& ask);
  Reply operator()(const ShowMetrics& ask);
  Reply operator()(const ShowHealth& ask);
  Reply operator()(const AddUser& ask);
  Reply operator()(const RemoveUser& ask);
  Reply operator()(const ListUsers& ask);
  Reply operator()(const AddToken& ask);
  Reply operator()(const RemoveToken& ask);

  [[nodiscard]] const DaemonState& ledger() const { return *core_.ledger_; }
  [[nodiscard]] bool sees(const JobRecord& job) const;
  [[nodiscard]] const JobRecord* find(const JobRef& ref) const;
  // The same for each of them, in one look at all jobs; null where there is none.
  [[nodiscard]] std::vector<const JobRecord*> find_all(const std::vector<JobRef>& refs) const;
  // The job, if it is there for this caller and not gone; else the reply that says so.
  [[nodiscard]] const JobRecord* find_alive(const JobRef& ref, Reply& refusal) const;
  [[nodiscard]] Reply job_reply(JobId id, int status) const;
  [[nodiscard]] static Reply say(int status, std::string sentence);
  [[nodiscard]] static Reply no_job(const JobRef& ref);
  [[nodiscard]] bool chosen(const CancelJobs& ask, const JobRecord& job) const;
  [[nodiscard]] std::size_t cancel_all(std::vector<JobId> jobs);

  // Submissions.
  [[nodiscard]] Result<JobRecord> record_of(const SubmitJob& ask) const;
  [[nodiscard]] std::optional<std::string> beyond_share(std::size_t bytes) const;
  [[nodiscard]] std::optional<JobEnding> refuse_at_once(const JobRecord& job) const;
  [[nodiscard]] Submitted submitted(const JobRecord& job) const;
  [[nodiscard]] bool must_be_measured(const JobRecord& job) const;
  void enter(const JobRecord& job);
  void enter_measuring(JobRecord job);
  void set_aside(JobId id);
  [[nodiscard]] Reply submit_reply(JobId id, int status) const;
  [[nodiscard]] Reply try_out(JobRecord job) const;
  [[nodiscard]] Verdict trial(const JobRecord& job) const;
  void foresee(const Snapshot& snapshot, const JobRecord& job, Verdict& verdict) const;

  Core& core_;
  Caller caller_;
};

}  // namespace rubato::daemon
