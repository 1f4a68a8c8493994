// Slurm as a ClusterManager. A share is a batch job on one node (docs/slurm.md). Slurm is asked by
// its commands, or by slurmrestd (slurm_way.h). Every request has a time limit, and at most a few
// submissions run at once.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "rubato/base/time.h"
#include "rubato/engine/cluster_manager.h"
#include "rubato/engine/slurm_view.h"
#include "rubato/engine/slurm_way.h"

namespace rubato::engine {

// A worker that moves before its share's time limit needs some of it. With less, it would only
// move.
inline constexpr Duration kLeastSlurmLimit = std::chrono::minutes(10);

class SlurmManager final : public ClusterManager {
 public:
  // The options have been checked.
  explicit SlurmManager(SlurmOptions options);

  void submit(const ShareSpec& share) override;
  void cancel(const ShareName& share) override;
  std::int64_t list() override;
  void turn() override;
  [[nodiscard]] std::vector<ManagerAnswer> take_answers() override;

 private:
  using Clock = std::chrono::steady_clock;
  struct Submission {
    ShareSpec share;
    std::unique_ptr<SlurmCall> call;
  };

  [[nodiscard]] bool under_way(const ShareName& share) const;

  void turn_submissions();
  void start_submission(const ShareSpec& share);
  void refuse(const ShareName& share, const std::string& why);
  void submission_ended(const ShareSpec& share, const SlurmReply& reply);
  void turn_cancels();
  void turn_list();
  void begin_list();
  void next_of_list();
  void list_failed(const std::string& why);
  [[nodiscard]] Result<void> take_partitions(const std::string& text);
  [[nodiscard]] Result<void> take_nodes(const std::string& text);
  void finish_list(const std::string& text);
  void forget_unlisted();
  [[nodiscard]] Result<SlurmRequest> request_for(const ShareSpec& share) const;

  const SlurmOptions options_;
  const std::unique_ptr<SlurmWay> way_;
  SlurmPartition partition_;
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
  std::list<std::unique_ptr<SlurmCall>> cancelling_;

  enum class Step : std::uint8_t { idle, due, partitions, nodes, jobs };
  Step step_ = Step::idle;
  std::int64_t number_ = 0;
  Clock::time_point last_list_{};
  Clock::time_point partitions_due_{};
  std::unique_ptr<SlurmCall> listing_;
  std::vector<SlurmNode> nodes_;
  bool in_trouble_ = false;
};

}  // namespace rubato::engine
