// Runs work that may take long, such as a policy's decision, beside the turns of the core. The core
// asks in each turn whether the work is done.
//
// The core uses no threads. It hands over work that uses only its own data, and continues. A later
// turn finds that the work is done. Tests and replay do all work at once, so the same inputs give
// the same bytes. The daemon uses threads (background_threads.h).
#pragma once

#include <functional>
#include <memory>

namespace rubato::daemon {

class Task {
 public:
  Task() = default;
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;
  // If a task is destroyed before it is done, its result is dropped.
  virtual ~Task() = default;

  // If this is true, the caller may read what the work has written.
  [[nodiscard]] virtual bool done() = 0;
};

class Background {
 public:
  Background() = default;
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;
  virtual ~Background() = default;

  // Begins the work. It may wait a moment, so that quick work is done when it returns.
  [[nodiscard]] virtual std::unique_ptr<Task> start(std::function<void()> work) = 0;
};

// Does all work at once, inside start().
class Foreground final : public Background {
 public:
  std::unique_ptr<Task> start(std::function<void()> work) override {
    work();
    return std::make_unique<Done>();
  }

 private:
  struct Done final : Task {
    bool done() override { return true; }
  };
};

}  // namespace rubato::daemon
