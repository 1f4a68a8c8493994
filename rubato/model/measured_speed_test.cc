#include "rubato/model/measured_speed.h"

#include <gtest/gtest.h>

namespace rubato::model {
namespace {

TEST(MeasuredSpeed, InterpolatesAndScalesPerfectlyBeyondWhatIsKnown) {
  const MeasuredSpeed speed({{2, 1.8}, {8, 4.2}}, 64);
  EXPECT_DOUBLE_EQ(speed.on(GpuType(), 2), 1.8);
  EXPECT_DOUBLE_EQ(speed.on(GpuType(), 8), 4.2);
  EXPECT_DOUBLE_EQ(speed.on(GpuType(), 5), 3.0);
  EXPECT_DOUBLE_EQ(speed.on(GpuType(), 1), 0.9);
  EXPECT_DOUBLE_EQ(speed.on(GpuType(), 64), 33.6);
  EXPECT_EQ(speed.on(GpuType(), 65), 0);
  EXPECT_EQ(speed.on(GpuType(), 0), 0);
}

}  // namespace
}  // namespace rubato::model
