// The messages between a job's master and its manager, and the records that they keep in files
// (docs/internals.md, "Messages between master and manager").
//
// The master is the launcher of one job on its home node. A JobLaunch says what to run and where.
// After that only the newest generation counts, whoever sends it: a Place names the slots that the
// job should have, and a StopJob ends the job. The master answers with its whole JobStatus, at once
// and at every change. So a manager that connects again has missed nothing.
//
// Reading is strict (base/json_reader.h). The fields of a message are beside "type". Secrets are
// given by the names of files, never by their content. The job's token is part of a JobLaunch, so a
// JobLaunch belongs in files that only its user can read.
//
// Pure. The files are in job_files.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "rubato/base/json.h"
#include "rubato/base/json_reader.h"
#include "rubato/base/wall_time.h"
#include "rubato/core/batch.h"
#include "rubato/core/ids.h"
#include "rubato/launch/slots.h"
#include "rubato/wire/roster_messages.h"
#include "rubato/wire/worker_messages.h"

namespace rubato::launch {

inline constexpr std::int64_t kLogLimit = std::int64_t{64} << 20U;
// A program that has sent no Hello by then is treated as one that does not know Rubato.
inline constexpr Duration kHelloWithin = std::chrono::seconds(120);
// What users are told about such a program, and what they can change.
inline constexpr std::string_view kRunsAsOneProcess =
    "the program does not use Rubato's library, so it runs as one process on one GPU";
inline constexpr std::string_view kToUseMoreGpus =
    "to train on more, use that library (see examples/) or submit it with --no-elastic, "
    "which starts one process for each GPU; --gpus 1 asks for one GPU from the start";

using wire::ShareName;
inline constexpr std::size_t kLongestShareName = 63;
// Of a share that a cluster manager starts: a-z, 0-9 and -.
[[nodiscard]] bool is_share_name(std::string_view name);

// A share of the job, and the slots of the workers that it runs (docs/many-hosts.md).
struct PlacedShare {
  ShareName name;
  std::string node;  // the manager's name of it, for people
  std::vector<Slot> slots;
  friend bool operator==(const PlacedShare&, const PlacedShare&) = default;
};
// Of a job whose workers are in shares that a cluster manager starts.
struct SharesLaunch {
  std::string directory;            // of the job, which all hosts see: shares/NAME.json is there
  std::vector<PlacedShare> placed;  // each slot of the launch is in one share
  std::string address{};            // of the master's host, for shares; empty: found out
  friend bool operator==(const SharesLaunch&, const SharesLaunch&) = default;
};

// Everything that a master needs to run a job.
struct JobLaunch {
  JobId job;
  std::string name;
  std::string
      token;  // in the environment of every worker, so that those of a dead master are found
  NodeId home;
  Generation generation;       // of this start
  std::vector<Slot> slots;     // of the first workers
  std::vector<int> node_gpus;  // of each node of the cluster, by number
  std::optional<Batch> batch;
  std::vector<std::string> command;
  std::map<std::string, std::string> env;
  std::string directory;  // where the workers start; empty: in the master's directory
  std::string user;       // empty: the agent's user
  std::map<std::string, std::string> secrets;  // NAME -> the file it is in
  int least = 1;  // the owner's limit at the start; the master obeys any number
  int most = 1;
  int max_failures = 3;  // of workers; one more, and the job has failed
  Duration grace = from_seconds(10);
  std::optional<Duration> stop_after;  // without a manager for this time, the job stops itself
  std::int64_t log_limit = kLogLimit;  // bytes
  bool live = true;                    // false: a program that does not know Rubato
  Duration hello = kHelloWithin;
  bool opportunistic = false;            // it yields to other jobs in its slots
  bool silent = false;                   // live, but in an earlier start it sent no Hello in time
  std::optional<SharesLaunch> shares{};  // absent: the workers are on this machine
  friend bool operator==(const JobLaunch&, const JobLaunch&) = default;
};

using wire::JobTuning;

struct JobProgress {
  std::int64_t step = 0;
  double samples = 0;  // since the start of the job, if its program reports it
  double epoch = 0;    // including the finished part of the present one
  std::optional<double> loss;
  double rate = 0;                  // samples per second, over the last seconds
  double step_rate = 0;             // steps per second
  int workers = 0;                  // that computed the last step
  int batch = 0;                    // samples of the last step, over all workers
  std::optional<int> per_gpu;       // of one pass, if the program reports it
  std::optional<int> accumulation;  // passes before the one that synchronises
  std::optional<double> noise;      // gradient noise scale, in samples
  std::optional<JobTuning> tuning = std::nullopt;
  std::optional<double> learning_rate = std::nullopt;  // of the last step, if it is reported
  std::map<std::string, double> metrics = {};          // by name, as last reported
  std::optional<double> skew = std::nullopt;  // the share of its largest parameter, if reported
  friend bool operator==(const JobProgress&, const JobProgress&) = default;
};

struct JobEnd {
  enum class How : std::uint8_t { finished, stopped, failed };
  How how = How::finished;
  int code = 0;     // the exit code of the job's launcher
  std::string why;  // empty if it finished
  // The machine or Rubato itself could not run the job, so this is not a failure of the job.
  bool infrastructure = false;
  std::optional<WallTime> at = std::nullopt;  // when it ended; not every reporter knows it
  friend bool operator==(const JobEnd&, const JobEnd&) = default;
};
[[nodiscard]] std::string_view to_text(JobEnd::How how);

struct ShareView {
  ShareName name;
  bool linked = false;  // it is connected to the master now
  std::string native;   // the manager's own id of the one that was admitted; empty: none yet
  friend bool operator==(const ShareView&, const ShareView&) = default;
};

struct JobStatus {
  JobId job;
  Generation generation;     // the newest one that was obeyed
  std::vector<Slot> in_use;  // slots with processes that are not collected yet; sorted by place
  bool running = false;      // exactly the slots of `generation` train, and no other process lives
  JobProgress progress;
  std::optional<JobEnd> ended;
  int failures = 0;
  int resizes = 0;  // requested since this start
  // How long each of the newest ones stopped the training, in seconds.
  std::vector<double> pauses;
  bool silent = false;        // its program sends no Hello, so it has one process in any case
  std::int64_t revision = 0;  // the newest one of `generation` that was obeyed
  std::vector<ShareView> shares = {};  // without those that the master has ended
  // When progress.step was applied, by the workers' clock, in seconds.
  std::optional<double> applied_at = std::nullopt;
  // Of a guest on the GPUs of another job: which share of the time it may compute.
  std::optional<double> guest_share = std::nullopt;
  friend bool operator==(const JobStatus&, const JobStatus&) = default;
};
inline constexpr std::size_t kPausesKept = 16;

// A unique name of a process. Process ids are reused, but with another start time.
struct ProcessName {
  int pid = 0;
  long long start_time = 0;  // wire::start_time_of
  friend bool operator==(const ProcessName&, const ProcessName&) = default;
};
struct WorkerRecord {
  std::int64_t uid = 0;
  Slot slot;
  ProcessName process;
  friend bool operator==(const WorkerRecord&, const WorkerRecord&) = default;
};
// How the last run of a master ended.
struct JobExit {
  Generation generation;  // the newest one that was obeyed; an exit older than the launch is stale
  JobEnd end;
  JobProgress progress;
  int failures = 0;
  int resizes = 0;
  friend bool operator==(const JobExit&, const JobExit&) = default;
};

[[nodiscard]] Json to_json(const JobLaunch& launch);
[[nodiscard]] Json to_json(const JobProgress& progress);
[[nodiscard]] Json to_json(const JobEnd& end);
[[nodiscard]] Json to_json(const JobStatus& status);
[[nodiscard]] Json to_json(const ProcessName& process);
[[nodiscard]] Json to_json(const std::vector<WorkerRecord>& workers);
[[nodiscard]] Json to_json(const JobExit& exit);

[[nodiscard]] Result<JobLaunch> parse_job_launch(const Json& json);
[[nodiscard]] Result<JobProgress> parse_job_progress(const Json& json);
[[nodiscard]] Result<JobEnd> parse_job_end(const Json& json);
[[nodiscard]] Result<JobStatus> parse_job_status(const Json& json);
[[nodiscard]] Result<ProcessName> parse_process_name(const Json& json);
[[nodiscard]] Result<std::vector<WorkerRecord>> parse_worker_records(const Json& json);
[[nodiscard]] Result<JobExit> parse_job_exit(const Json& json);

// The same, as part of other records.
void read_job_launch(const JsonValue& json, JobLaunch& launch);
void read_job_progress(const JsonValue& json, JobProgress& progress);
// The object may also have a "type".
void read_job_status(const JsonValue& json, JobStatus& status);
// Reads it from an object that has other fields, too.
[[nodiscard]] ProcessName read_process_name(JsonFields& fields);

// --- on the master's socket ---

struct Manage {  // first; the master hangs up on a wrong token
  std::string token;
  friend bool operator==(const Manage&, const Manage&) = default;
};
// Ignored unless newer than all before: a later generation, or the same one with a later revision.
// A revision changes only the shares, because the manager has ended one or another takes its place.
struct Place {
  Generation generation;
  std::vector<Slot> slots;
  std::optional<Batch> batch;
  std::int64_t revision = 0;
  std::vector<PlacedShare> shares = {};  // of a job in shares: each slot is in one of them
  // Of these the manager says that they have ended. Named as long as the manager's word may be new.
  std::vector<ShareName> ended_shares = {};
  friend bool operator==(const Place&, const Place&) = default;
};
struct StopJob {  // with a checkpoint; ignored unless newer than all before
  Generation generation;
  friend bool operator==(const StopJob&, const StopJob&) = default;
};
struct KillJob {  // at once
  friend bool operator==(const KillJob&, const KillJob&) = default;
};
// To an opportunistic job: it may compute this share of the time. As a guest of another job in its
// slots, it must hear this again and again: a guest that nobody watches stands still.
struct ThrottleJob {
  double share = 1;
  bool guest = false;
  friend bool operator==(const ThrottleJob&, const ThrottleJob&) = default;
};
using ToMaster = std::variant<Manage, Place, StopJob, KillJob, ThrottleJob>;

[[nodiscard]] Json to_json(const ToMaster& message);
[[nodiscard]] Result<ToMaster> parse_to_master(const Json& message);
[[nodiscard]] Place read_place(JsonFields& fields);
[[nodiscard]] StopJob read_stop_job(JsonFields& fields);
// {"type": "status", ...}; parse_job_status() reads it.
[[nodiscard]] Json status_message(const JobStatus& status);

}  // namespace rubato::launch
