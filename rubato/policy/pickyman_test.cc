#include "rubato/policy/pickyman.h"

#include <gtest/gtest.h>

#include "rubato/policy/testing.h"

namespace rubato::policy {
namespace {

using testing::make_policy;
using testing::World;

// Four GPUs are wanted. One job would free them alone at a loss of 320 s, two others together at 70
// s each.
TEST(PickyMan, StopsTheJobsThatLoseLeast) {
  const auto policy = make_policy("pickyman");
  World world("1x8");
  world.submit({.gpus = 4, .work = 10000, .restart_s = 320});
  world.submit({.gpus = 2, .work = 10000, .restart_s = 70});
  world.submit({.gpus = 2, .work = 10000, .restart_s = 70});
  EXPECT_EQ(world.decide(*policy), "0x4 1x2 2x2");
  world.pass(1000).submit({.gpus = 4, .work = 10});
  EXPECT_EQ(world.decide(*policy), "0x4 3x4");
}

TEST(PickyMan, APreemptionMustBeWorthItsLoss) {
  const auto policy = make_policy("pickyman");
  World world("1x1");
  world.submit({.gpus = 1, .work = 100, .restart_s = 50});
  EXPECT_EQ(world.decide(*policy), "0x1");
  world.submit({.gpus = 1, .work = 60});
  EXPECT_EQ(world.decide(*policy), "0x1")
      << "100 s left is not more than 60 s and the loss of 50 s";
  world.submit({.gpus = 1, .work = 49});
  EXPECT_EQ(world.decide(*policy), "2x1");
}

TEST(PickyMan, AVictimThatIsNotNeededStays) {
  const auto policy = make_policy("pickyman");
  World world("1x4");
  world.submit({.gpus = 1, .work = 1000, .restart_s = 1});
  world.submit({.gpus = 3, .work = 1000, .restart_s = 30});
  EXPECT_EQ(world.decide(*policy), "0x1 1x3");
  world.submit({.gpus = 3, .work = 10});
  // Job 0 is the cheaper one, but job 1 is needed in any case, and is enough.
  EXPECT_EQ(world.decide(*policy), "0x1 2x3");
}

TEST(PickyMan, LeavesNoGpuIdleThatAJobCouldUse) {
  const auto policy = make_policy("pickyman");
  World world("1x4");
  world.submit({.gpus = 4, .work = 1000});
  EXPECT_EQ(world.decide(*policy), "0x4");
  world.submit({.gpus = 1, .work = 10});
  world.submit({.gpus = 3, .work = 5000});
  EXPECT_EQ(world.decide(*policy), "1x1 2x3") << "job 2 is too long to stop job 0, but fits now";
}

TEST(PickyMan, CountsTheRestOfTheEpoch) {
  const PickyMan at_once{};
  const PickyMan epochs{{10}};
  World world("1x1");
  const JobId id = world.submit({.gpus = 1, .work = 1000, .restart_s = 20});
  EXPECT_DOUBLE_EQ(epochs.loss_micros(world.job(id), world.now()), 20e6)
      << "an epoch has not begun";
  world.job(id).progress.work_left = 1000 - 230;
  EXPECT_DOUBLE_EQ(at_once.loss_micros(world.job(id), world.now()), 20e6);
  EXPECT_DOUBLE_EQ(epochs.loss_micros(world.job(id), world.now()), 70e6 + 20e6);
}

// Two running jobs of one queue, and a newcomer of an upper one.
TEST(PickyMan, IsAKeyOfTiresias) {
  for (const bool cheapest : {true, false}) {
    const auto policy = make_policy(cheapest ? "tiresias-las:limits=10/1e9,victims=cheapest"
                                             : "tiresias-las:limits=10/1e9");
    World world("1x2");
    world.submit({.gpus = 1, .work = 1000, .restart_s = 1});
    world.submit({.gpus = 1, .work = 1000, .restart_s = 60});
    EXPECT_EQ(world.decide(*policy), "0x1 1x1");
    world.pass(20);  // both are in the second queue
    EXPECT_EQ(world.decide(*policy), "0x1 1x1");
    world.submit({.gpus = 1, .work = 1});
    EXPECT_EQ(world.decide(*policy), cheapest ? "1x1 2x1" : "0x1 2x1");
  }
}

}  // namespace
}  // namespace rubato::policy
