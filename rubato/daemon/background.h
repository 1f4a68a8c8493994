// Runs work that may take long, such as a policy's decision, outside of the core's turn.
//
// The core knows no thread. It hands over work that touches only the data it was given, and goes
// on. A later turn finds that the work is done. Tests and replay do all work at once, so the same
// inputs give the same bytes. The daemon uses threads (background_threads.h).
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

  // Once this returns true, the caller may read what the work has written.
  [[nodiscard]] virtual bool done() = 0;
};

class Background {
 public:
  Background() = default;
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;
  virtual ~Background() = default;

  enum class Length { unknown, quick };  // quick: handing it over would take longer than doing it

  // Begins the work. It may wait for a moment, so that short work is done when it returns.
  [[nodiscard]] virtual std::unique_ptr<Task> start(Length length, std::function<void()> work) = 0;
};

// Does all work at once.
class Foreground final : public Background {
 public:
  std::unique_ptr<Task> start(Length /*length*/, std::function<void()> work) override {
    work();
    return std::make_unique<Done>();
  }

 private:
  struct Done final : Task {
    bool done() override { return true; }
  };
};

}  // namespace rubato::daemon
