// How Slurm is asked: by its commands (slurm_commands.h), or by slurmrestd (slurm_rest.h). What is
// asked, and what follows from the answers, is in slurm_manager.h.
//
// No shell ever reads a name, a path or an argument. The script of every job is the same fixed
// text, which executes its own words. Its environment is made here. Nothing secret is in words,
// environment or comment: Slurm shows and stores all of them.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rubato/base/result.h"
#include "rubato/engine/cluster_manager.h"
#include "rubato/engine/slurm_text.h"
#include "rubato/launch/process.h"

namespace rubato::engine {

struct SlurmOptions {
  std::string prefix;     // the names of all our shares begin with it, and no others
  std::string partition;  // empty: the default one
  std::string account;    // empty: the user's default
  std::string
      configuration;     // the value of SLURM_CONF for all commands; empty: the default of Slurm
  std::string rest;      // where slurmrestd listens: "unix:PATH" or "tcp:HOST:PORT"; empty: none
  std::string token;     // the file with the token for slurmrestd; empty: none
  int cpus_per_gpu = 0;  // 0: its part of the node's
  std::int64_t memory_per_gpu = 0;  // MiB; 0: its part of the node's
  int minutes = 0;                  // the time limit of a share; 0: the partition's
  std::size_t submissions_at_once = 8;
  std::chrono::milliseconds patience{20'000};  // with one request
  std::chrono::milliseconds between_lists{1'000};
};
// Checks what could be an argument with a special meaning.
[[nodiscard]] Result<void> check(const SlurmOptions& options);
// "/run/slurmrestd.sock" or "http://127.0.0.1:6820", as SlurmOptions::rest. slurmrestd does not
// encrypt, so only addresses of this machine are taken.
[[nodiscard]] Result<std::string> slurm_rest_address(const std::string& text);

// A job of Slurm to make. Everything was checked.
struct SlurmRequest {
  ShareSpec share;
  std::string host;
  std::string type;  // of the GPUs; empty: any
  int cpus_per_gpu = 1;
  std::int64_t memory_per_gpu = 1;  // MiB
  std::string partition;
};

struct SlurmReply {
  bool good = false;
  std::string text;
  std::string why;    // if it is not good
  bool lost = false;  // nobody knows what it has done
};

// A question that is under way. It is given up if this is destroyed.
class SlurmCall {
 public:
  SlurmCall() = default;
  SlurmCall(const SlurmCall&) = delete;
  SlurmCall& operator=(const SlurmCall&) = delete;
  virtual ~SlurmCall() = default;
  // nullopt: there is no answer yet. Not called again after the answer.
  [[nodiscard]] virtual std::optional<SlurmReply> look() = 0;
};

class SlurmWay {
 public:
  using Begun = Result<std::unique_ptr<SlurmCall>>;

  SlurmWay() = default;
  SlurmWay(const SlurmWay&) = delete;
  SlurmWay& operator=(const SlurmWay&) = delete;
  virtual ~SlurmWay() = default;

  // Whether the request can be made at all; the error says why not.
  [[nodiscard]] virtual Result<void> can_submit(const ShareSpec& share) const = 0;
  // An error if nothing was sent.
  [[nodiscard]] virtual Begun submit(const SlurmRequest& request) = 0;
  // Slurm's number in the answer; empty: there is none.
  [[nodiscard]] virtual std::string submitted(const std::string& text) const = 0;

  // At most so many numbers in one call.
  [[nodiscard]] virtual std::size_t most_cancels() const = 0;
  [[nodiscard]] virtual Begun cancel(const std::vector<std::string>& numbers) = 0;

  [[nodiscard]] virtual Begun ask_partitions() = 0;
  [[nodiscard]] virtual Begun ask_nodes() = 0;
  [[nodiscard]] virtual Begun ask_jobs() = 0;
  // Read the answers, before the next question.
  [[nodiscard]] virtual Result<std::vector<SlurmPartition>> partitions(const std::string& text) = 0;
  [[nodiscard]] virtual Result<std::vector<SlurmNode>> nodes(const std::string& text) = 0;
  // Only those whose name begins as ours.
  [[nodiscard]] virtual Result<std::vector<SlurmJob>> jobs(const std::string& text) = 0;
};
[[nodiscard]] std::unique_ptr<SlurmWay> way_to_slurm(const SlurmOptions& options);

// The user of this process.
[[nodiscard]] std::string own_slurm_user();
// What a job gets, and nothing else.
[[nodiscard]] launch::Environment slurm_environment(const std::optional<launch::RunAs>& user,
                                                    const std::string& configuration);
// Without control characters.
[[nodiscard]] std::string slurm_comment(std::string comment);

inline constexpr std::size_t kMostSlurmAnswer = std::size_t{256} << 20U;

// What the script of a job does with its words: the directory, the log, the command. The directory
// of the log may still be on its way: the job's master makes it, and network file systems show it
// later.
inline constexpr std::string_view kSlurmScript =
    "i=0\n"
    "until test -d \"${2%/*}\" || test $i -ge 60; do sleep 1; i=$((i+1)); done\n"
    "cd -- \"$1\" && exec >>\"$2\" 2>&1 || exit 1\n"
    "shift 2\n"
    "exec \"$@\"\n";

}  // namespace rubato::engine
