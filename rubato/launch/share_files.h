// Shares that a cluster manager starts: each finds a file with what it must know (ShareConfig).
//
// The files are in a directory that all hosts see, and belong to the job's user (0600). They are
// written again by a new master, which listens elsewhere. The file of a share that should end says
// so: a share that comes late, or that lost its master, reads it and ends.
#pragma once

#include <functional>
#include <string>

#include "rubato/launch/share_starter.h"

namespace rubato::launch {

// DIRECTORY/shares/NAME.json
[[nodiscard]] std::string share_file(const std::string& directory, const ShareName& share);
// nullopt: there is no such file yet. An error if it is not ours alone, or is no ShareConfig.
[[nodiscard]] Result<std::optional<ShareConfig>> read_share_file(const std::string& path);

class ShareFiles : public ShareStarter {
 public:
  // `say`: to people, what could not be written.
  ShareFiles(std::string directory, std::function<void(const std::string&)> say);

  void start(const ShareConfig& config) override;
  void end(const ShareName& share) override;
  [[nodiscard]] bool over(const ShareName& /*share*/) const override { return false; }
  void finish() override {}

 private:
  void write(const ShareConfig& config);

  std::string directory_;
  std::function<void(const std::string&)> say_;
};

}  // namespace rubato::launch
