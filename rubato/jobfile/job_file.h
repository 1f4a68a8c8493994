// A job as its owner writes it: a JSON or YAML file, or the body of a submission. Every field is
// optional but the command; one that is not known is refused, because a misspelt deadline must not
// be a job without one. docs/live.md describes the fields for people.
//
//   command: [python, train.py]       an argv list, never a line for a shell
//   name, profile                     jobs of one profile share what was measured of them
//   directory: /path                  where it runs
//   goal: asap | {deadline: T}        T = 2026-11-20T17:00:00+01:00, or +2h from the submission
//   work: {epochs: 3}                 or steps, or samples
//   gpus: {min: 1, max: 8, allowed: [1, 2, 4, 8]}, or just the number of a rigid job
//   elastic: false                    the program knows nothing of Rubato: a resize starts it again
//   batch: {mode: fixed | adaptive, min: 64, max: 4096}
//   learning_rate: adascale | sqrt | linear
//   env: {NAME: value}
//   secrets: {NAME: /path}            arrives as a private file, whose path is in $NAME
//   weight, max_failures, notice: 30s, cooldown: 2m, stop_after: 10m
//
// Who submits is never in it: that is for the connection to say. Secrets are named by the file that
// has them; a secret itself has no place here, because this text is journalled and shown.
#pragma once

#include <chrono>
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

namespace rubato::jobfile {

// Small, because the JSON library compares each key of an object with all before it.
inline constexpr std::size_t kLargestJobFile = std::size_t{64} << 10U;

enum class WorkUnit : std::uint8_t { steps, epochs, samples };
enum class BatchMode : std::uint8_t { fixed, adaptive };
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

struct JobFile {
  std::vector<std::string> command;
  std::string name;
  std::string profile;
  std::string directory;                   // absolute; empty: the user's home
  std::optional<WallTime> deadline;        // at most one of the two
  std::optional<Duration> deadline_after;  // from the submission
  std::optional<WorkAmount> work;
  GpuLimits gpus{1, 0, {}};  // max 0: as many as there are
  bool elastic = true;       // false: started again at a resize, with a rank for each GPU
  BatchWish batch;
  RateRule learning_rate = RateRule::adascale;
  std::map<std::string, std::string> env;
  std::map<std::string, std::string> secrets;  // where to read them: never the secrets
  double weight = 1;
  int max_failures = 3;
  Duration notice{};
  Duration cooldown{};
  std::optional<Duration> stop_after;  // without a word from the daemon, the job may end itself
};

// `source` names the input in the error sentence. YAML if the text does not begin with '{'.
[[nodiscard]] Result<JobFile> parse_job_file(std::string_view text, const std::string& source);
// In two steps, for whoever adds to the file before it must be whole.
[[nodiscard]] Result<Json> parse_job_text(std::string_view text, const std::string& source);
[[nodiscard]] Result<JobFile> read_job(const Json& json, const std::string& source);
// Canonical: the same job gives the same bytes, and read_job() gives the same job.
[[nodiscard]] Json to_json(const JobFile& job);

[[nodiscard]] std::string_view to_text(RateRule rule);  // "sqrt"

// A name for a job that runs this program and has none: by the rules for names, whatever the
// program is called.
[[nodiscard]] std::string name_after(std::string_view program);

// "90", "90s", "15m", "2h", "3d"; "1h30m". At most ten years.
[[nodiscard]] std::optional<Duration> parse_span(std::string_view text);
// Reads back exactly.
[[nodiscard]] std::string to_text(Duration span);
// ISO 8601 with an offset or Z, from 1970 on; without one, nobody knows whose noon it is.
[[nodiscard]] std::optional<WallTime> parse_wall_time(std::string_view given);
// In UTC; reads back exactly.
[[nodiscard]] std::string to_text(WallTime time);

}  // namespace rubato::jobfile
