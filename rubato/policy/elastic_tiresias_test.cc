#include "rubato/policy/elastic_tiresias.h"

#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "rubato/policy/testing.h"

namespace rubato::policy {
namespace {

using testing::Draft;
using testing::make_policy;
using testing::rates;
using testing::World;

const std::vector<CurvePoint> kGood = rates({1, 2, 3, 4, 5, 6, 7, 8});
const std::vector<CurvePoint> kPoor = rates({1, 1.5, 1.8, 2, 2.1, 2.2, 2.3, 2.4});

TEST(ElasticTiresias, ShrinksTheInefficientToLetOthersIn) {
  World world("1x8");
  world.submit({.gpus = 4, .work = 1e4, .curve = kGood});
  world.submit({.gpus = 4, .work = 1e4, .curve = kPoor});
  const auto policy = make_policy("elastic-tiresias");
  EXPECT_EQ(world.decide(*policy), "0x4 1x4");
  world.pass(10);
  world.submit({.gpus = 2, .work = 1e4, .curve = kGood});
  EXPECT_EQ(world.decide(*policy), "0x4 1x3 2x1") << "it comes in with half of what it asked for";
  world.submit({.gpus = 4, .work = 1e4, .curve = kGood});
  EXPECT_EQ(world.decide(*policy), "0x3 1x2 2x1 3x2") << "nobody below half";
  world.submit({.gpus = 4, .work = 1e4, .curve = kGood});
  EXPECT_EQ(world.decide(*policy), "0x3 1x2 2x1 3x2") << "no more can be squeezed out";
}

TEST(ElasticTiresias, SomeMayWaitFirst) {
  World world("1x4");
  const auto policy = make_policy("elastic-tiresias:waiting=1");
  world.submit({.gpus = 4, .work = 1e4, .curve = kPoor});
  world.submit({.gpus = 2, .work = 1e4, .curve = kGood});
  EXPECT_EQ(world.decide(*policy), "0x4") << "one waits";
  world.submit({.gpus = 2, .work = 1e4, .curve = kGood});
  EXPECT_EQ(world.decide(*policy), "0x3 1x1") << "two do";
}

TEST(ElasticTiresias, GrowsWhoGainsMost) {
  World world("1x8");
  world.submit({.gpus = 2, .work = 1e4, .curve = kPoor});
  world.submit({.gpus = 2, .work = 1e4, .curve = kGood});
  const auto policy = make_policy("elastic-tiresias");
  EXPECT_EQ(world.decide(*policy), "0x2 1x6");
  world.finish(JobId(1));
  EXPECT_EQ(world.decide(*policy), "0x8");
}

// If no job can change its size, it is the same as Tiresias.
TEST(ElasticTiresias, RigidJobsSeeTiresias) {
  std::vector<Draft> jobs;
  for (int i = 0; i < 40; ++i) {
    jobs.push_back({.gpus = 1 + i * 7 % 4, .work = 10.0 + i * 37 % 90, .submit_s = i * 5.0});
  }
  World elastic("2x3");
  World plain("2x3");
  const auto a = elastic.run(*make_policy("elastic-tiresias:limits=60/150,least=1"), jobs);
  const auto b = plain.run(*make_policy("tiresias-las:limits=60/150"), jobs);
  EXPECT_EQ(a, b);
}

}  // namespace
}  // namespace rubato::policy
