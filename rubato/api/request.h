// What people ask of the daemon, typed: the HTTP server makes these from requests (routes.h), the
// core answers them. Nothing here knows HTTP but the numbers of its statuses, which are a good list
// of ways to say no.
//
// Who asks is in the Caller and comes from the connection, never from what was sent. The core shows
// a caller who is no admin only their own jobs: another's is answered like one that is not there.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "rubato/base/json.h"
#include "rubato/core/cluster.h"
#include "rubato/core/ids.h"
#include "rubato/core/job.h"
#include "rubato/jobfile/job_file.h"
#include "rubato/journal/digest.h"

namespace rubato::api {

struct Caller {
  std::string user;
  bool admin = false;
  friend bool operator==(const Caller&, const Caller&) = default;
};

// A number, or a name: the caller's newest job of that name (an admin's own first, then anyone's).
// A name is never all digits.
using JobRef = std::variant<JobId, std::string>;

// As shown to people; the names are those that a Slurm user expects.
enum class JobState : std::uint8_t {
  pending,
  profiling,
  held,
  running,
  resizing,
  stopping,
  completed,
  failed,
  cancelled,
  refused,
};
[[nodiscard]] std::string_view to_text(JobState state);     // "PENDING"
[[nodiscard]] std::string_view short_text(JobState state);  // "PD"
// Either of the two.
[[nodiscard]] std::optional<JobState> parse_job_state(std::string_view text);

struct SubmitJob {
  JobFile file;
  std::string key;  // idempotency: the same caller and key is the same job; empty = none
  bool dry_run = false;
  // Random, 128 bits in hex, made outside of the core: tells this submission from all others, also
  // from one that had the same number in a journal that was lost.
  std::optional<std::string> nonce = std::nullopt;
};
struct CancelJob {
  JobRef job;
};
// Many at once, in one turn: those that wait first, so that none of them is started because others
// have let go. Every condition that is given must hold; at least one must be given.
struct CancelJobs {
  std::vector<JobRef> jobs;
  std::optional<std::string> user;
  std::vector<JobState> states;
  std::string name;  // a glob (base/glob.h); empty: any
  bool all = false;  // every job that the caller may cancel
};
struct HoldJob {
  JobRef job;
  bool on = true;
};
struct ResizeJob {
  JobRef job;
  GpuLimits limits;
};
struct ShowJob {
  JobRef job;
};
struct ListJobs {
  std::vector<JobState> states;  // empty = all
  std::optional<std::string> user;
  std::optional<JobId> after;  // in order of ids
  int limit = 100;
};
struct ExplainJob {
  JobRef job;
};
// For the server itself, which reads the file; never shown. Answer: {"id", "directory", "ended"}:
// the job's directory, in which the file "log" is or will be, and whether it will grow no more.
struct FindLog {
  JobRef job;
};
struct History {
  std::optional<std::uint64_t> after;  // number of an event; without one, the newest events
  int limit = 100;
  std::optional<JobRef> job;
};
struct ShowNodes {};
struct SetNode {
  NodeId node;
  NodeState state = NodeState::up;  // up, draining or down
};
struct ShowPolicy {};
struct SwitchPolicy {
  std::string policy;
};
// Answer: {"text"} in Prometheus's format (metrics.h).
struct ShowMetrics {};
struct ShowHealth {};

// Tokens are made by the server, which adds the token to a good answer: the core sees the hash
// alone, so that no token can get into the journal.
struct AddUser {
  std::string name;
  bool admin = false;
  double most_weight = 1;  // the largest weight their jobs may have
  Digest token{};
};
struct RemoveUser {
  std::string name;
};
struct ListUsers {};
struct AddToken {
  std::string user;
  Digest token{};
};
// A token is named by the first digits of its hash in hex, as ListUsers shows it
// ("tokens":["..."]).
struct RemoveToken {
  std::string user;
  std::string token;
};
inline constexpr int kTokenNameDigits = 12;

using Ask =
    std::variant<SubmitJob, CancelJob, CancelJobs, HoldJob, ResizeJob, ShowJob, ListJobs,
                 ExplainJob, FindLog, History, ShowNodes, SetNode, ShowPolicy, SwitchPolicy,
                 ShowMetrics, ShowHealth, AddUser, RemoveUser, ListUsers, AddToken, RemoveToken>;

struct Request {
  Caller caller;
  Ask ask;
};

struct Answer {
  int status = 200;
  Json body;
};

// Something that is wrong with the cluster.
struct Problem {
  std::string what;    // one sentence
  std::string remedy;  // what to do; one sentence
};

// {"error": sentence}
[[nodiscard]] Answer refusal(int status, std::string sentence);
// 404 in the one wording for jobs that are not there and jobs that are another's.
[[nodiscard]] Answer no_such_job(const JobRef& job);

// What only an admin may ask: it concerns everybody.
[[nodiscard]] bool needs_admin(const Ask& ask);

// The scheduling loop, as the server knows it. `ask` may be called from any thread; each callback
// is called exactly once, on any thread.
class Loop {
 public:
  virtual ~Loop() = default;
  virtual void ask(Request request, std::function<void(Answer)> callback) = 0;
};

}  // namespace rubato::api
