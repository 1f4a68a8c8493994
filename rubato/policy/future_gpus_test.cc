#include "rubato/policy/future_gpus.h"

#include <gtest/gtest.h>
#include <map>

#include "rubato/base/random.h"
#include "rubato/base/testing_seeds.h"

namespace rubato::policy {
namespace {

TEST(FutureGpus, ReservationsAreStepsThatComeAndGo) {
  FutureGpus free;
  free.reset(time_at(10), 8);
  free.reserve(time_at(20), time_at(30), 5);
  free.reserve(time_at(25), kNever, 2);
  EXPECT_EQ(free.at(time_at(10)), 8);
  EXPECT_EQ(free.at(time_at(20)), 3);
  EXPECT_EQ(free.at(time_at(25)), 1);
  EXPECT_EQ(free.at(time_at(30)), 6);
  EXPECT_EQ(free.at(time_at(1e6)), 6);
  EXPECT_EQ(free.first_below(time_at(10), 8), time_at(20));
  EXPECT_EQ(free.first_below(time_at(10), 3), time_at(25));
  EXPECT_EQ(free.first_below(time_at(10), 1), kNever);
  EXPECT_EQ(free.first_with(time_at(26), 2), time_at(30));
  EXPECT_EQ(free.first_with(time_at(26), 1), time_at(26));
  EXPECT_EQ(free.first_with(time_at(26), 7), kNever);
  free.add(time_at(25), kNever, 2);
  EXPECT_EQ(free.first_below(time_at(10), 3), kNever);
}

TEST(FutureGpus, WhatHasPassedIsCutOff) {
  FutureGpus free;
  free.reset(time_at(10), 4);
  free.reserve(time_at(0), time_at(15), 3);
  free.reserve(time_at(0), time_at(10), 3);
  EXPECT_EQ(free.at(time_at(10)), 1);
  EXPECT_EQ(free.at(time_at(15)), 4);
}

// The simplest possible step function.
class NaiveFuture {
 public:
  explicit NaiveFuture(int gpus) { steps_[0] = gpus; }
  void add(int from, int until, int gpus) {
    cut(from);
    cut(until);
    for (auto at = steps_.find(from); at != steps_.end() && at->first < until; ++at)
      at->second += gpus;
  }
  [[nodiscard]] int at(int when) const { return std::prev(steps_.upper_bound(when))->second; }
  [[nodiscard]] int least(int from, int until) const {
    int least = at(from);
    for (auto step = steps_.upper_bound(from); step != steps_.end() && step->first < until; ++step)
      least = std::min(least, step->second);
    return least;
  }
  template <class Wanted>
  [[nodiscard]] Time first(int from, const Wanted& wanted) const {
    if (wanted(at(from))) return time_at(from);
    for (auto step = steps_.upper_bound(from); step != steps_.end(); ++step) {
      if (wanted(step->second)) return time_at(step->first);
    }
    return kNever;
  }

 private:
  void cut(int when) { steps_.emplace(when, at(when)); }
  std::map<int, int> steps_;
};

TEST(FutureGpus, AgreesWithAPlainMapOverThousandsOfSteps) {
  for (std::uint64_t seed = 0; seed < tries(20); ++seed) {
    Random random(seed);
    const auto draw = [&](int bound) {
      return static_cast<int>(random.below(static_cast<std::uint64_t>(bound)));
    };
    FutureGpus free;
    NaiveFuture naive(100);
    free.reset(kStart, 100);
    const int span = seed % 2 == 0 ? 200 : 20'000;
    for (int i = 0; i < 2000; ++i) {
      const int from = draw(span);
      const int until = from + 1 + draw(span / 4);
      const int gpus = draw(9) - 5;
      free.add(time_at(from), time_at(until), gpus);
      naive.add(from, until, gpus);
      const int when = draw(span);
      const int wanted = 60 + draw(60);
      ASSERT_EQ(free.at(time_at(when)), naive.at(when));
      ASSERT_EQ(free.first_below(time_at(when), wanted),
                naive.first(when, [&](int n) { return n < wanted; }));
      ASSERT_EQ(free.first_with(time_at(when), wanted),
                naive.first(when, [&](int n) { return n >= wanted; }));
      ASSERT_EQ(free.least(time_at(when), time_at(until + when)), naive.least(when, until + when));
    }
  }
}

}  // namespace
}  // namespace rubato::policy
