// What the daemon knows beyond the loop: whose jobs there are, what they were promised and told,
// how they ended, what was measured of them; the users and their tokens. Plain values with their
// JSON, which is what snapshots and rows of the journal (docs/journal.md) are made of.
//
// Wall times are kept where people are told them; all else is the loop's own time.
//
// Reading is strict: a record that cannot be read whole is an error with one sentence.
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

// How a job is gone.
enum class Ending : std::uint8_t { completed, failed, cancelled, refused };
[[nodiscard]] std::string_view to_text(Ending how);

struct JobEnding {
  Ending how = Ending::completed;
  std::string why;               // one sentence; empty if it just finished
  std::optional<int> code;       // what its program exited with
  std::optional<Time> earliest;  // of a refused one: the deadline that could have been promised
};

// What was measured of the steps of a job that chooses its batch by itself (docs/goodput.md): what
// its goodput is estimated from.
struct Tuning {
  int initial = 1;  // limits of its batch (launch/master_messages.h)
  int largest = 1;
  int largest_per_gpu = 1;
  std::optional<double> noise;         // the gradient noise scale, in samples
  std::vector<StepMeasurement> steps;  // the newest of each placement and batch, the latest last
};
inline constexpr std::size_t kStepsKept = 64;

// What was measured of a job, or of all jobs of one profile.
struct Rates {
  std::map<int, WorkRate> by_gpus;  // in units of work a second
  double pause = 0;                 // seconds that a resize kept the training waiting; 0 = unknown
  std::optional<Tuning> tuning;

  // Takes in what is newer.
  void learn(const Rates& newer);
};

// Runs of a job that failed one soon after the other: each next one begins after a longer pause.
struct Setbacks {
  int in_a_row = 0;
  Time last;                    // when the last of them failed
  bool infrastructure = false;  // the last one was no fault of the job
  std::string why;              // of the last one; may be empty
  std::optional<Time> until;    // the pause, while there is one
};

struct JobRecord {
  JobId id;
  std::string user;
  std::string key;  // idempotency; may be empty
  // Of the file as it was submitted (job_texts.h); old rows have none.
  std::optional<Digest> digest;
  // Bytes of that file if it is so large that it is kept on disk under its digest: then `file` is
  // shortened, and must not be run.
  std::optional<std::int64_t> text_bytes;
  JobFile file;
  std::string name;
  std::optional<std::string> nonce;  // SubmitJob; jobs of older versions have none
  WallTime submitted{};
  std::optional<WallTime> started;  // given GPUs; its workers may still load
  std::optional<WallTime> ended;
  std::optional<WallTime> deadline;
  std::optional<JobEnding> ending;

  // Work in the unit of its file; if it has none, a guess in seconds on its smallest count.
  Work work = 0;
  double scale = 1;  // of what its program counts to that unit; 0: not yet known
  Rates rates;

  // The promise that the last decision to make one made.
  std::optional<Promise> promise;
  bool honoured = false;  // by the last decision

  // A job that waits for what another, which runs for it, measures; and the other way round.
  std::optional<JobId> measured_by;
  std::optional<JobId> measures_for;
  std::optional<Time> verdict_by;

  std::optional<Command> told;  // the last, as stored
  std::optional<NodeId> home;
  Time running_since = kStart;  // on the present GPUs
  int failures = 0;             // of the job as a whole; not those of the infrastructure
  int worker_failures = 0;      // that one of its runs has had, as it tells
  int resizes = 0;
  std::optional<Setbacks> setbacks;    // none if no run of it has failed
  std::optional<JobEnding> leaves_as;  // decided already; it still has to let go of its GPUs
  // Its program does not speak to its launcher, so it runs as one process: the limits it had
  // before.
  std::optional<GpuLimits> plain;
  JobProgress progress;
  std::optional<Time> measured_at;

  // Of a job that is gone: the loop has forgotten it.
  GpuTime attained;
  int restarts = 0;
  std::optional<GpuLimits> limits;

  std::optional<double> last_pause;  // seconds that its last resize kept it waiting

  [[nodiscard]] bool gone() const { return ending.has_value(); }
  // Until when it is kept from starting again after a failure; nullopt: it is not.
  [[nodiscard]] std::optional<Time> paused_until() const {
    return setbacks ? setbacks->until : std::nullopt;
  }
  [[nodiscard]] WorkUnit unit() const { return file.work ? file.work->unit : WorkUnit::samples; }
  // Whose measurements it shares: of one user, because names are theirs.
  [[nodiscard]] std::string profile() const;
};

struct UserRecord {
  std::string name;
  bool admin = false;
  double most_weight = 1;
  std::set<std::string> tokens;  // SHA-256 in hex
};

// The JSON of a record. Canonical: equal records have equal texts. An error only for what the codec
// of commands refuses.
[[nodiscard]] Result<Json> write_record(const JobRecord& job);
[[nodiscard]] Result<Json> write_record(const UserRecord& user);
[[nodiscard]] Result<Json> write_record(const JobEnding& ending);
[[nodiscard]] Result<Json> write_record(const Rates& rates);
[[nodiscard]] Result<Json> write_record(const GpuLimits& limits);
[[nodiscard]] Result<Json> write_record(const Command& command);

[[nodiscard]] Result<void> read_record(const Json& json, JobRecord& job);
[[nodiscard]] Result<void> read_record(const Json& json, UserRecord& user);
[[nodiscard]] Result<void> read_record(const Json& json, JobEnding& ending);
[[nodiscard]] Result<void> read_record(const Json& json, Rates& rates);
[[nodiscard]] Result<void> read_record(const Json& json, GpuLimits& limits);
[[nodiscard]] Result<void> read_record(const Json& json, Command& command);

}  // namespace rubato::daemon
