// The records of the daemon: everything that it knows and the loop does not. The owner of each job,
// promises, the last command, how a job ended, measurements; users and their tokens. They are plain
// values with their JSON, which snapshots and rows of the journal contain (docs/journal.md).
//
// Times that users see are wall times. All other times are loop times.
//
// Reading is strict. A record that cannot be read completely is an error with one sentence.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "rubato/base/json.h"
#include "rubato/base/result.h"
#include "rubato/base/units.h"
#include "rubato/base/wall_time.h"
#include "rubato/core/command.h"
#include "rubato/core/decision.h"
#include "rubato/core/ids.h"
#include "rubato/jobfile/job_file.h"
#include "rubato/journal/digest.h"
#include "rubato/launch/master_messages.h"
#include "rubato/model/step_measurement.h"

namespace rubato::daemon {

// How a job ended.
enum class Ending : std::uint8_t { completed, failed, cancelled, refused };
[[nodiscard]] std::string_view to_text(Ending how);

struct JobEnding {
  Ending how = Ending::completed;
  std::string why;               // one sentence; empty if it finished normally
  std::optional<int> code;       // the exit code of its program
  std::optional<Time> earliest;  // if refused: the earliest deadline that could be promised
};

// A step, and the type of the GPUs on which it was measured.
struct MeasuredStep {
  StepMeasurement step;
  GpuType type;
};

// Measurements of a job that chooses its batch size itself (docs/goodput.md). Its goodput is
// estimated from them.
struct Tuning {
  int initial = 1;  // limits of its batch size (launch/master_messages.h)
  int largest = 1;
  int largest_per_gpu = 1;
  std::optional<double> noise;      // the gradient noise scale, in samples
  std::vector<MeasuredStep> steps;  // one for each type, placement and batch; newest last
};
inline constexpr std::size_t kStepsKept = 64;

// Measurements of one job, or of all jobs of a profile.
struct Rates {
  std::map<int, WorkRate> by_gpus;  // units of work per second
  double pause = 0;                 // seconds that a resize stopped training; 0: unknown
  std::optional<Tuning> tuning;
  std::optional<double> skew = std::nullopt;  // the share of the largest tensor, as it was reported

  // Merges newer measurements into these.
  void learn(const Rates& newer);
};

// Failures of a job shortly after each other. The backoff before the next start grows with each.
struct Setbacks {
  int in_a_row = 0;
  Time last;                    // when the last of them failed
  bool infrastructure = false;  // the last one was an infrastructure failure
  std::string why;              // reason of the last one; may be empty
  std::optional<Time> until;    // end of the backoff, if it is going on
};

// The machines have given a job fewer GPUs than it was to have, because of a limit of its user. It
// has other limits, or waits, until it is tried again. The pause grows with each time in a row.
struct Quota {
  GpuLimits before;  // the limits that it has otherwise
  std::string why;
  int gpus = 0;  // what it could get
  int in_a_row = 0;
  Time last;                  // when this was last heard
  std::optional<Time> until;  // when it is tried again; nullopt: it was
};

// A job that is a trial of a search (model/search.h).
struct SearchTrial {
  JobId search;                          // the first trial of the search
  int number = 1;                        // in the search
  std::vector<StageMetric> stages = {};  // the metric at the end of each stage that it finished
  bool waits = false;                    // on hold, until it is certain whether it goes on
  bool stopped = false;                  // by its search
  friend bool operator==(const SearchTrial&, const SearchTrial&) = default;
};

struct JobRecord {
  JobId id;
  std::string user;
  std::string key;  // idempotency key; may be empty
  // Digest of the file as it was submitted (job_texts.h). Records of older versions have none.
  std::optional<Digest> digest;
  // Size of that file in bytes, if it is so large that it is kept on disk. Then `file` is shortened
  // and must not be run.
  std::optional<std::int64_t> text_bytes;
  JobFile file;
  std::string name;
  std::optional<std::string> nonce;  // SubmitJob::nonce; records of older versions have none
  WallTime submitted{};
  std::optional<WallTime> started;  // when it first got GPUs; its workers may still be loading
  std::optional<WallTime> ended;
  std::optional<WallTime> deadline;
  std::optional<JobEnding> ending;

  // In the unit of its file. If the file does not say how much work it has, a guess in seconds on
  // its smallest GPU count.
  Work work = 0;
  double scale = 1;  // units of work for each unit that its program reports; 0: not known yet
  Rates rates;

  // The newest promise that a decision has made.
  std::optional<Promise> promise;
  bool honoured = false;  // whether the last decision keeps it

  // The run that measures this job, while the job waits for it; and for that run, the job that it
  // measures.
  std::optional<JobId> measured_by;
  std::optional<JobId> measures_for;
  std::optional<Time> verdict_by;

  std::optional<Command> told;  // the last command, as stored
  std::optional<NodeId> home;
  Time running_since = kStart;  // since when it runs on its present GPUs
  int failures = 0;             // of the whole job, without infrastructure failures
  int worker_failures = 0;      // of workers in one run, as its master reports
  int resizes = 0;
  std::optional<Setbacks> setbacks;    // none if no run has failed
  std::optional<JobEnding> leaves_as;  // how it will end when it has released its GPUs
  // Set if its program does not use Rubato's library, so that it runs as one process: the limits
  // that it had before.
  std::optional<GpuLimits> plain;
  std::optional<Quota> quota;  // none if no limit of its user was heard of
  JobProgress progress;
  std::optional<Time> measured_at;

  // Set when the job has ended, because the loop then forgets it.
  GpuTime attained;
  int restarts = 0;
  std::optional<GpuLimits> limits;

  std::optional<double> last_pause;  // seconds that its last resize stopped training

  std::optional<SearchTrial> trial = std::nullopt;

  [[nodiscard]] bool gone() const { return ending.has_value(); }
  // The end of its backoff after a failure; nullopt if there is none.
  [[nodiscard]] std::optional<Time> paused_until() const {
    return setbacks ? setbacks->until : std::nullopt;
  }
  // It has fewer GPUs now, or none, because of a limit of its user.
  [[nodiscard]] bool has_quota() const { return quota && quota->until; }
  [[nodiscard]] WorkUnit unit() const { return file.work ? file.work->unit : WorkUnit::samples; }
  // The name under which jobs share measurements. It contains the user, because users choose the
  // names.
  [[nodiscard]] std::string profile() const;
};

// A token that a browser got for a one-time code (`rubato page`).
struct PageToken {
  std::string token;  // SHA-256 in hex
  WallTime until{};
  friend bool operator==(const PageToken&, const PageToken&) = default;
};

struct UserRecord {
  std::string name;
  bool admin = false;
  double most_weight = 1;
  std::set<std::string> tokens;       // SHA-256 in hex
  std::vector<PageToken> pages = {};  // in the order in which they end
  int guaranteed = 0;                 // GPUs of their guaranteed jobs (antman); 0: no limit
};

// The JSON of a record. Equal records have equal JSON. An error only if a command cannot be
// encoded.
[[nodiscard]] Result<Json> write_record(const JobRecord& job);
[[nodiscard]] Result<Json> write_record(const UserRecord& user);
[[nodiscard]] Result<Json> write_record(const JobEnding& ending);
[[nodiscard]] Result<Json> write_record(const Rates& rates);
[[nodiscard]] Result<Json> write_record(const GpuLimits& limits);
[[nodiscard]] Result<Json> write_record(const Quota& quota);
[[nodiscard]] Result<Json> write_record(const Command& command);

[[nodiscard]] Result<void> read_record(const Json& json, JobRecord& job);
[[nodiscard]] Result<void> read_record(const Json& json, UserRecord& user);
[[nodiscard]] Result<void> read_record(const Json& json, JobEnding& ending);
[[nodiscard]] Result<void> read_record(const Json& json, Rates& rates);
[[nodiscard]] Result<void> read_record(const Json& json, GpuLimits& limits);
[[nodiscard]] Result<void> read_record(const Json& json, Quota& quota);
[[nodiscard]] Result<void> read_record(const Json& json, Command& command);

}  // namespace rubato::daemon
