// Slurm by its commands: sbatch, scancel, squeue and scontrol. If we are root, a share of another
// user is submitted by a process of that user, so that Slurm checks that user's rights and limits.
#pragma once

#include <string>
#include <vector>

#include "rubato/engine/slurm_way.h"

namespace rubato::engine {

class SlurmCommands final : public SlurmWay {
 public:
  explicit SlurmCommands(SlurmOptions options) : options_(std::move(options)) {}

  [[nodiscard]] Result<void> can_submit(const ShareSpec& share) const override;
  [[nodiscard]] Begun submit(const SlurmRequest& request) override;
  [[nodiscard]] std::string submitted(const std::string& text) const override;
  [[nodiscard]] std::size_t most_cancels() const override { return 100; }
  [[nodiscard]] Begun cancel(const std::vector<std::string>& numbers) override;
  [[nodiscard]] Begun ask_partitions() override;
  [[nodiscard]] Begun ask_nodes() override;
  [[nodiscard]] Begun ask_jobs() override;
  [[nodiscard]] Result<std::vector<SlurmPartition>> partitions(const std::string& text) override;
  [[nodiscard]] Result<std::vector<SlurmNode>> nodes(const std::string& text) override;
  [[nodiscard]] Result<std::vector<SlurmJob>> jobs(const std::string& text) override;

 private:
  [[nodiscard]] Begun start(const std::vector<std::string>& command,
                            const launch::SpawnOptions& options = {}) const;

  const SlurmOptions options_;
  std::string mark_;  // of the rows of the last ask_jobs()
};

}  // namespace rubato::engine
