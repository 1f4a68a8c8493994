#include "rubato/policy/length_estimate.h"

#include <gtest/gtest.h>

#include "rubato/base/random.h"
#include "rubato/core/testing.h"
#include "rubato/policy/testing.h"

namespace rubato::policy {
namespace {

LengthEstimate::Seen seen(const std::string& kind, double done_s) {
  return {kind, done_s, 0, kStart};
}

TEST(LengthEstimate, WithoutHistoryTheYoungAreExpectedToEndFirst) {
  const LengthEstimate estimate;
  // Of a heavy tail with the mean s, s (s + d) / (2 s + d) for an end if it is tried for d = 3600.
  EXPECT_DOUBLE_EQ(estimate.left_s(seen("a", 0)), 600.0 * 4200 / 4800);
  EXPECT_DOUBLE_EQ(estimate.left_s(seen("a", 1000)), 1600.0 * 5200 / 6800);
}

// The mean of what is left hardly falls with what is done, but an end comes nearer.
TEST(LengthEstimate, WhereMostHaveOneSizeWhoHasBegunComesFirst) {
  LengthEstimate estimate;
  Random random(1);
  for (int i = 0; i < 250; ++i)
    estimate.ended({"a", i % 5 == 0 ? random.uniform(40'000, 80'000) : random.uniform(9000, 11'000),
                    0, kStart},
                   kStart);
  double before = estimate.left_s(seen("a", 0));
  for (const double done_s : {2000.0, 4000.0, 6000.0, 8000.0}) {
    const double now = estimate.left_s(seen("a", done_s));
    EXPECT_LT(now, before) << done_s;
    before = now;
  }
  EXPECT_GT(estimate.left_s(seen("a", 12'000)), 2 * before) << "it is one of the long ones";
}

TEST(LengthEstimate, IsTheLeastTimeForAnEnd) {
  LengthEstimate estimate;
  for (int i = 0; i < 100; ++i)
    estimate.ended({"a", i < 50 ? 5000.0 : 500'000.0, 0, kStart}, kStart);
  // Half of them end within 5000 s: so 10000 s for an end, and a little for all that is not known.
  EXPECT_NEAR(estimate.left_s(seen("a", 0)), 10'000, 500);
  EXPECT_GT(estimate.left_s(seen("a", 5000)), 200'000) << "one of the other half";
}

TEST(LengthEstimate, AStrangerIsLikeEverybody) {
  LengthEstimate estimate;
  for (int i = 0; i < 200; ++i) estimate.ended({"a", 5000, 0, kStart}, kStart);
  const double stranger = estimate.left_s(seen("b", 0));
  EXPECT_NEAR(stranger, 5000, 1000);
  for (int i = 0; i < 3; ++i) estimate.ended({"b", 50'000, 0, kStart}, kStart);
  EXPECT_GT(estimate.left_s(seen("b", 0)), 1.4 * stranger) << "three say something";
  for (int i = 0; i < 100; ++i) estimate.ended({"b", 50'000, 0, kStart}, kStart);
  EXPECT_NEAR(estimate.left_s(seen("b", 0)), 50'000, 5000) << "a hundred say nearly all";
}

TEST(LengthEstimate, GoesByThoseThatAreAlikeAndWereLonger) {
  LengthEstimate estimate;
  for (int i = 0; i < 300; ++i) {
    estimate.ended({"short", 100, 0, kStart}, kStart);
    estimate.ended({"long", 90'000, 1, kStart}, time_at(10'000));  // it ran on after the last look
  }
  EXPECT_NEAR(estimate.left_s(seen("short", 0)), 100, 0.1 * 60'000);
  EXPECT_LT(estimate.left_s(seen("short", 0)), 0.1 * estimate.left_s(seen("long", 0)));
  EXPECT_LT(estimate.left_s(seen("long", 90'000)), estimate.left_s(seen("long", 0)));
  // Older than all that ended: only the tail is left.
  EXPECT_GT(estimate.left_s(seen("short", 200)), 200);
}

TEST(LengthEstimate, IsTheSameWhenItWasSaved) {
  LengthEstimate estimate;
  for (int i = 1; i < 400; ++i)
    estimate.ended({i % 3 == 0 ? "a" : "b", 7.0 * i, 0, kStart}, kStart);
  const LengthEstimate again = LengthEstimate::load(estimate.save());
  for (const double done_s : {0.0, 100.0, 2000.0, 1e6}) {
    EXPECT_EQ(again.left_s(seen("a", done_s)), estimate.left_s(seen("a", done_s)));
    EXPECT_EQ(again.left_s(seen("c", done_s)), estimate.left_s(seen("c", done_s)));
  }
  EXPECT_EQ(again.save(), estimate.save());
}

TEST(LengthEstimate, CountsWhatAJobHasDoneWhoseWorkIsAGuess) {
  testing::World world("1x2");
  const JobId id = world.submit({.gpus = 1, .work = 3600});
  JobView& job = world.job(id);
  LengthEstimate::Seen seen;
  const auto look = [&](double now_s) {
    LengthEstimate::go_on(seen, job, 1, time_at(now_s));
    return seen.done_s;
  };
  EXPECT_EQ(look(10), 0);
  job.held = gpus_on({{0, 1}});
  job.progress = {3600, time_at(10), 2};  // twice as fast as on its smallest count
  look(10);
  EXPECT_EQ(look(20), 20);
  job.progress.work_left = 360;  // the guess is nearly over, which says nothing
  EXPECT_EQ(look(10'020), 20'020);
  job.held = Allocation();
  look(10'020);
  EXPECT_EQ(look(20'000), 20'020) << "it has no GPUs";
}

TEST(LengthEstimate, ForgetsTheKindThatEndedLongestAgo) {
  LengthEstimate estimate;
  estimate.ended({"old", 1e6, 0, kStart}, kStart);
  const double with_old = estimate.left_s(seen("old", 1e5));
  for (int i = 0; i < 20'000; ++i)
    estimate.ended({"kind" + std::to_string(i), 10, 0, kStart}, kStart);
  EXPECT_NE(estimate.left_s(seen("old", 1e5)), with_old);
  EXPECT_EQ(estimate.save()["kinds"].size(), 16'384U);
  EXPECT_EQ(LengthEstimate::load(estimate.save()).save(), estimate.save());
}

}  // namespace
}  // namespace rubato::policy
