#include "rubato/model/curve.h"

#include <gtest/gtest.h>
#include <vector>

namespace rubato::model {
namespace {

WorkRate at(const SpeedModel& speed, int gpus) { return speed.on(GpuType(), gpus); }

TEST(ConstantSpeed, IsTheSameEverywhereAndKnowsOneCount) {
  const ConstantSpeed speed(3);
  EXPECT_EQ(at(speed, 1), 3);
  EXPECT_EQ(speed.rate({GpuType(), 8, 8, 1}), 3);
  EXPECT_TRUE(speed.measured().empty());
}

TEST(CurveSpeed, InterpolatesBetweenMeasurements) {
  const std::vector<CurvePoint> points = {{2, 10}, {4, 16}, {8, 12}};
  const CurveSpeed speed(points);
  EXPECT_EQ(at(speed, 0), 0);
  EXPECT_EQ(at(speed, 1), 5) << "proportional below the first";
  EXPECT_EQ(at(speed, 2), 10);
  EXPECT_EQ(at(speed, 3), 13);
  EXPECT_EQ(at(speed, 4), 16);
  EXPECT_EQ(at(speed, 5), 15) << "a curve may fall";
  EXPECT_EQ(at(speed, 8), 12);
  EXPECT_EQ(at(speed, 9), 0) << "unusable above the last";
  EXPECT_EQ(at(speed, 1'000'000), 0);
  EXPECT_EQ(at(speed, -1), 0);
  EXPECT_EQ(std::vector<int>(speed.measured().begin(), speed.measured().end()),
            (std::vector<int>{2, 4, 8}));
}

TEST(CurveSpeed, MeasuredCountsAreExactWhateverTheRates) {
  const std::vector<CurvePoint> points = {{1, 0.1}, {7, 0.7}, {13, 1.1}, {4096, 1e9}};
  const CurveSpeed speed(points);
  for (const auto& [gpus, rate] : points) EXPECT_EQ(at(speed, gpus), rate);
}

TEST(CurveSpeed, LosesByUsingMoreNodesThanItNeeds) {
  const std::vector<CurvePoint> points = {{8, 100}};
  const CurveSpeed speed(points, 0.5);
  EXPECT_EQ(speed.rate({GpuType(), 8, 0, 0}), 100) << "placement does not matter";
  EXPECT_EQ(speed.rate({GpuType(), 8, 1, 1}), 100);
  EXPECT_EQ(speed.rate({GpuType(), 8, 2, 2}), 100);
  EXPECT_DOUBLE_EQ(speed.rate({GpuType(), 8, 2, 1}), 100 / 1.25);
  EXPECT_DOUBLE_EQ(speed.rate({GpuType(), 8, 8, 1}), 100 / (1 + 0.5 * 7 / 8));
  double last = 101;
  for (int nodes = 1; nodes <= 8; ++nodes) {
    const WorkRate rate = speed.rate({GpuType(), 8, nodes, 1});
    EXPECT_LT(rate, last) << "each node more costs";
    last = rate;
  }
  EXPECT_EQ(CurveSpeed(points).rate({GpuType(), 8, 8, 1}), 100) << "no network, no loss";
}

TEST(CurveSpeedDeathTest, ACurveMustMakeSense) {
  const auto make = [](const std::vector<CurvePoint>& points) { CurveSpeed speed(points); };
  EXPECT_DEATH(make({}), "CHECK");
  EXPECT_DEATH(make({{2, 1}, {2, 2}}), "CHECK");
  EXPECT_DEATH(make({{4, 1}, {2, 2}}), "CHECK");
  EXPECT_DEATH(make({{1, 0}}), "CHECK");
  EXPECT_DEATH(make({{4097, 1}}), "CHECK");
}

}  // namespace
}  // namespace rubato::model
