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

// A node, as `scontrol --oneliner --details show node` says. A node with GPUs of several types is
// one for each type: "n1/a100" and "n1/v100" of the host n1.
struct SlurmNode {
  std::string name;
  std::string host;  // Slurm's name of it
  int gpus = 0;
  int gpus_used = 0;  // by all jobs
  std::string type;   // of its GPUs; empty: not told
  NodeState state = NodeState::up;
  std::string why;          // if it is not up
  bool answering = false;   // its slurmd answers, so Slurm knows what runs there
  int cpus = 0;             // for these GPUs
  std::int64_t memory = 0;  // MiB, for these GPUs
  std::vector<std::string> partitions;
  std::vector<std::string> features;
  friend bool operator==(const SlurmNode&, const SlurmNode&) = default;
};
[[nodiscard]] Result<std::vector<SlurmNode>> parse_slurm_nodes(std::string_view text);

// The same, from the words of Slurm. Lists are separated by commas.
struct SlurmNodeWords {
  std::string_view name, state, reason, gres, gres_used;
  std::int64_t cpus = 0;
  std::int64_t memory = 0;
  std::vector<std::string> partitions, features;
};
void add_slurm_nodes(const SlurmNodeWords& words, std::vector<SlurmNode>& nodes);

// A partition, as `scontrol --oneliner show partition` says.
struct SlurmPartition {
  std::string name;
  bool is_default = false;
  std::optional<Duration> limit;  // of a job that asks for none; nullopt: there is no limit
  std::string settings;           // everything that an administrator can change
  friend bool operator==(const SlurmPartition&, const SlurmPartition&) = default;
};
[[nodiscard]] std::vector<SlurmPartition> parse_slurm_partitions(std::string_view text);

// A job whose name begins as ours do.
struct SlurmJob {
  std::int64_t id = 0;
  std::string state;  // Slurm's word, such as RUNNING
  std::string user;
  std::string node;     // where it runs, ran, or waits to run
  bool placed = false;  // it has, or had, the GPUs of that node
  int gpus = 0;
  std::string type;    // of its GPUs, if it asked for one
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

// The GPUs that a job asks for: their number, and their type if it is one.
struct SlurmGpus {
  int number = 0;
  std::string type;
};
[[nodiscard]] SlurmGpus parse_slurm_gpus(std::string_view list);

// The number in the output of `sbatch --parsable`; empty: there is none.
[[nodiscard]] std::string submitted_slurm_job(std::string_view text);

// What a command wrote to its standard error, as one sentence without its prefixes.
[[nodiscard]] std::string slurm_complaint(std::string_view text);
// Whether a submission that failed with this complaint may have been made, or may succeed when it
// is repeated: the controller was not reached, or its answer was lost. Otherwise it was refused.
[[nodiscard]] bool slurm_answer_lost(std::string_view complaint);

// Whether a refusal, or the reason why a job waits, is about its user and account, and not about
// the node: a share of another user may be taken.
[[nodiscard]] bool slurm_limit_of_user(std::string_view why);

// What Slurm's word for a job's state means for its processes. `gone` if they have ended, provided
// that the node answers. A state that is not known is `ending`, because nothing may be concluded
// from it.
[[nodiscard]] ManagedShare::State slurm_share_state(std::string_view state);
// Why a job waits, or how it has ended, in words. Empty: there is nothing to say.
[[nodiscard]] std::string slurm_words(const SlurmJob& job);

// Whether it can be part of an argument of Slurm's commands without a special meaning there.
[[nodiscard]] bool plain_slurm_name(std::string_view name);

}  // namespace rubato::engine
