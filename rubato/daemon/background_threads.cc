#include "rubato/daemon/background_threads.h"

#include <atomic>
#include <system_error>
#include <thread>
#include <utility>

namespace rubato::daemon {

struct BackgroundThreads::Progress {
  std::atomic<bool> done = false;
  bool left_alone = false;  // start() returned before the work was done
};

class BackgroundThreads::ThreadTask final : public Task {
 public:
  explicit ThreadTask(std::shared_ptr<Progress> progress) : progress_(std::move(progress)) {}
  bool done() override { return progress_->done; }

 private:
  std::shared_ptr<Progress> progress_;
};

struct BackgroundThreads::Worker {
  std::condition_variable called;
  std::function<void()> work;          // not begun yet
  std::shared_ptr<Progress> progress;  // of the present work; null: the thread is idle
  std::thread thread;
};

BackgroundThreads::BackgroundThreads(std::chrono::milliseconds patience, std::function<void()> wake)
    : patience_(patience), wake_(std::move(wake)) {}

BackgroundThreads::~BackgroundThreads() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    for (const auto& worker : workers_) worker->called.notify_one();
  }
  for (const auto& worker : workers_) worker->thread.join();
}

std::unique_ptr<Task> BackgroundThreads::start(Length length, std::function<void()> work) {
  if (length == Length::quick) return Foreground().start(length, std::move(work));
  auto progress = std::make_shared<Progress>();
  std::unique_lock lock(mutex_);
  Worker* worker = idle_worker();
  if (worker == nullptr) {
    lock.unlock();
    work();  // no thread can be started now, so the caller does the work
    progress->done = true;
    return std::make_unique<ThreadTask>(std::move(progress));
  }
  worker->work = std::move(work);
  worker->progress = progress;
  worker->called.notify_one();
  done_.wait_for(lock, patience_, [&] { return progress->done.load(); });
  progress->left_alone = !progress->done;
  return std::make_unique<ThreadTask>(std::move(progress));
}

// Called with the lock held.
BackgroundThreads::Worker* BackgroundThreads::idle_worker() {
  for (const auto& worker : workers_) {
    if (worker->progress == nullptr) return worker.get();
  }
  auto fresh = std::make_unique<Worker>();
  try {
    fresh->thread = std::thread([this, worker = fresh.get()] { run(*worker); });
  } catch (const std::system_error&) {
    return nullptr;
  }
  workers_.push_back(std::move(fresh));
  return workers_.back().get();
}

void BackgroundThreads::run(Worker& worker) {
  std::unique_lock lock(mutex_);
  for (;;) {
    worker.called.wait(lock, [&] { return stopping_ || worker.work; });
    if (!worker.work) return;
    auto work = std::exchange(worker.work, nullptr);
    lock.unlock();
    work();
    work = nullptr;  // frees what it holds before anybody is told that it is done
    lock.lock();
    const auto progress = std::exchange(worker.progress, nullptr);
    progress->done = true;
    done_.notify_all();
    if (!progress->left_alone) continue;
    lock.unlock();
    wake_();
    lock.lock();
  }
}

}  // namespace rubato::daemon
