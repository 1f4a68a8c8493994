#include "rubato/policy/hesrpt.h"

#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "rubato/policy/testing.h"

namespace rubato::policy {
namespace {

using testing::make_policy;
using testing::rates;
using testing::World;

TEST(Hesrpt, SharesAreThoseOfThePaper) {
  EXPECT_DOUBLE_EQ(Hesrpt::share(1, 1, 0.5), 1);
  EXPECT_DOUBLE_EQ(Hesrpt::share(1, 2, 0.5), 0.25);
  EXPECT_DOUBLE_EQ(Hesrpt::share(2, 2, 0.5), 0.75);
  double sum = 0;
  for (std::size_t i = 1; i <= 7; ++i) sum += Hesrpt::share(i, 7, 0.3);
  EXPECT_NEAR(sum, 1, 1e-12);
}

TEST(Hesrpt, TheClosedFormByHand) {
  EXPECT_DOUBLE_EQ(Hesrpt::closed_form({10}, 4, 0.5), 5);
  // Two jobs of 1 on one GPU: rates .5 and .866; the second ends at 1.1547, the first at 1.57735.
  EXPECT_NEAR(Hesrpt::closed_form({1, 1}, 1, 0.5), 2.7320508, 1e-6);
  EXPECT_DOUBLE_EQ(Hesrpt::closed_form({1, 5, 3}, 1, 0.5), Hesrpt::closed_form({5, 3, 1}, 1, 0.5));
}

TEST(Hesrpt, TheShortestGetsMost) {
  World world("1x8");
  std::vector<double> root;
  for (int k = 1; k <= 8; ++k) root.push_back(std::sqrt(k));
  world.submit({.work = 10, .curve = rates(root)});
  world.submit({.work = 90, .curve = rates(root)});
  EXPECT_EQ(world.decide(*make_policy("hesrpt")), "0x6 1x2");
  EXPECT_EQ(world.decide(*make_policy("hesrpt:q=0.01")), "0x4 1x4");
  world.submit({.work = 1, .curve = rates(root)});
  EXPECT_EQ(world.decide(*make_policy("hesrpt")), "0x3 1x1 2x4");
}

TEST(Hesrpt, WithMoreJobsThanGpusTheShortestRun) {
  World world("1x2");
  for (const double work : {50.0, 10.0, 30.0, 20.0, 40.0})
    world.submit({.work = work, .curve = rates({1, 1.4})});
  EXPECT_EQ(world.decide(*make_policy("hesrpt")), "1x1 3x1");
}

TEST(Equal, SharesAsEquallyAsCountsAllow) {
  World world("1x8");
  for (int i = 0; i < 3; ++i) world.submit({.work = 10, .curve = rates({1, 2, 3, 4, 5, 6, 7, 8})});
  const auto policy = make_policy("equal");
  EXPECT_EQ(world.decide(*policy), "0x3 1x3 2x2");
  world.submit({.work = 10, .curve = rates({1})});
  EXPECT_EQ(world.decide(*policy), "0x3 1x2 2x2 3x1");
  world.submit({.gpus = 4, .work = 10});
  EXPECT_EQ(world.decide(*policy), "0x1 1x1 2x1 3x1 4x4");
}

}  // namespace
}  // namespace rubato::policy
