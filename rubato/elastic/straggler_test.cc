#include "rubato/elastic/straggler.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <vector>

#include "rubato/base/random.h"

namespace rubato::elastic {
namespace {

// Feeds steps, and counts reports about worker 9. The test chooses the times of worker 9. The
// others take 1 s.
class Team {
 public:
  explicit Team(int peers) : peers_(peers) {}

  int run(int steps, double seconds) {
    int reports = 0;
    for (int i = 0; i < steps; ++i) {
      std::vector<LeafTime> times{{9, seconds}};
      for (int peer = 0; peer < peers_; ++peer) times.push_back({100 + peer, 1});
      for (const auto& straggler : watch.add(step_++, times)) {
        EXPECT_EQ(straggler.uid, 9);
        EXPECT_EQ(straggler.median, 1);
        ++reports;
      }
    }
    return reports;
  }
  void run_without_it(int steps) {
    for (int i = 0; i < steps; ++i)
      EXPECT_TRUE(watch.add(step_++, std::vector<LeafTime>{{100, 1}, {101, 1}, {102, 1}}).empty());
  }

  StragglerWatch watch;

 private:
  int peers_;
  std::int64_t step_ = 0;
};

TEST(Straggler, IsReportedOnceAfterAFullWindow) {
  Team team(3);
  EXPECT_EQ(team.run(19, 1.6), 0);
  EXPECT_EQ(team.run(1, 1.6), 1);
  EXPECT_TRUE(team.watch.is_straggler(9));
  EXPECT_FALSE(team.watch.is_straggler(100));
  EXPECT_EQ(team.run(200, 1.6), 0);
}

TEST(Straggler, EighteenOfTwentyAreEnoughSeventeenAreNot) {
  Team enough(3);
  EXPECT_EQ(enough.run(2, 1) + enough.run(17, 1.6), 0);
  EXPECT_EQ(enough.run(1, 1.6), 1);
  Team few(3);
  for (int round = 0; round < 10; ++round) EXPECT_EQ(few.run(17, 5) + few.run(3, 1), 0);
}

TEST(Straggler, AtTheFactorIsNotAbove) {
  Team team(3);
  EXPECT_EQ(team.run(100, 1.5), 0);
}

TEST(Straggler, TwoWorkersNeedTwiceTheTime) {
  Team team(1);
  EXPECT_EQ(team.run(100, 1.9), 0);
  EXPECT_EQ(team.run(18, 2.1), 1);
  Team alone(0);
  EXPECT_EQ(alone.run(100, 50), 0);
}

TEST(Straggler, IsReportedAgainOnlyAfterItRecovered) {
  Team team(4);
  EXPECT_EQ(team.run(20, 3), 1);
  EXPECT_EQ(team.run(5, 1) + team.run(30, 3), 0) << "a breath is no recovery";
  EXPECT_TRUE(team.watch.is_straggler(9));
  team.run(10, 1);
  EXPECT_FALSE(team.watch.is_straggler(9));
  EXPECT_EQ(team.run(40, 3), 1);
}

TEST(Straggler, WhoJoinsAgainStartsAnew) {
  Team team(3);
  team.run(19, 3);
  team.run_without_it(1);
  EXPECT_EQ(team.run(19, 3), 0);
  EXPECT_EQ(team.run(1, 3), 1);
}

TEST(Straggler, AStepWithoutLeavesSaysNothing) {
  Team team(3);
  EXPECT_EQ(team.run(19, 3) + team.run(50, 0), 0);
  EXPECT_EQ(team.run(1, 3), 1);
}

TEST(Straggler, ARepeatedStepCountsOnce) {
  StragglerWatch watch;
  const std::vector<LeafTime> times{{1, 9}, {2, 1}, {3, 1}};
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(watch.add(7, times).empty());
  for (int step = 8; step < 26; ++step) EXPECT_TRUE(watch.add(step, times).empty());
  EXPECT_TRUE(watch.add(3, times).empty()) << "further back: starts anew";
  for (int step = 4; step < 22; ++step) EXPECT_TRUE(watch.add(step, times).empty());
  EXPECT_EQ(watch.add(22, times).size(), 1U);
}

TEST(Straggler, OneSlowWorkerDoesNotHideAnother) {
  StragglerWatch watch;
  const std::vector<LeafTime> times{{1, 9}, {2, 1}, {3, 1}, {4, 2}, {5, 1}};
  std::size_t found = 0;
  for (int step = 0; step < 20; ++step) found += watch.add(step, times).size();
  EXPECT_EQ(found, 2U);
}

RC_GTEST_PROP(Straggler, EqualWorkersAreNeverReported, (std::uint64_t seed)) {
  Random random(seed);
  StragglerWatch watch;
  for (int step = 0; step < 100; ++step) {
    std::vector<LeafTime> times(2 + random.below(10));
    std::int64_t uid = 0;
    for (auto& time : times) time = {uid++, random.uniform(0.8, 1.19)};
    RC_ASSERT(watch.add(step, times).empty());
  }
}

}  // namespace
}  // namespace rubato::elastic
