// Slurm by slurmrestd, through HTTP on this machine. On a unix socket without a token, slurmrestd
// must run as our user (rest_auth/local), and all shares are this user's. With a token
// (rest_auth/jwt), which only root or SlurmUser may have for others, each share is submitted in the
// name of its user. The token is read from its file for each request, because tokens expire.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "rubato/engine/slurm_way.h"

namespace rubato::engine {

class SlurmRest final : public SlurmWay {
 public:
  explicit SlurmRest(SlurmOptions options) : options_(std::move(options)) {}

  [[nodiscard]] Result<void> can_submit(const ShareSpec& share) const override;
  [[nodiscard]] Begun submit(const SlurmRequest& request) override;
  [[nodiscard]] std::string submitted(const std::string& text) const override;
  [[nodiscard]] std::size_t most_cancels() const override { return 1; }
  [[nodiscard]] Begun cancel(const std::vector<std::string>& numbers) override;
  // Also finds out which version of the interface slurmrestd has.
  [[nodiscard]] Begun ask_partitions() override;
  [[nodiscard]] Begun ask_nodes() override;
  [[nodiscard]] Begun ask_jobs() override;
  [[nodiscard]] Result<std::vector<SlurmPartition>> partitions(const std::string& text) override;
  [[nodiscard]] Result<std::vector<SlurmNode>> nodes(const std::string& text) override;
  [[nodiscard]] Result<std::vector<SlurmJob>> jobs(const std::string& text) override;

  // For calls of ask_partitions(): the next version to try; false if there is none.
  [[nodiscard]] bool try_older_version();
  [[nodiscard]] Begun ask_partitions_once();

 private:
  [[nodiscard]] Begun start(const std::string& method, const std::string& path,
                            const std::string& user, const std::string& body) const;
  [[nodiscard]] std::string path(const std::string& what) const;

  const SlurmOptions options_;
  std::size_t version_ = 0;  // index of kSlurmRestVersions
};

}  // namespace rubato::engine
