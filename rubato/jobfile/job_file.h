// A job as its owner writes it: a JSON or YAML file, or the body of a submission. Only `command` is
// required. Unknown fields are refused, because a misspelt deadline would give a job without one.
// job_fields.h has the table of fields, and docs/job-file.md describes them.
//
// The file never says who submits: the connection does. It names the files of secrets and never
// contains a secret, because its text is stored in the journal and shown to users.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rubato/base/json.h"
#include "rubato/base/result.h"
#include "rubato/base/wall_time.h"
#include "rubato/core/job.h"
#include "rubato/jobfile/job_name.h"
#include "rubato/jobfile/times.h"
#include "rubato/model/search.h"

namespace rubato::jobfile {

// Small, because the JSON library compares each key of an object with all keys before it.
inline constexpr std::size_t kLargestJobFile = std::size_t{64} << 10U;

enum class WorkUnit : std::uint8_t { steps, epochs, samples };
enum class BatchMode : std::uint8_t { fixed, adaptive };
enum class JobClass : std::uint8_t { guaranteed, opportunistic };
enum class RateRule : std::uint8_t { adascale, square_root, linear };

struct WorkAmount {
  WorkUnit unit = WorkUnit::steps;
  double amount = 0;
  friend bool operator==(const WorkAmount&, const WorkAmount&) = default;
};

struct BatchWish {
  BatchMode mode = BatchMode::fixed;
  int min = 0;  // 0: what the program says
  int max = 0;
  friend bool operator==(const BatchWish&, const BatchWish&) = default;
};

// The search for hyper-parameters that the job is a trial of (docs/job-file.md).
struct SearchWish {
  std::string name;
  SearchRule rule;
  WorkAmount stage;  // length of the first one
  std::string metric = "loss";
  bool wait = true;  // at the end of a stage, until it is certain whether it goes on
  friend bool operator==(const SearchWish&, const SearchWish&) = default;
};

struct JobFile {
  std::vector<std::string> command;
  std::string name;
  std::string profile;
  std::string directory;                   // absolute; empty: the user's home
  std::optional<WallTime> deadline;        // at most one of the two
  std::optional<Duration> deadline_after;  // from the submission
  std::optional<WorkAmount> work;
  GpuLimits gpus{1, 0, {}};  // max 0: as many as there are
  bool elastic = true;       // false: a resize restarts it, with one process for each GPU
  BatchWish batch;
  RateRule learning_rate = RateRule::adascale;
  std::optional<SearchWish> search;
  std::map<std::string, std::string> env;
  std::map<std::string, std::string> secrets;  // the paths of their files
  double weight = 1;
  JobClass job_class = JobClass::guaranteed;
  int max_failures = 3;
  Duration notice{};
  Duration cooldown{};
  std::optional<Duration> stop_after;  // without contact to the daemon, the job ends itself
};

// `source` names the input in the error sentence. YAML if the text does not begin with '{'.
[[nodiscard]] Result<JobFile> parse_job_file(std::string_view text, const std::string& source);
// The same in two steps, for callers that add fields before the job is checked.
[[nodiscard]] Result<Json> parse_job_text(std::string_view text, const std::string& source);
[[nodiscard]] Result<JobFile> read_job(const Json& json, const std::string& source);
// Canonical: the same job gives the same bytes, and read_job() gives the same job.
[[nodiscard]] Json to_json(const JobFile& job);

// Sets what the scheduler sees of the file without knowing the cluster.
void tell_scheduler(const JobFile& job, JobSpec& spec);

[[nodiscard]] std::string_view to_text(RateRule rule);        // "sqrt"
[[nodiscard]] std::string to_text(const WorkAmount& amount);  // "3 epochs"

}  // namespace rubato::jobfile
