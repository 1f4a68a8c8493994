#include "rubato/policy/elasticflow.h"

#include <gtest/gtest.h>

#include "rubato/policy/testing.h"

namespace rubato::policy {
namespace {

using testing::Draft;
using testing::make_policy;
using testing::rates;
using testing::World;

// Perfect scaling on 1, 2, 4 and 8 GPUs.
std::vector<CurvePoint> linear() { return {{1, 1}, {2, 2}, {4, 4}, {8, 8}}; }

Draft due(Work work, double deadline_s, double restart_s = 0) {
  return {.work = work, .deadline_s = deadline_s, .restart_s = restart_s, .curve = linear()};
}

std::vector<int> counts(const std::vector<Level>& levels) {
  std::vector<int> counts;
  for (const auto& level : levels) counts.push_back(level.gpus);
  return counts;
}

TEST(Levels, ArePowersOfTwoThatAreLegalAndFaster) {
  const auto levels = [](const Draft& draft, int most = 64) {
    return counts(levels_of(*draft.spec(), *draft.speed(), most));
  };
  EXPECT_EQ(levels({.curve = rates({1, 2, 3, 4, 5, 6, 7, 8})}), (std::vector{1, 2, 4, 8}));
  EXPECT_EQ(levels({.curve = linear()}, 4), (std::vector{1, 2, 4}));
  EXPECT_EQ(levels({.curve = {{1, 46}, {2, 37}, {4, 56}, {8, 23}}}), (std::vector{1, 4}))
      << "slower than a smaller count is no level";
  EXPECT_EQ(levels({.curve = linear(), .allowed = {2, 3, 8}}), (std::vector{2, 8}));
  EXPECT_EQ(levels({.curve = rates({1, 2, 3}), .allowed = {3}}), (std::vector{3}))
      << "no power of two: what is measured";
  EXPECT_EQ(levels({.gpus = 6}), (std::vector{6})) << "a rigid job has one";
}

TEST(SharePlanner, TakesTheSmallestCapThatIsInTime) {
  FutureGpus free;
  free.reset(kStart, 8);
  const SharePlanner planner(free, Duration(0));
  const auto levels = levels_of(*due(80, 0).spec(), *due(80, 0).speed(), 8);
  const auto plan = [&](double deadline_s, double restart_s) {
    return planner.least_share(
        {levels, from_seconds(restart_s), time_at(deadline_s), {0, {80, kStart, 0}}}, kStart);
  };
  EXPECT_EQ(plan(80, 0)->steps, (std::vector<GpuStep>{{kStart, 1}}));
  EXPECT_EQ(plan(80, 0)->finish, time_at(80));
  EXPECT_EQ(plan(79, 1)->steps.back().gpus, 2) << "the restart counts";
  EXPECT_EQ(plan(11, 1)->steps, (std::vector<GpuStep>{{kStart, 8}}));
  EXPECT_FALSE(plan(10.9, 1).has_value());
}

TEST(SharePlanner, KeepsTheSmallerCapWhileItIsEnough) {
  FutureGpus free;
  free.reset(kStart, 8);
  const SharePlanner planner(free, Duration(0));
  // Two GPUs are only 1.5 times as fast as one: 100 s of work in 80 s is 60 s on one and 40/1.5 on
  // two less a second of restart each.
  const std::vector<Level> levels = {{1, 1}, {2, 1.5}};
  const auto plan =
      planner.least_share({levels, from_seconds(1), time_at(80), {0, {100, kStart, 0}}}, kStart);
  ASSERT_TRUE(plan.has_value());
  ASSERT_EQ(plan->steps.size(), 2U);
  EXPECT_EQ(plan->steps[0].gpus, 1);
  EXPECT_EQ(plan->steps[1].gpus, 2);
  EXPECT_LE(plan->finish, time_at(80));
  EXPECT_GT(plan->finish, time_at(79.9));
}

TEST(SharePlanner, ChangesOnlyAtTheMomentsOfDecision) {
  FutureGpus free;
  free.reset(kStart, 8);
  free.reserve(kStart, time_at(61), 8);
  const SharePlanner planner(free, from_seconds(60));
  const std::vector<Level> levels = {{4, 1}};
  const auto plan = planner.least_share({levels, {}, time_at(1000), {0, {10, kStart, 0}}}, kStart);
  ASSERT_TRUE(plan.has_value());
  EXPECT_EQ(plan->steps.back(), (GpuStep{time_at(120), 4}));
}

TEST(ElasticFlow, GivesLeftoversToThoseWhoGain) {
  World world("1x8");
  const auto policy = make_policy("elasticflow");
  world.submit(due(80, 1000));
  EXPECT_EQ(world.decide(*policy), "0x8") << "it needs one GPU, but seven would idle";
  world.submit(due(8, 2));
  EXPECT_EQ(world.decide(*policy), "0x4 1x4");
  EXPECT_EQ(world.last().promise.size(), 2U);
}

TEST(ElasticFlow, RefusesWhatWouldBreakAPromiseAndSaysWhatWouldNot) {
  World world("1x8");
  const auto policy = make_policy("elasticflow");
  world.submit(due(80, 10));
  EXPECT_EQ(world.decide(*policy), "0x8");
  world.submit(due(8, 5));
  EXPECT_EQ(world.decide(*policy), "0x8 !1");
  ASSERT_EQ(world.last().reject.size(), 1U);
  ASSERT_TRUE(world.last().reject[0].earliest.has_value());
  EXPECT_EQ(*world.last().reject[0].earliest, time_at(11));
  world.submit(due(8, 11));
  EXPECT_EQ(world.decide(*policy), "0x8");
  world.submit(due(1e6, 20));
  EXPECT_EQ(world.decide(*policy), "0x8 !3") << "not even alone";
}

TEST(ElasticFlow, MakesRoomByStretchingOthers) {
  World world("1x8");
  const auto policy = make_policy("elasticflow");
  world.submit(due(80, 100, 1));
  EXPECT_EQ(world.decide(*policy), "0x8");
  world.pass(5).submit(due(40, 11, 1));
  EXPECT_EQ(world.decide(*policy), "1x8") << "the first has time";
  EXPECT_EQ(world.last().promise.size(), 2U);
  EXPECT_TRUE(world.last().again_at.has_value()) << "when the first goes on";
}

TEST(ElasticFlow, BestEffortLivesOnLeftovers) {
  World world("1x8");
  const auto policy = make_policy("elasticflow");
  world.submit({.work = 1000, .curve = linear()});
  EXPECT_EQ(world.decide(*policy), "0x8");
  world.pass(1).submit(due(80, 11));
  EXPECT_EQ(world.decide(*policy), "1x8") << "a promise comes first";
  EXPECT_TRUE(world.last().promise.size() == 1 && world.last().promise[0].job == JobId(1));
}

TEST(ElasticFlow, ALostPromiseGoesOnAsBestEffort) {
  World world("1x8");
  const auto policy = make_policy("elasticflow");
  const JobId job = world.submit(due(80, 10));
  world.decide(*policy);
  world.pass(5).throw_off(job);
  EXPECT_EQ(world.decide(*policy), "0x8") << "without a restart cost nothing is lost";
  EXPECT_EQ(world.last().promise.size(), 1U);
  world.pass(1);
  world.job(job).progress.work_left += 8;  // a second's work was lost
  world.throw_off(job);
  EXPECT_EQ(world.decide(*policy), "0x8");
  EXPECT_TRUE(world.last().promise.empty());
}

TEST(ElasticFlow, TakesOverJobsThatRunAlready) {
  World world("1x8");
  const auto before = make_policy("afs-l");
  world.submit(due(80, 5));
  EXPECT_EQ(world.decide(*before), "0x8");
  const auto policy = make_policy("elasticflow");
  world.pass(1);
  EXPECT_EQ(world.decide(*policy), "0x8") << "too late for a promise, but it cannot be refused";
  EXPECT_TRUE(world.last().promise.empty());
}

TEST(ElasticFlow, WhoWasTakenInBeforeIsNeverRefused) {
  World world("1x8");
  world.submit({.gpus = 8, .work = 1000});
  world.submit(due(80, 5));
  EXPECT_EQ(world.decide(*make_policy("fifo")), "0x8") << "the second waits";
  const auto policy = make_policy("elasticflow");
  EXPECT_EQ(world.decide(*policy), "1x8") << "too late for a promise, and never started";
  EXPECT_TRUE(world.last().promise.empty());
  EXPECT_TRUE(world.last().reject.empty());
}

TEST(ElasticFlow, OfThoseOnLeftoversSomeGoFirst) {
  World world("1x2");
  const auto policy = make_policy("elasticflow");
  world.submit({.work = 1000});
  world.submit({.work = 1000});
  EXPECT_EQ(world.decide(*policy), "0x1 1x1");
  world.submit({.work = 10, .goes_first = true});
  EXPECT_EQ(world.decide(*policy), "0x1 2x1");
}

TEST(ElasticFlow, WithoutAdmissionNothingIsRefusedOrPromised) {
  World world("1x8");
  const auto policy = make_policy("elasticflow:admission=off");
  world.submit(due(80, 10));
  world.submit(due(8, 5));
  EXPECT_EQ(world.decide(*policy), "0x4 1x4");
  EXPECT_TRUE(world.last().promise.empty());
  EXPECT_TRUE(world.last().reject.empty());
}

TEST(ElasticFlow, RefusesADamagedState) {
  const auto policy = make_policy("elasticflow");
  EXPECT_FALSE(policy->load(Json::parse(R"({"gpus": 1})")).ok());
  EXPECT_FALSE(policy
                   ->load(Json::parse(R"({"gpus": 1, "jobs": [{"job": 2, "promised": true,
                                            "finish": 5, "margin": 0, "plan": []}]})"))
                   .ok());
  EXPECT_FALSE(policy
                   ->load(Json::parse(R"({"gpus": 1, "jobs": [{"job": 2, "promised": false},
                                            {"job": 1, "promised": false}]})"))
                   .ok());
}

}  // namespace
}  // namespace rubato::policy
