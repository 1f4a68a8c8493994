#include "rubato/policy/aonline.h"

#include <gtest/gtest.h>

#include "rubato/policy/testing.h"

namespace rubato::policy {
namespace {

using testing::Draft;
using testing::make_policy;
using testing::rates;
using testing::World;

std::vector<Draft> example() { return {{.work = 1, .weight = 3}, {.work = 3, .weight = 1}}; }

TEST(Aonline, AJobWaitsForTheFirstBatchThatIsLongEnough) {
  World world("1x1");
  const auto fates = world.run(*make_policy("aonline:unit=1"), example());
  EXPECT_EQ(fates[0].start, time_at(1));
  EXPECT_EQ(fates[0].end, time_at(2));
  EXPECT_EQ(fates[1].start, time_at(4)) << "it does not fit into the batches of 1 and 2";
  EXPECT_EQ(fates[1].end, time_at(7));
}

TEST(Aonline, ALighterJobOfABatchComesLaterInItsWindow) {
  World world("1x1");
  const auto fates = world.run(*make_policy("aonline:unit=4"),
                               {{.work = 2, .weight = 1}, {.work = 2, .weight = 5}});
  EXPECT_EQ(fates[1].start, time_at(4));
  EXPECT_EQ(fates[1].end, time_at(6));
  EXPECT_EQ(fates[0].start, time_at(8)) << "a batch of one slot has room for one";
}

TEST(Aonline, TakesTheCountWithTheFewestGpuSlots) {
  World world("1x4");
  const auto policy = make_policy("aonline:unit=8");
  // Two GPUs are 1.5 times as fast: one is cheaper as long as it ends in the window.
  world.submit({.work = 8, .curve = rates({1, 1.5})});
  world.submit({.work = 12, .curve = rates({1, 1.5})});
  EXPECT_EQ(world.decide(*policy), "");
  EXPECT_EQ(world.last().again_at, time_at(8));
  world.pass(8);
  EXPECT_EQ(world.decide(*policy), "0x1 1x2");
}

TEST(Aonline, TheTimesBeginAnewInAnEmptySystem) {
  World world("1x1");
  const auto policy = make_policy("aonline:unit=1");
  std::vector<Draft> jobs = example();
  jobs.push_back({.work = 1, .submit_s = 100});
  const auto fates = world.run(*policy, jobs);
  EXPECT_EQ(fates[2].start, time_at(101));
}

TEST(Aonline, WhoLosesItsGpusIsPlannedAgain) {
  World world("1x1");
  const auto policy = make_policy("aonline:unit=4");
  const JobId job = world.submit({.work = 3});
  world.decide(*policy);
  world.pass(4);
  EXPECT_EQ(world.decide(*policy), "0x1");
  world.pass(1).throw_off(job);
  EXPECT_EQ(world.decide(*policy), "");
  EXPECT_EQ(world.last().again_at, time_at(8));
  world.pass(3);
  EXPECT_EQ(world.decide(*policy), "0x1");
}

TEST(Aonline, RefusesADamagedState) {
  EXPECT_FALSE(make_policy("aonline")->load(Json::parse(R"({"origin": 1})")).ok());
  EXPECT_FALSE(
      make_policy("aonline")
          ->load(Json::parse(R"({"origin": 1, "batch": 0, "jobs": [{"job": 2}, {"job": 1}]})"))
          .ok());
}

}  // namespace
}  // namespace rubato::policy
