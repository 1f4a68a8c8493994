#include "rubato/policy/measuring.h"

#include <gtest/gtest.h>
#include <memory>
#include <vector>

#include "rubato/policy/testing.h"

namespace rubato::policy {
namespace {

using testing::make_policy;
using testing::World;

TEST(Measuring, GoesDownByHalvesAndThenWhereThePolicyWants) {
  World world("1x16");
  const JobId job = world.submit({.work = 1e6, .curve = {{16, 16}}});  // taken to scale perfectly
  const auto policy = measure_first(make_policy("afs-l"), from_seconds(20));
  const auto learn = [&](const std::vector<CurvePoint>& known) {
    world.job(job).speed = std::make_shared<CurveSpeed>(known);
  };
  EXPECT_EQ(world.decide(*policy), "0x8") << "sixteen is known";
  learn({{8, 8}, {16, 12}});
  EXPECT_EQ(world.decide(*policy), "0x4");
  learn({{4, 5}, {8, 8}, {16, 12}});
  EXPECT_EQ(world.decide(*policy), "0x2");
  learn({{2, 3}, {4, 5}, {8, 8}, {16, 12}});
  EXPECT_EQ(world.decide(*policy), "0x1");
  learn({{1, 1.8}, {2, 3}, {4, 5}, {8, 8}, {16, 12}});
  EXPECT_EQ(world.decide(*policy), "0x16");
}

TEST(Measuring, IsNotWorthItForAShortJob) {
  World world("1x16");
  world.submit({.work = 16 * 150, .curve = {{16, 16}}});
  world.submit({.gpus = 0 + 1, .work = 1e6});
  EXPECT_EQ(world.decide(*measure_first(make_policy("afs-l"), from_seconds(20))), "0x15 1x1");
}

TEST(Measuring, KeepsToLegalCounts) {
  World world("1x16");
  world.submit({.work = 1e6, .curve = {{16, 16}}, .allowed = {3, 12, 16}});
  EXPECT_EQ(world.decide(*measure_first(make_policy("afs-l"), from_seconds(20))), "0x3");
}

}  // namespace
}  // namespace rubato::policy
