#include "rubato/loop/decision_times.h"

#include <gtest/gtest.h>

namespace rubato::loop {
namespace {

using namespace std::chrono_literals;

TEST(DecisionTimes, WithoutAnIntervalEveryMomentWillDo) {
  EXPECT_EQ(decision_allowed_from(kStart + 7s, Duration(0), kStart + 7s), kStart + 7s);
  EXPECT_EQ(next_interval(kStart + 7s, Duration(0)), kStart + 7s);
}

TEST(DecisionTimes, ThereIsOneDecisionInAnInterval) {
  EXPECT_EQ(decision_allowed_from(kStart + 7s, 10s, std::nullopt), kStart + 7s);
  EXPECT_EQ(decision_allowed_from(kStart + 7s, 10s, kStart), kStart + 10s);
  EXPECT_EQ(decision_allowed_from(kStart + 7s, 10s, kStart + 9s), kStart + 10s);
  EXPECT_EQ(decision_allowed_from(kStart + 13s, 10s, kStart + 9s), kStart + 13s);
  EXPECT_EQ(decision_allowed_from(kStart + 13s, 10s, kStart + 10s), kStart + 20s);
}

TEST(DecisionTimes, AnIntervalBeginsAtAMultiple) {
  EXPECT_EQ(next_interval(kStart, 10s), kStart);
  EXPECT_EQ(next_interval(kStart + 1us, 10s), kStart + 10s);
  EXPECT_EQ(next_interval(kStart + 10s, 10s), kStart + 10s);
}

}  // namespace
}  // namespace rubato::loop
