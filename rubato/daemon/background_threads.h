// Background work on threads. There is one thread for each piece of work; threads are used again.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "rubato/daemon/background.h"

namespace rubato::daemon {

class BackgroundThreads final : public Background {
 public:
  // start() waits up to `patience` for the work to be done. If it takes longer, `wake` is called
  // from its thread when it is done.
  BackgroundThreads(std::chrono::milliseconds patience, std::function<void()> wake);
  // Waits for all work to end.
  ~BackgroundThreads() override;

  [[nodiscard]] std::unique_ptr<Task> start(std::function<void()> work) override;

 private:
  struct Progress;
  class ThreadTask;
  struct Worker;

  [[nodiscard]] Worker* idle_worker();
  void run(Worker& worker);

  std::chrono::milliseconds patience_;
  std::function<void()> wake_;
  std::mutex mutex_;  // guards everything below
  std::condition_variable done_;
  bool stopping_ = false;
  std::vector<std::unique_ptr<Worker>> workers_;
};

}  // namespace rubato::daemon
