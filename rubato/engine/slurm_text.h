// Reads what Slurm's commands print, and says their states and reasons in words. Pure.
//
// Written for Slurm 22.05 to 24.11. Fields that are not known are skipped.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rubato/base/result.h"
#include "rubato/base/time.h"
#include "rubato/core/cluster.h"
#include "rubato/engine/cluster_manager.h"

namespace rubato::engine {

// A node, as `scontrol --oneliner --details show node` says.
struct SlurmNode {
  std::string name;
  int gpus = 0;
  int gpus_used = 0;  // by all jobs
  std::string type;   // of all its GPUs; empty: not told, or several types
  NodeState state = NodeState::up;
  std::string why;         // if it is not up
  bool answering = false;  // its slurmd answers, so Slurm knows what runs there
  int cpus = 0;
  std::int64_t memory = 0;  // MiB
  std::vector<std::string> partitions;
  std::vector<std::string> features;
  friend bool operator==(const SlurmNode&, const SlurmNode&) = default;
};
[[nodiscard]] Result<std::vector<SlurmNode>> parse_slurm_nodes(std::string_view text);

// A job whose name begins as ours do.
struct SlurmJob {
  std::int64_t id = 0;
  std::string state;  // Slurm's word, such as RUNNING
  std::string user;
  std::string node;     // where it runs, ran, or waits to run
  bool placed = false;  // it has, or had, the GPUs of that node
  int gpus = 0;
  std::string reason;  // Slurm's word
  std::string name;
  std::optional<Duration> left = std::nullopt;  // until its time limit, if it has one and runs
  friend bool operator==(const SlurmJob&, const SlurmJob&) = default;
};
// The format for `squeue --format`. A name may contain anything, also line breaks. So every row
// begins with `mark`, which nobody could know: random text without special characters.
[[nodiscard]] std::string slurm_job_format(std::string_view mark);
[[nodiscard]] Result<std::vector<SlurmJob>> parse_slurm_jobs(std::string_view text,
                                                             std::string_view mark,
                                                             std::string_view prefix);

// "1-02:03:04", "03:04"; 0 if it is over (INVALID). nullopt: there is no limit.
[[nodiscard]] std::optional<Duration> parse_slurm_time_left(std::string_view text);

// The default partition in the output of `sinfo --format=%P`; empty: there is none.
[[nodiscard]] std::string default_slurm_partition(std::string_view text);

// The number in the output of `sbatch --parsable`; empty: there is none.
[[nodiscard]] std::string submitted_slurm_job(std::string_view text);

// What a command wrote to its standard error, as one sentence without its prefixes.
[[nodiscard]] std::string slurm_complaint(std::string_view text);
// Whether a submission that failed with this complaint may have been made, or may succeed when it
// is repeated: the controller was not reached, or its answer was lost. Otherwise it was refused.
[[nodiscard]] bool slurm_answer_lost(std::string_view complaint);

// What Slurm's word for a job's state means for its processes. `gone` if they have ended, provided
// that the node answers. A state that is not known is `ending`, because nothing may be concluded
// from it.
[[nodiscard]] ManagedShare::State slurm_share_state(std::string_view state);
// Why a job waits, or how it has ended, in words. Empty: there is nothing to say.
[[nodiscard]] std::string slurm_words(const SlurmJob& job);

// Whether it can be part of an argument of Slurm's commands without a special meaning there.
[[nodiscard]] bool plain_slurm_name(std::string_view name);

}  // namespace rubato::engine
