#include "rubato/elastic/checkpoint_writer.h"

#include <utility>

#include "rubato/base/check.h"

namespace rubato::elastic {

CheckpointWriter::CheckpointWriter(Write write, Done done)
    : write_(std::move(write)), done_(std::move(done)), thread_([this] { run(); }) {
  CHECK(write_ != nullptr && done_ != nullptr);
}

CheckpointWriter::CheckpointWriter(const std::string& directory, int keep, Done done)
    : CheckpointWriter(
          [directory, keep](const CheckpointContent& content) {
            return write_checkpoint(directory, content, keep);
          },
          std::move(done)) {
  CHECK(keep >= 1);
}

CheckpointWriter::~CheckpointWriter() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void CheckpointWriter::begin(CheckpointContent content, std::shared_ptr<const void> memory) {
  std::optional<Order> order = Order{std::move(content), std::move(memory)};
  {
    const std::lock_guard lock(mutex_);
    std::swap(waiting_, order);
  }
  changed_.notify_all();
  // A checkpoint that was replaced is freed here, outside the lock.
}

void CheckpointWriter::finish() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !writing_ && !waiting_; });
}

void CheckpointWriter::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return waiting_ || closing_; });
    if (!waiting_) return;
    {
      const Order order = std::move(*waiting_);
      waiting_.reset();
      writing_ = true;
      lock.unlock();
      done_(write_(order.content));
    }
    lock.lock();
    writing_ = false;
    changed_.notify_all();
  }
}

}  // namespace rubato::elastic
