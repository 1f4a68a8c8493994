// Background work for tests that decide themselves how long it takes.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "rubato/daemon/background.h"

namespace rubato::daemon {

// Work that is done when somebody has looked for it so many times. It is done only then: whatever
// has changed meanwhile must not reach it.
class LateBackground final : public Background {
 public:
  // `looks` is asked anew for each piece of work.
  explicit LateBackground(std::function<int()> looks) : looks_(std::move(looks)) {}

  std::unique_ptr<Task> start(Length /*length*/, std::function<void()> work) override {
    return std::make_unique<Late>(std::move(work), looks_());
  }

 private:
  class Late final : public Task {
   public:
    Late(std::function<void()> work, int looks) : work_(std::move(work)), looks_(looks) {}
    bool done() override {
      if (looks_ > 0) {
        --looks_;
        return false;
      }
      if (work_) std::exchange(work_, nullptr)();
      return true;
    }

   private:
    std::function<void()> work_;
    int looks_;
  };

  std::function<int()> looks_;
};

// Work that is not done while `held`.
class HeldBackground final : public Background {
 public:
  bool held = false;
  int started = 0;

  std::unique_ptr<Task> start(Length /*length*/, std::function<void()> work) override {
    ++started;
    return std::make_unique<HeldTask>(*this, std::move(work));
  }

 private:
  class HeldTask final : public Task {
   public:
    HeldTask(const HeldBackground& all, std::function<void()> work)
        : all_(all), work_(std::move(work)) {}
    bool done() override {
      if (all_.held) return false;
      if (work_) std::exchange(work_, nullptr)();
      return true;
    }

   private:
    const HeldBackground& all_;
    std::function<void()> work_;
  };
};

}  // namespace rubato::daemon
