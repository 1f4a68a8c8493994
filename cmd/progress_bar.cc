#include "cmd/progress_bar.h"

#include <chrono>
#include <cstdio>
#include <fmt/format.h>
#include <unistd.h>

#include "rubato/sim/report.h"

namespace rubato::cmd {

ProgressBar::ProgressBar(std::string label, std::size_t total)
    : label_(std::move(label)), total_(total) {
  if (isatty(STDERR_FILENO) != 0) painter_ = std::thread([this] { show(); });
}

ProgressBar::~ProgressBar() {
  over_ = true;
  if (painter_.joinable()) painter_.join();
}

void ProgressBar::show() {
  using Clock = std::chrono::steady_clock;
  constexpr int kWidth = 30;
  const auto begun = Clock::now();
  bool shown = false;
  while (!over_) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    const double passed = std::chrono::duration<double>(Clock::now() - begun).count();
    if (passed < 2) continue;
    const double share =
        static_cast<double>(done_) / static_cast<double>(std::max<std::size_t>(total_, 1));
    const int filled = static_cast<int>(share * kWidth);
    const std::string left =
        share > 0.02 ? ", about " + human_duration(passed / share - passed) + " left" : "";
    fmt::print(stderr, "\r{} [{:#<{}}{:.<{}}] {:3.0f}%{}\x1b[K", label_, "", filled, "",
               kWidth - filled, 100 * share, left);
    std::fflush(stderr);
    shown = true;
  }
  if (shown) fmt::print(stderr, "\r\x1b[K");
}

}  // namespace rubato::cmd
