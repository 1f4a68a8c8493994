#include "rubato/policy/rubato.h"

#include <gtest/gtest.h>

#include "rubato/policy/testing.h"

namespace rubato::policy {
namespace {

using testing::Draft;
using testing::make_policy;
using testing::rates;
using testing::World;

const std::vector<CurvePoint> kCurve = rates({1, 1.7, 2.2, 2.6});

TEST(Rubato, GivesMoreToTheShortAndLeavesNothingIdle) {
  World world("1x4");
  const auto policy = make_policy("rubato:fairness=0");
  world.submit({.work = 10, .curve = kCurve});
  world.submit({.work = 1000, .curve = kCurve});
  EXPECT_EQ(world.decide(*policy), "0x3 1x1");
}

TEST(Rubato, AHeavyJobCountsMore) {
  for (const double weight : {1.0, 20.0}) {
    World world("1x1");
    const auto policy = make_policy("rubato:fairness=0");
    world.submit({.work = 10});
    auto job = Draft{.work = 50}.job();
    auto spec = std::make_shared<JobSpec>(*job.spec);
    spec->weight = weight;
    job.spec = spec;
    world.submit_job(job);
    EXPECT_EQ(world.decide(*policy), weight == 1 ? "0x1" : "1x1");
  }
}

TEST(Rubato, PromisesADeadlineKeepsItAndTradesTheRest) {
  World world("1x4");
  const auto policy = make_policy("rubato");
  world.submit({.work = 100, .deadline_s = 101, .curve = kCurve});
  world.submit({.work = 1, .curve = kCurve});
  const auto text = world.decide(*policy);
  ASSERT_EQ(world.last().promise.size(), 1U);
  EXPECT_LE(world.last().promise[0].finish, time_at(101));
  EXPECT_NE(text.find("1x"), std::string::npos) << text;
  world.submit({.work = 1000, .deadline_s = 10, .curve = kCurve});
  EXPECT_NE(world.decide(*policy).find("!2"), std::string::npos);
  EXPECT_GT(world.last().reject[0].earliest, time_at(10));
}

TEST(Rubato, WithoutPromisesADeadlineDoesNotCount) {
  World world("1x4");
  const auto policy = make_policy("rubato:promises=off");
  world.submit({.work = 1000, .deadline_s = 10, .curve = kCurve});
  EXPECT_EQ(world.decide(*policy), "0x4");
  EXPECT_TRUE(world.last().promise.empty());
}

TEST(Rubato, WhoWaitedTooLongGetsATurn) {
  World world("1x1");
  const auto policy = make_policy("rubato:fairness=0,patience=1440");
  world.submit({.work = 1e6});
  EXPECT_EQ(world.decide(*policy), "0x1");
  world.submit({.work = 1e5});
  EXPECT_EQ(world.decide(*policy), "1x1");
  EXPECT_EQ(world.last().again_at, time_at(1440));
  world.pass(1439);
  EXPECT_EQ(world.decide(*policy), "1x1");
  world.pass(1);
  EXPECT_EQ(world.decide(*policy), "0x1");
  EXPECT_EQ(world.last().again_at, time_at(1441));
  EXPECT_TRUE(policy->quote(JobId(0))->turn);
  world.pass(1);
  EXPECT_EQ(world.decide(*policy), "1x1");
}

TEST(Rubato, WhoseLengthIsUnknownMakesRoomForTheYoung) {
  World world("1x1");
  const auto policy = make_policy("rubato:lengths=unknown");
  world.submit({.work = 2000});
  world.decide(*policy);
  world.pass(1000);
  world.submit({.work = 5000});  // longer, but nobody knows
  EXPECT_EQ(world.decide(*policy), "1x1");
}

TEST(Rubato, SaysWhatAGpuIsWorth) {
  World world("1x2");
  const auto policy = make_policy("rubato:fairness=0");
  EXPECT_FALSE(policy->quote(JobId(0)).has_value());
  world.submit({.work = 10, .curve = kCurve});
  world.submit({.work = 20, .curve = kCurve});
  world.submit({.work = 900, .curve = kCurve});
  world.decide(*policy);
  ASSERT_EQ(policy->prices().size(), 1U);
  EXPECT_GT(policy->prices()[0], 0);
  const auto last = policy->quote(JobId(2));
  ASSERT_TRUE(last.has_value());
  EXPECT_EQ(last->gpus, 0);
  EXPECT_LE(last->bid, last->price * 1.5);
  EXPECT_NE(words(*last).find("Its next GPU would save"), std::string::npos) << words(*last);
  EXPECT_FALSE(policy->quote(JobId(7)).has_value());
}

TEST(Rubato, RefusesAStateThatIsNotItsOwn) {
  const auto policy = make_policy("rubato");
  EXPECT_FALSE(policy->load(Json::object()).ok());
  Json saved = policy->save();
  saved["jobs"] = {{{"job", 2}, {"crowd", 0}, {"turn", 0}},
                   {{"job", 1}, {"crowd", 0}, {"turn", 0}}};
  EXPECT_FALSE(policy->load(saved).ok());
  saved["jobs"] = {
      {{"job", 2},
       {"crowd", 0},
       {"turn", 0},
       {"promise", {{"type", 0}, {"finish", 9}, {"margin", 0}, {"steps", Json::array()}}}}};
  EXPECT_FALSE(policy->load(saved).ok());
}

}  // namespace
}  // namespace rubato::policy
