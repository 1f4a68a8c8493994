// Writes checkpoints on its own thread while training continues.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "rubato/elastic/checkpoint_directory.h"

namespace rubato::elastic {

// At most one checkpoint is being written and one waits. A newer one replaces the one that waits,
// which is then neither written nor reported.
class CheckpointWriter {
 public:
  // Called on the writer's thread for each checkpoint that was written or has failed, with its
  // path.
  using Done = std::function<void(const Result<std::string>&)>;
  // Writes one, and returns its path. Called on the writer's thread.
  using Write = std::function<Result<std::string>(const CheckpointContent&)>;

  CheckpointWriter(Write write, Done done);
  // With write_checkpoint().
  CheckpointWriter(const std::string& directory, int keep, Done done);
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;
  // Waits until all checkpoints are written.
  ~CheckpointWriter();

  // Returns at once. `memory` owns what the sections point to: a copy that training does not
  // change. It is released when it is no longer needed.
  void begin(CheckpointContent content, std::shared_ptr<const void> memory);
  // Waits until nothing is being written and nothing waits.
  void finish();

 private:
  struct Order {
    CheckpointContent content;
    std::shared_ptr<const void> memory;
  };

  void run();

  const Write write_;
  const Done done_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Order> waiting_;
  bool writing_ = false;
  bool closing_ = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace rubato::elastic
