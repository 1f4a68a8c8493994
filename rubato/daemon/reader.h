// Answers requests that change nothing, for one caller. A user can neither see nor change the jobs
// of other users: they are answered like jobs that do not exist.
//
// A request is checked at once. Its answer is made when the turn is over, so it shows what the turn
// has changed. Some answers take longer.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rubato/api/request.h"
#include "rubato/daemon/core_parts.h"

namespace rubato::daemon {

// Makes the answer. It is called at the end of the turn, before the turn is stored. If there is no
// answer yet, it is called again in each later turn.
using Reply = std::function<std::optional<Answer>()>;

[[nodiscard]] Reply say(int status, std::string sentence);
[[nodiscard]] Reply no_job(const JobRef& ref);

class Reader {
 public:
  Reader(const CoreParts& core, Caller caller) : core_(core), caller_(std::move(caller)) {}

  Reply operator()(const ShowJob& ask) const;
  Reply operator()(const ListJobs& ask) const;
  Reply operator()(const ExplainJob& ask) const;
  Reply operator()(const ShowPast& ask) const;
  Reply operator()(const FindLog& ask) const;
  Reply operator()(const History& ask) const;
  Reply operator()(const ShowTimeline& ask) const;
  Reply operator()(const ShowDecisions& ask) const;
  Reply operator()(const ShowUse& ask) const;
  Reply operator()(const ShowNodes& ask) const;
  Reply operator()(const ShowPolicy& ask) const;
  Reply operator()(const ShowMetrics& ask) const;
  Reply operator()(const ShowHealth& ask) const;
  Reply operator()(const ListUsers& ask) const;
  Reply operator()(const ListCells& ask) const;

  [[nodiscard]] const CoreParts& core() const { return core_; }
  [[nodiscard]] const DaemonState& state() const { return *core_.state; }
  [[nodiscard]] const Caller& caller() const { return caller_; }
  [[nodiscard]] bool sees(const JobRecord& job) const;
  // The job that the caller means, or null. A name means the newest of the caller's own jobs, else
  // the newest of all jobs that the caller sees.
  [[nodiscard]] const JobRecord* find(const JobRef& ref) const;
  // The same for each of them, in one pass over all jobs.
  [[nodiscard]] std::vector<const JobRecord*> find_all(const std::vector<JobRef>& refs) const;
  // The job, if the caller sees it and it has not ended; else null, and the reply that says so.
  [[nodiscard]] const JobRecord* find_alive(const JobRef& ref, Reply& refusal) const;
  // Shows the job as it is when the turn is over.
  [[nodiscard]] Reply job_reply(JobId id, int status) const;

 private:
  const CoreParts& core_;
  Caller caller_;
};

}  // namespace rubato::daemon
