#include "rubato/policy/edge_cloud.h"

#include <gtest/gtest.h>

#include "rubato/policy/testing.h"

namespace rubato::policy {
namespace {

using testing::make_policy;
using testing::World;

TEST(EdgeCloud, AChunkGoesWhereItAddsLeastToAllEnds) {
  EXPECT_EQ(dispatch_cost(3, 0, {5}), 6) << "it delays the longer one";
  EXPECT_EQ(dispatch_cost(3, 0, {1}), 4) << "it waits for the shorter one";
  World world("1x1,1x1");
  const auto policy = make_policy("edge-cloud");
  world.submit({.work = 5});
  world.submit({.work = 1});
  EXPECT_EQ(world.decide(*policy), "0x1 1x1");
  const JobId job = world.submit({.work = 3});
  EXPECT_EQ(world.decide(*policy), "0x1 1x1") << "behind the short one";
  world.pass(1).finish(JobId(1));
  EXPECT_EQ(world.decide(*policy), "0x1 2x1");
  const auto& spread = std::get<Spread>(world.last().run.front().want).gpus;
  EXPECT_EQ(world.last().run.front().job, job);
  EXPECT_EQ(spread.front().first, NodeId(1));
}

TEST(EdgeCloud, AShorterChunkPreempts) {
  World world("1x1");
  const auto policy = make_policy("edge-cloud");
  world.submit({.work = 10});
  EXPECT_EQ(world.decide(*policy), "0x1");
  world.pass(2).submit({.work = 3});
  EXPECT_EQ(world.decide(*policy), "1x1");
  world.pass(3).finish(JobId(1));
  EXPECT_EQ(world.decide(*policy), "0x1");
}

TEST(EdgeCloud, TheChunksOfAJobRunTogether) {
  World world("1x3");
  const auto policy = make_policy("edge-cloud");
  world.submit({.work = 4});
  world.submit({.gpus = 3, .work = 5});
  EXPECT_EQ(world.decide(*policy), "0x1");
  world.pass(4).finish(JobId(0));
  EXPECT_EQ(world.decide(*policy), "1x3");
}

TEST(EdgeCloud, ASlowLinkKeepsShortChunksAway) {
  World world("1x1,1x1");
  const auto policy = make_policy("edge-cloud:bandwidth=1/8,data=10");
  world.submit({.work = 100});
  EXPECT_EQ(world.decide(*policy), "0x1");
  const auto node_of = [&](std::size_t grant) {
    return std::get<Spread>(world.last().run[grant].want).gpus.front().first;
  };
  EXPECT_EQ(node_of(0), NodeId(1)) << "10 s instead of 80 s for its data";
  world.submit({.work = 20});
  EXPECT_EQ(world.decide(*policy), "1x1") << "it rather delays the long one";
  EXPECT_EQ(node_of(0), NodeId(1));
}

TEST(EdgeCloud, RefusesADamagedState) {
  const auto policy = make_policy("edge-cloud");
  EXPECT_FALSE(policy->load(Json::parse(R"([{"job": 1, "workers": [2, 1]}])")).ok());
  EXPECT_FALSE(policy->load(Json::parse(R"([{"job": 1, "workers": [-1]}])")).ok());
  EXPECT_FALSE(
      policy->load(Json::parse(R"([{"job": 1, "workers": []}, {"job": 0, "workers": []}])")).ok());
}

}  // namespace
}  // namespace rubato::policy
