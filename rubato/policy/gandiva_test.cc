#include "rubato/policy/gandiva.h"

#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "rubato/policy/testing.h"

namespace rubato::policy {
namespace {

using testing::make_policy;
using testing::rates;
using testing::World;

TEST(Gandiva, JobsTakeTurnsOfAQuantum) {
  const auto policy = make_policy("gandiva");
  World world("1x1");
  for (int i = 0; i < 3; ++i) world.submit({.work = 1000});
  EXPECT_EQ(world.decide(*policy), "0x1");
  EXPECT_EQ(world.last().again_at, time_at(60));
  EXPECT_EQ(world.pass(30).decide(*policy), "0x1") << "not before the quantum is over";
  for (const auto* turn : {"1x1", "2x1", "0x1", "1x1"}) {
    EXPECT_EQ(world.pass(seconds(*world.last().again_at - world.now())).decide(*policy), turn);
  }
}

TEST(Gandiva, AQuantumIsLongerByTheRestart) {
  const auto policy = make_policy("gandiva");
  World world("1x1");
  world.submit({.work = 1000, .restart_s = 20});
  world.submit({.work = 1000, .restart_s = 20});
  world.decide(*policy);
  EXPECT_EQ(world.last().again_at, time_at(80));
}

TEST(Gandiva, ALargeGangHasItsTurnToo) {
  const auto policy = make_policy("gandiva");
  World world("1x2");
  world.submit({.gpus = 1, .work = 1000});
  world.submit({.gpus = 1, .work = 1000});
  world.submit({.gpus = 2, .work = 1000});
  EXPECT_EQ(world.decide(*policy), "0x1 1x1");
  EXPECT_EQ(world.pass(60).decide(*policy), "2x2");
  EXPECT_EQ(world.pass(60).decide(*policy), "0x1 1x1");
}

TEST(Gandiva, NobodyIsDisturbedWhileNobodyWaits) {
  const auto policy = make_policy("gandiva");
  World world("1x2");
  world.submit({.work = 1000});
  world.submit({.work = 1000});
  EXPECT_EQ(world.decide(*policy), "0x1 1x1");
  EXPECT_EQ(world.last().again_at, std::nullopt);
}

const std::vector<CurvePoint> kPerfect = rates({1, 2, 3, 4});

TEST(Gandiva, GrowsOnIdleGpusAndShrinksOnDemand) {
  const auto policy = make_policy("gandiva");
  World world("1x4");
  world.submit({.gpus = 1, .work = 1000, .curve = kPerfect});
  EXPECT_EQ(world.decide(*policy), "0x4");
  world.submit({.gpus = 2, .work = 1000});
  EXPECT_EQ(world.pass(5).decide(*policy), "0x2 1x2");
  world.submit({.gpus = 1, .work = 1000});
  EXPECT_EQ(world.pass(5).decide(*policy), "0x1 1x2 2x1");
  EXPECT_EQ(make_policy("gandiva:grow=off")->decide(world.snapshot())->run.size(), 3U);
}

TEST(Gandiva, AGrowthThatMeasuresNoGainIsUndoneForGood) {
  const auto policy = make_policy("gandiva");
  World world("1x2");
  const JobId job = world.submit({.gpus = 1, .work = 1000, .curve = rates({1, 2})});
  EXPECT_EQ(world.decide(*policy), "0x2");
  EXPECT_EQ(world.last().again_at, time_at(10)) << "when it has been measured";
  world.job(job).progress.rate = 0.9;  // the estimate said 2
  EXPECT_EQ(world.pass(10).decide(*policy), "0x1");
  EXPECT_EQ(world.pass(10).decide(*policy), "0x1");
}

TEST(Gandiva, AGrowthMustPayItsRestart) {
  const auto policy = make_policy("gandiva");
  World world("1x2");
  world.submit({.gpus = 1, .work = 1e6, .restart_s = 590, .curve = rates({1, 2})});
  EXPECT_EQ(world.decide(*policy), "0x1") << "half of the speed in 600 s against 590 s";
}

TEST(Gandiva, AJobSpreadOverNodesMovesWhenItMeasurablySuffers) {
  for (const double measured : {1.0, 2.0}) {
    const auto policy = make_policy("gandiva:grow=off");
    World world("2x2");
    const JobId id = world.submit({.gpus = 2, .work = 1000, .curve = rates({1, 2}), .network = 2});
    world.decide(*policy);
    JobView& job = world.job(id);
    job.held = Allocation();
    job.held.add({NodeId(0), 1});
    job.held.add({NodeId(1), 1});
    job.target = job.held;
    job.progress.rate = measured;
    const auto decision = policy->decide(world.snapshot());
    ASSERT_TRUE(decision.ok() && validate(*decision, world.snapshot()).ok());
    ASSERT_EQ(decision->run.size(), 1U);
    const auto* exact = std::get_if<Exact>(&decision->run[0].want);
    if (measured == 2.0) {
      EXPECT_EQ(exact, nullptr) << "as fast as it can be";
    } else {
      ASSERT_NE(exact, nullptr);
      EXPECT_EQ(exact->gpus.nodes(), 1);
      EXPECT_FALSE(exact->gpus.mask_on(NodeId(0)) == 0) << "keeps the GPU it has there";
    }
  }
}

}  // namespace
}  // namespace rubato::policy
