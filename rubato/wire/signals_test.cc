#include "rubato/wire/signals.h"

#include <cerrno>
#include <csignal>
#include <gtest/gtest.h>
#include <latch>
#include <poll.h>
#include <sys/signalfd.h>
#include <thread>
#include <unistd.h>

namespace rubato::wire {
namespace {

// 0 if no signal comes. Between poll and read, a thread that does not block the signal may take it.
// It then sends the signal again.
int next_signal(const Fd& signals) {
  for (;;) {
    pollfd ready{signals.get(), POLLIN, 0};
    if (poll(&ready, 1, 60'000) != 1) return 0;
    signalfd_siginfo info{};
    if (read(signals.get(), &info, sizeof(info)) == static_cast<ssize_t>(sizeof(info)))
      return static_cast<int>(info.ssi_signo);
    if (errno != EAGAIN) return 0;
  }
}

TEST(Signals, AreReadAlsoWhenThreadsFromBeforeDoNotBlockThem) {
  std::latch over(1);
  std::thread first([&] { over.wait(); });
  std::thread second([&] { over.wait(); });
  const Fd signals = take_signals({SIGUSR1, SIGUSR2});
  for (const int signal : {SIGUSR1, SIGUSR2, SIGUSR1}) {
    ASSERT_EQ(kill(getpid(), signal), 0);
    EXPECT_EQ(next_signal(signals), signal);
  }
  over.count_down();
  first.join();
  second.join();
}

}  // namespace
}  // namespace rubato::wire
