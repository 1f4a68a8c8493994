#include "rubato/policy/optimus.h"

#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <vector>

#include "rubato/model/convergence.h"
#include "rubato/policy/testing.h"

namespace rubato::policy {
namespace {

using testing::decide_once;
using testing::Draft;
using testing::make_policy;
using testing::rates;
using testing::World;

TEST(OptimusOracle, OneEachThenTheLargestFallOfTheTimeLeft) {
  // Time left of job 0: 10, 5.26, 3.70; of job 1: 20, 13.3, 12.5. Falls: 4.74, 1.56 and 6.67, .83.
  const std::vector<Draft> jobs = {{.work = 10, .curve = rates({1, 1.9, 2.7})},
                                   {.work = 20, .curve = rates({1, 1.5, 1.6})}};
  const std::vector<std::string> expected = {"0x1",     "0x1 1x1", "0x1 1x2",
                                             "0x2 1x2", "0x3 1x2", "0x3 1x3"};
  for (std::size_t gpus = 1; gpus <= 6; ++gpus) {
    EXPECT_EQ(decide_once("optimus:oracle=on", "1x" + std::to_string(gpus), jobs),
              expected[gpus - 1]);
  }
}

TEST(OptimusOracle, StopsWhereNobodyGains) {
  const std::vector<Draft> jobs = {{.work = 10, .curve = rates({1, 1.2, 1.1, 5})},
                                   {.work = 10, .curve = rates({1, 1})}};
  EXPECT_EQ(decide_once("optimus:oracle=on", "1x8", jobs), "0x2 1x1");
}

TEST(OptimusOracle, StepsToLegalCountsWithGainsPerGpu) {
  // 0 to four: (40 - 10)/3 = 10 a GPU; 1 to two: 30 - 15 = 15.
  const std::vector<Draft> jobs = {{.work = 40, .curve = rates({1, 2, 3, 4}), .allowed = {1, 4}},
                                   {.work = 30, .curve = rates({1, 2})}};
  EXPECT_EQ(decide_once("optimus:oracle=on", "1x3", jobs), "0x1 1x2");
  EXPECT_EQ(decide_once("optimus:oracle=on", "1x6", jobs), "0x4 1x2");
}

TEST(Optimus, DoesNotLookAtTheWorkLeft) {
  const auto curve = rates({1, 1.9, 2.7, 3.5});
  for (const double work : {10.0, 1e6}) {
    EXPECT_EQ(decide_once("optimus", "1x4",
                          {{.work = work, .curve = curve}, {.work = 50, .curve = curve}}),
              "0x2 1x2");
  }
  EXPECT_TRUE(make_policy("optimus")->learns());
  EXPECT_FALSE(make_policy("optimus:oracle=on")->learns());
  EXPECT_FALSE(make_policy("optimus")->knows_truth());
  EXPECT_TRUE(make_policy("optimus:oracle=on")->knows_truth());
}

TEST(Optimus, BelievesTheLossesShown) {
  // Two equal jobs have done the same work. By its losses, the second has much more work left.
  const auto curve = rates({1, 1.9, 2.7, 3.5, 4.2, 4.8, 5.3, 5.7});
  World world("1x8");
  for (int i = 0; i < 2; ++i) world.submit({.work = 1e5, .curve = curve});
  const auto policy = make_policy("optimus");
  EXPECT_EQ(world.decide(*policy), "0x4 1x4");
  const auto show = [&](std::size_t job, double b0) {
    const LossModel model{b0, 1.2, 0.1};
    auto losses = std::make_shared<ShownLosses>();
    losses->epoch = 10;
    losses->threshold = 0.001;
    for (int i = 0; i <= 10; ++i) losses->points.push_back({10.0 * i, model.loss(10.0 * i)});
    world.job(JobId(static_cast<JobId::rep>(job))).losses = losses;
  };
  show(0, 0.05);   // 1/(.5 u ..): steep, so it is nearly flat by now
  show(1, 0.001);  // slow
  const auto grants = (world.decide(*policy), world.last().run);
  ASSERT_EQ(grants.size(), 2U);
  EXPECT_GT(gpus_of(grants[1].want), gpus_of(grants[0].want));
}

}  // namespace
}  // namespace rubato::policy
