// Work that may take long, such as a policy's decision: begun here, done elsewhere, asked for again
// and again.
//
// The core knows no thread. It hands over work that touches nothing but what it was given, and goes
// on; in a later turn it finds that the work is done. Tests and replay do all work at once, so the
// same inputs give the same bytes; the daemon has threads (background_threads.h).
#pragma once

#include <functional>
#include <memory>

namespace rubato::daemon {

class Task {
 public:
  Task() = default;
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;
  // Whoever drops a task that is not done wants nothing of it any more.
  virtual ~Task() = default;

  // Once it says yes, what the work has written may be read.
  [[nodiscard]] virtual bool done() = 0;
};

class Background {
 public:
  Background() = default;
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;
  virtual ~Background() = default;

  // Begins the work and may give it a moment, so that quick work is done when it returns.
  [[nodiscard]] virtual std::unique_ptr<Task> start(std::function<void()> work) = 0;
};

// Does everything at once.
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
