#include "rubato/policy/oasis.h"

#include <gtest/gtest.h>

#include "rubato/policy/testing.h"

namespace rubato::policy {
namespace {

using testing::Draft;
using testing::make_policy;
using testing::rates;
using testing::World;

constexpr const char* kPriced = "oasis:slot=10,low=1,high=16";

// Worth 10, 8 and 1 if done in 1, 2 and 3 slots of 10 s.
Draft two_gpu_slots() {
  const double decay = std::log(35.0) / 10;
  const double value = 0.85 / 0.084375;
  const double target = 10 + std::log(1 / (value / 10 - 1)) / decay;
  return {
      .work = 20, .curve = rates({1, 2}), .utility = Utility{value, decay, from_seconds(target)}};
}

TEST(Oasis, TheExampleHasThePricesOneFourAndSixteen) {
  const Draft draft = two_gpu_slots();
  EXPECT_NEAR(draft.spec()->worth(kStart, time_at(10)), 10, 1e-5);
  EXPECT_NEAR(draft.spec()->worth(kStart, time_at(20)), 8, 1e-5);
  EXPECT_NEAR(draft.spec()->worth(kStart, time_at(30)), 1, 1e-5);
  World world("1x2");
  const auto policy = make_policy(kPriced);
  for (int i = 0; i < 3; ++i) world.submit(two_gpu_slots());
  EXPECT_EQ(world.decide(*policy), "0x2 !2") << "the third would gain 1 - 2";
  ASSERT_EQ(world.last().promise.size(), 2U);
  EXPECT_EQ(world.last().promise[0].finish, time_at(10));
  EXPECT_EQ(world.last().promise[1].finish, time_at(20));
  EXPECT_EQ(world.last().again_at, time_at(10));
  world.pass(10).finish(JobId(0));
  EXPECT_EQ(world.decide(*policy), "1x2");
}

TEST(Oasis, WithoutAUtilityAJobIsWorthItsWeightUntilItsDeadline) {
  World world("1x2");
  const auto policy = make_policy(kPriced);
  // Two GPU-slots at a price of 1.
  world.submit({.work = 20, .deadline_s = 20, .curve = rates({1, 2}), .weight = 1.9});
  EXPECT_EQ(world.decide(*policy), "!0");
  world.submit({.work = 20, .deadline_s = 20, .curve = rates({1, 2}), .weight = 2.1});
  EXPECT_EQ(world.decide(*policy), "1x2");
  world.submit({.work = 20, .deadline_s = 9, .curve = rates({1, 2}), .weight = 100});
  EXPECT_EQ(world.decide(*policy), "1x2 !2") << "nothing is worth anything after the deadline";
  ASSERT_TRUE(world.last().reject[0].earliest.has_value());
  EXPECT_EQ(*world.last().reject[0].earliest, time_at(20));
}

TEST(Oasis, GpusThatAreTakenCostMore) {
  World world("1x2");
  const auto policy = make_policy(kPriced);
  world.submit({.work = 10, .deadline_s = 10, .weight = 2});
  EXPECT_EQ(world.decide(*policy), "0x1");
  world.submit({.work = 10, .deadline_s = 10, .weight = 3.9});
  EXPECT_EQ(world.decide(*policy), "0x1 !1") << "the other GPU of this slot costs 4";
  world.submit({.work = 10, .deadline_s = 20, .weight = 3.9});
  EXPECT_EQ(world.decide(*policy), "0x1") << "that of the next slot costs 1";
  EXPECT_EQ(world.last().promise[1].plan.back(), (GpuStep{time_at(10), 1}));
}

TEST(Oasis, ThePricesFollowTheJobsSoFar) {
  World world("1x2");
  const auto policy = make_policy("oasis:slot=10,horizon=1");
  world.submit({.work = 20, .deadline_s = 20, .curve = rates({1, 2})});
  EXPECT_EQ(world.decide(*policy), "0x2") << "an empty cluster refuses nobody who can be in time";
  world.submit({.work = 20, .deadline_s = 10, .curve = rates({1, 2}), .weight = 1000});
  EXPECT_EQ(world.decide(*policy), "0x2 !1") << "a plan stands, whatever a newcomer is worth";
}

TEST(Oasis, BestEffortLivesOnWhatNoPlanHas) {
  World world("1x4");
  const auto policy = make_policy("oasis:slot=10");
  world.submit({.work = 1000, .curve = rates({1, 2, 3, 4})});
  world.submit({.work = 1000});
  EXPECT_EQ(world.decide(*policy), "0x2 1x1") << "the next count of the first is 4";
  world.pass(10).submit({.gpus = 3, .work = 10, .deadline_s = 20});
  EXPECT_EQ(world.decide(*policy), "0x1 2x3");
  world.pass(10).finish(JobId(2));
  EXPECT_EQ(world.decide(*policy), "0x2 1x1");
}

TEST(Oasis, ALostPlanIsReplacedByTheLeastShareInTime) {
  World world("1x4");
  const auto policy = make_policy("oasis:slot=10");
  const std::vector<CurvePoint> curve = {{1, 1}, {2, 1.9}, {4, 3.5}};
  const JobId job = world.submit({.work = 40, .deadline_s = 40, .curve = curve});
  EXPECT_EQ(world.decide(*policy), "0x1") << "the cheapest of those in time";
  world.pass(10);
  world.job(job).progress.work_left += 26.9;  // that much was lost
  world.throw_off(job);
  EXPECT_EQ(world.decide(*policy), "0x2") << "56.9 s of work in 30 s";
  ASSERT_EQ(world.last().promise.size(), 1U);
  EXPECT_LE(world.last().promise[0].finish, time_at(40));
  world.pass(1);
  world.job(job).progress.work_left += 200;
  world.throw_off(job);
  EXPECT_EQ(world.decide(*policy), "0x4") << "too late: as best effort";
  EXPECT_TRUE(world.last().promise.empty());
}

TEST(Oasis, RefusesPricesOrAStateThatMakeNoSense) {
  for (const char* text : {"oasis:low=1", "oasis:high=1", "oasis:low=3,high=2"}) {
    const auto chosen = parse_policies(text);
    ASSERT_TRUE(chosen.ok());
    EXPECT_FALSE(chosen->front().make({}).ok()) << text;
  }
  const auto policy = make_policy("oasis");
  EXPECT_FALSE(policy->load(Json::parse(R"({"gpus": 1})")).ok());
  EXPECT_FALSE(policy
                   ->load(Json::parse(R"({"gpus": 1, "seen": {"most": 1, "least": 1, "smallest": 1},
                                          "jobs": [{"job": 2}, {"job": 1}]})"))
                   .ok());
}

}  // namespace
}  // namespace rubato::policy
