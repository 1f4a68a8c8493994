#include "rubato/wire/signals.h"

#include <csignal>
#include <gtest/gtest.h>
#include <latch>
#include <poll.h>
#include <sys/signalfd.h>
#include <thread>
#include <unistd.h>

namespace rubato::wire {
namespace {

TEST(Signals, AreReadAlsoWhenThreadsFromBeforeDoNotBlockThem) {
  std::latch over(1);
  std::thread first([&] { over.wait(); });
  std::thread second([&] { over.wait(); });
  const Fd signals = take_signals({SIGUSR1, SIGUSR2});
  for (const int signal : {SIGUSR1, SIGUSR2, SIGUSR1}) {
    ASSERT_EQ(kill(getpid(), signal), 0);
    pollfd ready{signals.get(), POLLIN, 0};
    ASSERT_EQ(poll(&ready, 1, 60'000), 1);
    signalfd_siginfo info{};
    ASSERT_EQ(read(signals.get(), &info, sizeof(info)), static_cast<ssize_t>(sizeof(info)));
    EXPECT_EQ(static_cast<int>(info.ssi_signo), signal);
  }
  over.count_down();
  first.join();
  second.join();
}

}  // namespace
}  // namespace rubato::wire
