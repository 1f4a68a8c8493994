// The requests to the daemon, as types. The HTTP server makes them from HTTP requests (routes.h),
// and the core answers them. Nothing here knows HTTP, except that answers have its status numbers.
//
// The Caller says who asks. It comes from the connection, never from the content of a request. A
// caller who is no admin sees only their own jobs. The job of another user is answered like a job
// that does not exist.
//
// A request that only admins may make says so with `kForAdmins`.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "rubato/base/json.h"
#include "rubato/base/wall_time.h"
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

// A name, or a number as text: a node of the cluster (Cluster::find).
using NodeRef = std::variant<NodeId, std::string>;

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
// Reads either of the two.
[[nodiscard]] std::optional<JobState> parse_job_state(std::string_view text);

struct SubmitJob {
  JobFile file;
  std::string key;  // idempotency: the same caller and key is the same job; empty = none
  bool dry_run = false;
  // 128 random bits in hex, drawn outside of the core. They tell this submission from all others,
  // also from one that had the same number in a journal that was lost.
  std::optional<std::string> nonce = std::nullopt;
};
struct CancelJob {
  JobRef job;
};
// Cancels many jobs in one turn. Waiting jobs are cancelled first, so that none of them starts
// because others have released their GPUs. A job must meet every condition that is given, and at
// least one must be given.
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
// What its program reported over time, and what was promised to it.
struct ShowPast {
  JobRef job;
};
// For the server itself, which reads the file. Answer: {"id", "directory", "ended"}. The job's
// directory has the file "log", now or later. If "ended", the file does not grow any more.
struct FindLog {
  JobRef job;
};
struct History {
  std::optional<std::uint64_t> after;  // number of an event; without one, the newest events
  int limit = 100;
  std::optional<JobRef> job;
};
// A time, or how long ago.
using Moment = std::variant<WallTime, Duration>;

// Who held which GPUs when, what changed for each job, and what is planned. `until` empty: now.
struct ShowTimeline {
  Moment since = std::chrono::hours(1);
  std::optional<Moment> until;
};
// The decisions that changed something, the newest first.
struct ShowDecisions {
  std::optional<Moment> since;
  std::optional<std::uint64_t> before;  // the id of a decision
  int limit = 100;
};
// How the cluster is used now, and by whom it was used since then.
struct ShowUse {
  Moment since = std::chrono::hours(24);
};
struct ShowNodes {};
struct SetNode {
  static constexpr bool kForAdmins = true;
  NodeRef node;
  NodeState state = NodeState::up;  // up, draining or down
};
struct ShowPolicy {};
struct SwitchPolicy {
  static constexpr bool kForAdmins = true;
  std::string policy;
  bool dry_run = false;  // only says which promises it would not honour
};
// Answer: {"text"} in Prometheus's format (metrics.h).
struct ShowMetrics {};
struct ShowHealth {};

// The server makes the token and adds it to a good answer. The core sees only its hash, so no token
// can get into the journal.
struct AddUser {
  static constexpr bool kForAdmins = true;
  std::string name;
  bool admin = false;
  double most_weight = 1;  // the largest weight that their jobs may have
  int guaranteed = 0;      // how many GPUs their guaranteed jobs may have; 0: no limit
  Digest token{};
};
struct RemoveUser {
  static constexpr bool kForAdmins = true;
  std::string name;
};
struct ListUsers {
  static constexpr bool kForAdmins = true;
};
// The cells of a tenant (docs/cells.md), which replace those that it has.
struct SetCells {
  static constexpr bool kForAdmins = true;
  std::string tenant;
  std::string cells;
  std::vector<std::string> members;  // empty: the user with the tenant's name
};
struct RemoveCells {
  static constexpr bool kForAdmins = true;
  std::string tenant;
};
struct ListCells {
  static constexpr bool kForAdmins = true;
};
struct AddToken {
  static constexpr bool kForAdmins = true;
  std::string user;
  Digest token{};
};
// A token is named by the first digits of its hash in hex, as ListUsers shows it
// ("tokens":["..."]).
struct RemoveToken {
  static constexpr bool kForAdmins = true;
  std::string user;
  std::string token;
};
inline constexpr int kTokenNameDigits = 12;
// Gives the caller a token for a browser, which ends by itself. Answer: {"user", "role", "until"};
// the server adds the token, as for AddUser.
struct OpenPage {
  Digest token{};
};
// Ends such a token of the caller.
struct ClosePage {
  Digest token{};
};

using Ask = std::variant<SubmitJob, CancelJob, CancelJobs, HoldJob, ResizeJob, ShowJob, ListJobs,
                         ExplainJob, ShowPast, FindLog, History, ShowTimeline, ShowDecisions,
                         ShowUse, ShowNodes, SetNode, ShowPolicy, SwitchPolicy, ShowMetrics,
                         ShowHealth, AddUser, RemoveUser, ListUsers, AddToken, RemoveToken,
                         OpenPage, ClosePage, SetCells, RemoveCells, ListCells>;

struct Request {
  Caller caller;
  Ask ask;
};

struct Answer {
  int status = 200;
  Json body;
};

// A problem of the cluster.
struct Problem {
  std::string what;    // one sentence
  std::string remedy;  // what to do; one sentence
};

// {"error": sentence}
[[nodiscard]] Answer refusal(int status, std::string sentence);
// 404, with the same words for a job that does not exist and a job of another user.
[[nodiscard]] Answer no_such_job(const JobRef& job);

// Whether only an admin may ask this, because it concerns everybody.
[[nodiscard]] bool needs_admin(const Ask& ask);

// The daemon, as the HTTP server knows it. `ask` may be called from any thread; each callback
// is called exactly once, on any thread.
class Loop {
 public:
  virtual ~Loop() = default;
  virtual void ask(Request request, std::function<void(Answer)> callback) = 0;
};

}  // namespace rubato::api
