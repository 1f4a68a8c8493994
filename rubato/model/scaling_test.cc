#include "rubato/model/scaling.h"

#include <gtest/gtest.h>
#include <vector>

namespace rubato::model {
namespace {

TEST(Scaling, FindsTheModelThatMadeTheRates) {
  const ScalingModel truth{0.8, 0.05, 0.002};
  std::vector<StepRate> shown;
  for (const int gpus : {1, 2, 4, 16}) shown.push_back({gpus, truth.rate(gpus)});
  const ScalingModel fit = fit_scaling(shown);
  EXPECT_NEAR(fit.a, truth.a, 1e-9);
  EXPECT_NEAR(fit.b, truth.b, 1e-9);
  EXPECT_NEAR(fit.c, truth.c, 1e-9);
}

TEST(Scaling, IsOptimisticWithFewCounts) {
  const std::vector<StepRate> one = {{4, 2}};
  EXPECT_NEAR(fit_scaling(one).rate(8), 4, 1e-9);
  const std::vector<StepRate> two = {{1, 1}, {4, 2}};
  EXPECT_NEAR(fit_scaling(two).rate(4), 2, 1e-9);
  EXPECT_EQ(fit_scaling(two).c, 0);
  const std::vector<StepRate> with_gap = {{1, 1}, {2, 0}, {4, 2}};
  EXPECT_NEAR(fit_scaling(with_gap).rate(4), 2, 1e-9) << "where it cannot run says nothing";
}

}  // namespace
}  // namespace rubato::model
