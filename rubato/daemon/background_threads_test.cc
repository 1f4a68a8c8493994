#include "rubato/daemon/background_threads.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <gtest/gtest.h>
#include <memory>
#include <mutex>
#include <numeric>
#include <thread>
#include <vector>

namespace rubato::daemon {
namespace {

TEST(BackgroundThreads, QuickWorkIsDoneAtOnce) {
  std::atomic<int> woken = 0;
  BackgroundThreads threads(std::chrono::minutes(1), [&] { ++woken; });
  int written = 0;
  const auto task = threads.start(Background::Length::unknown, [&] { written = 7; });
  EXPECT_TRUE(task->done());
  EXPECT_EQ(written, 7);
  EXPECT_EQ(woken, 0);
}

TEST(BackgroundThreads, LongWorkWakesWhoWaits) {
  std::mutex mutex;
  std::condition_variable changed;
  bool may_end = false;
  bool woken = false;
  BackgroundThreads threads(std::chrono::milliseconds(0), [&] {
    const std::lock_guard lock(mutex);
    woken = true;
    changed.notify_all();
  });
  const auto task = threads.start(Background::Length::unknown, [&] {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return may_end; });
  });
  EXPECT_FALSE(task->done());
  std::unique_lock lock(mutex);
  may_end = true;
  changed.notify_all();
  changed.wait(lock, [&] { return woken; });
  EXPECT_TRUE(task->done());
}

TEST(BackgroundThreads, QuickWorkIsDoneOnTheThreadOfTheCaller) {
  BackgroundThreads threads(std::chrono::milliseconds(0),
                            [] { FAIL() << "nobody was left waiting"; });
  std::thread::id where;
  const auto task =
      threads.start(Background::Length::quick, [&] { where = std::this_thread::get_id(); });
  EXPECT_TRUE(task->done());
  EXPECT_EQ(where, std::this_thread::get_id());
}

TEST(BackgroundThreads, WorkThatNobodyWantsAnyMoreEndsBeforeTheThreadsDo) {
  std::atomic<int> ended = 0;
  {
    BackgroundThreads threads(std::chrono::milliseconds(0), [] {});
    for (int i = 0; i < 4; ++i)
      static_cast<void>(threads.start(Background::Length::unknown, [&] { ++ended; }));
  }
  EXPECT_EQ(ended, 4);
}

// As a policy's decision: it works on a copy that it alone has, and others read the result later.
TEST(BackgroundThreads, WhatTheWorkHasWrittenIsReadOnceItIsDone) {
  BackgroundThreads threads(std::chrono::milliseconds(0), [] {});
  for (int round = 0; round < 50; ++round) {
    std::vector<int> numbers(100, round);
    std::vector<int> sums(4);
    std::vector<std::unique_ptr<Task>> tasks;
    for (int& sum : sums) {
      tasks.push_back(threads.start(Background::Length::unknown, [&sum, numbers] {
        sum = std::accumulate(numbers.begin(), numbers.end(), 0);
      }));
    }
    numbers.clear();
    for (std::size_t i = 0; i < tasks.size(); ++i) {
      while (!tasks[i]->done()) std::this_thread::yield();
      EXPECT_EQ(sums[i], 100 * round);
    }
  }
}

}  // namespace
}  // namespace rubato::daemon
