#include "rubato/policy/rubato.h"

#include <functional>
#include <gtest/gtest.h>
#include <map>
#include <memory>
#include <string>

#include "rubato/core/testing.h"
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
  EXPECT_FALSE(policy->quote(JobId(2)).has_value()) << "who is refused bids for nothing";
  EXPECT_GT(world.last().reject[0].earliest, time_at(10));
}

TEST(Rubato, WithoutPromisesADeadlineDoesNotCount) {
  World world("1x4");
  const auto policy = make_policy("rubato:promises=off");
  world.submit({.work = 1000, .deadline_s = 10, .curve = kCurve});
  EXPECT_EQ(world.decide(*policy), "0x4");
  EXPECT_TRUE(world.last().promise.empty());
}

// The fair end of the first job is at 200 s: two jobs were present all the time. It needs 100 s.
TEST(Rubato, WhoWouldSoonBeTooLateForAFairEndGoesFirst) {
  for (const bool fair : {false, true}) {
    World world("1x1");
    const auto policy = make_policy(fair ? "rubato" : "rubato:fairness=0");
    world.submit({.work = 100});
    const JobId second = world.submit({.work = 95});
    EXPECT_EQ(world.decide(*policy), "1x1");
    world.pass(95);
    world.finish(second);
    world.submit({.work = 70});  // shorter, and has time
    EXPECT_EQ(world.decide(*policy), fair ? "0x1" : "2x1");
  }
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
  EXPECT_FALSE(policy->quote(JobId(7)).has_value());
  EXPECT_EQ(policy->quotes()->ahead_of(*last).size(), last->ahead);
}

TEST(Rubato, PutsItsQuotesIntoWords) {
  Quote quote;
  quote.gpus = 1;
  quote.price = 0.5;
  quote.bid = 0.25;
  quote.ahead = 2;
  const auto text = [&] {
    std::string all;
    for (const std::string& sentence : words(quote)) all += (all.empty() ? "" : " ") + sentence;
    return all;
  };
  EXPECT_EQ(text(),
            "The price of a GPU is 0.5: one more would save so many job-seconds a second. The job "
            "bids 0.25 for its next GPU, because that is what it would save. 2 jobs that want more "
            "GPUs bid more.");
  quote.gpus = 0;
  quote.bid = 0.75;
  quote.guessed = true;
  EXPECT_EQ(text(),
            "The price of a GPU is 0.5: one more would save so many job-seconds a second. The job "
            "bids 0.75 for its first GPU, because that is what it is expected to save. That is "
            "above the price: it gets GPUs as soon as enough are free together.");
  quote = Quote();
  quote.gpus = 2;
  quote.promised = true;
  EXPECT_EQ(text(),
            "No job would gain by one more GPU, so a GPU costs nothing now. Its promise gives it "
            "the GPUs of its plan, whatever the price. The job would gain nothing by more GPUs.");
}

testing::Job with_spec(testing::Job job, const std::function<void(JobSpec&)>& change) {
  auto spec = std::make_shared<JobSpec>(*job.spec);
  change(*spec);
  job.spec = spec;
  return job;
}

testing::Job of_user(const Draft& draft, const std::string& user, double weight = 1) {
  return with_spec(draft.job(), [&](JobSpec& spec) {
    spec.user = user;
    spec.weight = weight;
  });
}

// GPUs of each user after one decision.
std::map<std::string, int> gpus_by_user(World& world, Policy& policy) {
  std::map<std::string, int> gpus;
  world.decide(policy);
  for (const Grant& grant : world.last().run)
    gpus[world.job(grant.job).spec->user] += gpus_of(grant.want);
  return gpus;
}

TEST(Rubato, AUserWithManyJobsDoesNotCrowdOutAnother) {
  for (const char* shares : {"jobs", "users"}) {
    World world("4x8");
    const auto policy = make_policy(std::string("rubato:fairness=0,shares=") + shares);
    for (int i = 0; i < 100; ++i) world.submit_job(of_user({.work = 100, .curve = kCurve}, "many"));
    for (int i = 0; i < 2; ++i) world.submit_job(of_user({.work = 300, .curve = kCurve}, "few"));
    const auto gpus = gpus_by_user(world, *policy);
    if (shares == std::string("jobs")) {
      EXPECT_EQ(gpus.count("few"), 0U);
    } else {
      EXPECT_EQ(gpus.at("few"), 8) << "all that two jobs can use";
      EXPECT_EQ(gpus.at("many"), 24);
    }
  }
}

// For these speeds, GPUs go out in proportion to w f. Jobs of a weight of 3/4 of all end first, so
// their f is 1 to 1/4, and that of the others 1/4 to 0: 3 x 5/8 to 1/8, which is 30 GPUs to 2.
TEST(Rubato, UsersShareByTheirWeight) {
  const std::vector<CurvePoint> curve = rates({1, 1.41, 1.73, 2, 2.24, 2.45, 2.65, 2.83});
  for (const double weight : {1.0, 3.0}) {
    World world("4x8");
    const auto policy = make_policy("rubato:fairness=0,shares=users");
    for (int i = 0; i < 12; ++i) {
      world.submit_job(of_user({.work = 100, .curve = curve}, "ada"));
      world.submit_job(of_user({.work = 100, .curve = curve}, "bob", weight));
    }
    auto gpus = gpus_by_user(world, *policy);
    EXPECT_EQ(gpus["ada"] + gpus["bob"], 32);
    EXPECT_NEAR(gpus["bob"], weight == 1 ? 16 : 30, 2);
  }
}

TEST(Rubato, EachJobIsTreatedByWhatIsKnownOfIt) {
  World world("1x1");
  const auto policy = make_policy("rubato:fairness=0");
  const auto guess = [](JobSpec& spec) { spec.work_guessed = true; };
  const JobId open = world.submit_job(with_spec(Draft{.work = 3600}.job(), guess));
  EXPECT_EQ(world.decide(*policy), "0x1");
  EXPECT_TRUE(policy->quote(open)->guessed);
  world.pass(1000);
  world.submit({.work = 500});  // shorter than what is expected of the other
  EXPECT_EQ(world.decide(*policy), "1x1");
  EXPECT_FALSE(policy->quote(JobId(1))->guessed);
  // Nobody knows when it would end, so nobody promises it.
  world.submit_job(with_spec(Draft{.work = 1, .deadline_s = 9000}.job(), guess));
  world.decide(*policy);
  EXPECT_TRUE(world.last().promise.empty());
  EXPECT_TRUE(world.last().reject.empty());
}

// One hour is guessed of each, as work / (work / 3600), which differs in the last bit. Restarts
// cost nothing, so only a rule can keep the GPUs where they are. The others have come before.
TEST(Rubato, NobodyIsMovedByARoundingError) {
  for (const double work : {476.0, 1.0, 1e7 / 3, 0.1}) {
    for (const double other : {476.0, 1.0, 7.7, 0.3}) {
      World world("1x1");
      const auto policy = make_policy("rubato");
      const auto guess = [](JobSpec& spec) { spec.work_guessed = true; };
      const auto submit = [&](double size) {
        Draft draft{.work = size, .curve = rates({size / 3600})};
        return world.submit_job(with_spec(draft.job(), guess));
      };
      for (int i = 0; i < 3; ++i) submit(other);
      const JobId last = submit(work);
      world.job(last).target = world.job(last).held = gpus_on({{0, 1}});
      EXPECT_EQ(world.decide(*policy), "3x1") << work << " " << other;
      submit(other);
      EXPECT_EQ(world.decide(*policy), "3x1") << work << " " << other;
    }
  }
}

TEST(Rubato, ARunThatMeasuresGoesFirst) {
  World world("1x1");
  const auto policy = make_policy("rubato");
  world.submit({.work = 10});
  EXPECT_EQ(world.decide(*policy), "0x1");
  world.submit({.work = 1e6, .goes_first = true});
  EXPECT_EQ(world.decide(*policy), "1x1");
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
