#include "rubato/policy/victims.h"

#include <gtest/gtest.h>
#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "rubato/core/testing.h"
#include "rubato/policy/testing.h"

namespace rubato::policy {
namespace {

using testing::make_policy;
using testing::World;

// The key is the same for all policies; each of them is tried with both of its values.
std::string with_victims(const std::string& policy, bool cheapest) {
  return policy + (cheapest ? ":victims=cheapest" : "");
}

// Four GPUs are wanted. Job 0 has most left and would free them alone, at 80 s per GPU; jobs 1 and
// 2 would do so together, at 35 s per GPU.
TEST(Victims, AreTheCheapestJobsAndNotTheLastOnes) {
  for (const std::string name : {"srtf", "srsf", "elas"}) {
    for (const bool cheapest : {true, false}) {
      const auto policy = make_policy(with_victims(name, cheapest));
      World world("1x8");
      world.submit({.gpus = 4, .work = 10000, .restart_s = 320});
      world.submit({.gpus = 2, .work = 10000, .restart_s = 70});
      world.submit({.gpus = 2, .work = 10000, .restart_s = 70});
      EXPECT_EQ(world.decide(*policy), "0x4 1x2 2x2") << name;
      world.pass(1000).submit({.gpus = 4, .work = 10});
      EXPECT_EQ(world.decide(*policy), cheapest ? "0x4 3x4" : "1x2 2x2 3x4") << name;
    }
  }
}

// The loss is in the unit of the order: 50 s, or 100 GPU-s.
TEST(Victims, GiveWayOnlyIfItIsWorthTheirLoss) {
  for (const std::string name : {"pickyman", "srtf:victims=cheapest", "srsf:victims=cheapest"}) {
    const auto policy = make_policy(name);
    World world("1x2");
    world.submit({.gpus = 2, .work = 100, .restart_s = 50});
    EXPECT_EQ(world.decide(*policy), "0x2") << name;
    world.submit({.gpus = 2, .work = 50});
    EXPECT_EQ(world.decide(*policy), "0x2") << name << ": 100 s are not more than 50 s + 50 s";
    world.submit({.gpus = 2, .work = 49});
    EXPECT_EQ(world.decide(*policy), "2x2") << name;
  }
}

// A job of the same size does not give way, however short the newcomer is.
TEST(Victims, OfSjfAreTheLargestAndOfEqualsTheCheapest) {
  for (const bool cheapest : {true, false}) {
    const auto policy = make_policy(with_victims("sjf", cheapest));
    World world("1x4");
    world.submit({.gpus = 2, .work = 100, .restart_s = 1});
    world.submit({.gpus = 2, .work = 100, .restart_s = 60});
    EXPECT_EQ(world.decide(*policy), "0x2 1x2");
    world.submit({.gpus = 2, .work = 1});
    EXPECT_EQ(world.decide(*policy), "0x2 1x2");
    world.submit({.gpus = 1, .work = 1});
    EXPECT_EQ(world.decide(*policy), cheapest ? "1x2 3x1" : "0x2 3x1");
  }
  const auto policy = make_policy("sjf:victims=cheapest");
  World world("1x5");
  world.submit({.gpus = 2, .work = 100, .restart_s = 1});
  world.submit({.gpus = 3, .work = 100, .restart_s = 60});
  EXPECT_EQ(world.decide(*policy), "0x2 1x3");
  world.submit({.gpus = 1, .work = 1});
  EXPECT_EQ(world.decide(*policy), "0x2 2x1");
}

TEST(Victims, OfAntManAreTheCheapestOpportunisticJobs) {
  for (const bool cheapest : {true, false}) {
    const auto policy = make_policy(with_victims("antman", cheapest));
    World world("1x2");
    world.submit({.work = 100, .restart_s = 1, .opportunistic = true});
    world.submit({.work = 100, .restart_s = 60, .opportunistic = true});
    EXPECT_EQ(world.decide(*policy), "0x1 1x1");
    world.submit({.work = 100});
    EXPECT_EQ(world.decide(*policy), cheapest ? "1x1 2x1" : "0x1 2x1");
  }
}

// The newcomer needs 3 GPUs. Job 0 loses nothing, but type a has too few.
TEST(Victims, AreOfOneType) {
  const auto policy = make_policy("srtf:victims=cheapest");
  Snapshot snapshot;
  snapshot.cluster = testing::cluster_of("1x2:a,1x4:b");
  const std::vector<Allocation> gpus = {
      gpus_on({{0, 0b11}}), gpus_on({{1, 0b1111}}, gpu_type(1)), {}};
  for (const auto& target : gpus) {
    const bool runs = !target.empty();
    auto spec = rigid_spec(runs ? target.gpus() : 3);
    if (target.gpus() == 4) spec->restart_cost = from_seconds(60);
    JobView job = job_view(job_id(snapshot.jobs.size()), spec);
    job.speed = std::make_shared<ConstantSpeed>(1);
    job.work = job.progress.work_left = runs ? 1000 : 10;
    job.target = job.held = target;
    snapshot.jobs.insert(std::move(job));
  }
  const auto decision = policy->decide(snapshot);
  ASSERT_TRUE(decision.ok());
  ASSERT_TRUE(validate(*decision, snapshot).ok());
  std::map<JobId, Count> granted;
  for (const auto& grant : decision->run) granted[grant.job] = std::get<Count>(grant.want);
  ASSERT_EQ(granted.size(), 2U);
  EXPECT_EQ(granted[job_id(0)].type, gpu_type(0));
  EXPECT_EQ(granted[job_id(2)].type, gpu_type(1));
  EXPECT_EQ(granted[job_id(2)].gpus, 3);
}

}  // namespace
}  // namespace rubato::policy
