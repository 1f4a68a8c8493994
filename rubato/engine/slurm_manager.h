// Slurm as a ClusterManager, by its commands: sbatch, scancel, squeue, scontrol and sinfo. A share
// is a batch job on one node (docs/slurm.md).
//
// No shell ever reads a name, a path or an argument. The script of every job is the same fixed
// text, which executes its own arguments. The commands get an environment that is made here.
// Nothing secret is in arguments, environment or comment: Slurm shows and stores all of them.
//
// If we are root, a share of another user is submitted by a process of that user, so that Slurm
// checks that user's rights and limits. Every command has a time limit, and at most a few
// submissions run at once.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "rubato/base/time.h"
#include "rubato/engine/cluster_manager.h"
#include "rubato/engine/slurm_view.h"
#include "rubato/launch/process.h"

namespace rubato::engine {

struct SlurmOptions {
  std::string prefix;     // the names of all our shares begin with it, and no others
  std::string partition;  // empty: the default one
  std::string account;    // empty: the user's default
  std::string
      configuration;     // the value of SLURM_CONF for all commands; empty: the default of Slurm
  int cpus_per_gpu = 0;  // 0: its part of the node's
  std::int64_t memory_per_gpu = 0;  // MiB; 0: its part of the node's
  int minutes = 0;                  // the time limit of a share; 0: the partition's
  std::size_t submissions_at_once = 8;
  std::chrono::milliseconds patience{20'000};  // with one command
  std::chrono::milliseconds between_lists{1'000};
};
// Checks what could be an argument with a special meaning.
[[nodiscard]] Result<void> check(const SlurmOptions& options);

class SlurmManager final : public ClusterManager {
 public:
  // The options have been checked.
  explicit SlurmManager(SlurmOptions options);
  ~SlurmManager() override;

  void submit(const ShareSpec& share) override;
  void cancel(const ShareName& share) override;
  std::int64_t list() override;
  void turn() override;
  [[nodiscard]] std::vector<ManagerAnswer> take_answers() override;

 private:
  using Clock = std::chrono::steady_clock;
  // A command of Slurm that runs.
  struct Call {
    launch::Process process;
    Clock::time_point deadline;
    std::string out, err;
  };
  struct CallEnd {
    bool good = false;
    std::string out;
    std::string why;    // if it is not good
    bool lost = false;  // nobody knows what it has done
  };
  struct Submission {
    ShareSpec share;
    Call call;
  };

  [[nodiscard]] Result<Call> start(const std::vector<std::string>& command,
                                   const launch::SpawnOptions& options = {}) const;
  // nullopt: it runs.
  [[nodiscard]] std::optional<CallEnd> look_at(Call& call) const;
  [[nodiscard]] bool under_way(const ShareName& share) const;

  void turn_submissions();
  void start_submission(const ShareSpec& share);
  void submission_ended(const ShareSpec& share, const CallEnd& end);
  void turn_cancels();
  void turn_list();
  void begin_list();
  void next_of_list();
  void list_failed(const std::string& why);
  void finish_list(const std::string& text);
  void forget_unlisted();
  [[nodiscard]] Result<std::vector<std::string>> submission_command(const ShareSpec& share) const;

  const SlurmOptions options_;
  std::string partition_;
  SlurmView view_;
  std::vector<ManagerAnswer> answers_;

  // A share that was submitted here, until a listing that began afterwards lacks it.
  struct Asked {
    std::string user;
    std::string native;       // empty: not answered yet, or nobody knows
    std::int64_t number = 0;  // of the newest listing when the submission ended
  };
  std::map<ShareName, Asked> asked_;
  std::deque<ShareSpec> waiting_;
  std::list<Submission> submissions_;

  std::set<std::string> to_cancel_;  // Slurm's numbers
  std::optional<Call> cancelling_;

  enum class Step : std::uint8_t { idle, due, partition, nodes, jobs };
  Step step_ = Step::idle;
  std::int64_t number_ = 0;
  Clock::time_point last_list_{};
  std::optional<Call> listing_;
  std::string mark_;
  std::vector<SlurmNode> nodes_;
  bool in_trouble_ = false;
};

}  // namespace rubato::engine
