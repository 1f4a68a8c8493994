// A progress bar on standard error. It appears only on a terminal, and only if the work takes over
// two seconds.
#pragma once

#include <atomic>
#include <cstddef>
#include <string>
#include <thread>

namespace rubato::cmd {

class ProgressBar {
 public:
  ProgressBar(std::string label, std::size_t total);
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;
  ~ProgressBar();

  std::atomic<std::size_t>& done() { return done_; }

 private:
  void show();

  std::string label_;
  std::size_t total_;
  std::atomic<std::size_t> done_ = 0;
  std::atomic<bool> over_ = false;
  std::thread painter_;  // not started if standard error is not a terminal
};

}  // namespace rubato::cmd
