#include "rubato/model/goodput_estimate.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "rubato/model/fit.h"
#include "rubato/model/testing.h"

namespace rubato::model {
namespace {

const BatchLimits kLimits{128, 4096, 32, 1024, true};
const StepTime kTime{0.03, 0.0004, 0.01, 0.001, 0.05, 0.002, 1.5};

Shape shape(int nodes, int gpus) { return {GpuType(), gpus, nodes, 1}; }

TEST(GoodputEstimate, BeforeTheFirstMeasurementAllScalesPerfectly) {
  const GoodputEstimate unknown(kLimits, std::nullopt);
  EXPECT_FALSE(unknown.seen().has_value());
  EXPECT_EQ(unknown.rate(shape(1, 1)), 1);
  EXPECT_EQ(unknown.rate(shape(3, 12)), 12);
  EXPECT_EQ(unknown.batch_at({1, 1}), (Batch{128, 0})) << "the initial batch";
  EXPECT_EQ(unknown.batch_at({2, 8}), (Batch{32, 0})) << "as much as fills the GPUs";
}

TEST(GoodputEstimate, RatesAreGoodputInStepsAtTheInitialBatch) {
  const GoodputEstimate known(kLimits, std::nullopt, GoodputEstimate::Seen{kTime, {1, 5}, 4});
  const auto best = known.goodput().best({2, 8});
  ASSERT_TRUE(best.has_value());
  EXPECT_DOUBLE_EQ(known.rate(shape(2, 8)), best->goodput / 128);
  EXPECT_EQ(known.batch_at({2, 8}), best->batch);
  EXPECT_EQ(known.seen()->most_gpus, 4);
}

TEST(GoodputEstimate, AnOwnersBatchIsKept) {
  const GoodputEstimate known(kLimits, 512, GoodputEstimate::Seen{kTime, {1, 5}, 4});
  EXPECT_EQ(known.batch_at({1, 4}), (Batch{128, 0}));
  EXPECT_DOUBLE_EQ(known.rate(shape(1, 4)), known.goodput().at({1, 4}, {128, 0}) / 128);
  EXPECT_EQ(known.batch_at({8, 32}), std::nullopt) << "16 samples a GPU are too few";
  EXPECT_EQ(known.rate(shape(8, 32)), 0);
}

TEST(GoodputEstimate, ATypeThatWasNotSeenIsScaledFromTheOneSeenOnMostGpus) {
  const StepTime other = kTime.slowed_by(2);
  const GoodputEstimate known(kLimits, 512, GoodputEstimate::Seen{kTime, {1, 5}, 4},
                              {{1, kTime, 1}, {3, other, 4}, {6, {}, 0}});
  const Batch batch{128, 0};
  const auto seconds = [&](std::size_t type) {
    return known.goodput(type_at(type)).time.iteration({2, 8}, batch);
  };
  EXPECT_DOUBLE_EQ(seconds(0), kTime.iteration({2, 8}, batch)) << "measured there";
  EXPECT_DOUBLE_EQ(seconds(1), other.iteration({2, 8}, batch));
  EXPECT_NEAR(seconds(2), other.iteration({2, 8}, batch) * 3 / 6, 1e-12);
  EXPECT_DOUBLE_EQ(seconds(3), kTime.iteration({2, 8}, batch)) << "a type without a part";
  EXPECT_NEAR(known.rate({type_at(2), 8, 2, 2}), 2 * known.rate({type_at(1), 8, 2, 2}), 1e-9);
}

// If only one GPU and one batch were measured, the model returns that measurement.
RC_GTEST_PROP(GoodputEstimate, OnOneGpuAtTheInitialBatchGoodputIsTheMeasuredRate, ()) {
  Random random(*rc::gen::arbitrary<std::uint64_t>());
  const StepTime truth = random_step_time(random);
  const int per_gpu = static_cast<int>(random.log_uniform(1, 1000));
  const double step = truth.iteration({1, 1}, {per_gpu, 0});
  const std::vector<StepMeasurement> seen{{{1, 1}, {per_gpu, 0}, step, step}};
  const auto fitted = fit_step_time(seen);
  RC_ASSERT(fitted.ok());
  const BatchLimits limits{per_gpu, per_gpu, 1, per_gpu, true};
  const GradientNoise noise{random.log_uniform(1e-6, 1e6), random.log_uniform(1e-6, 1e6)};
  const GoodputEstimate known(limits, std::nullopt, GoodputEstimate::Seen{*fitted, noise, 1});
  const double rate = known.rate({GpuType(), 1, 1, 1});
  RC_ASSERT(std::abs(rate * step - 1) < 0.01);
}

// No placement makes a job learn faster per sample than one sample is worth.
RC_GTEST_PROP(GoodputEstimate, GoodputIsNeverAboveThroughputAndSpeedupOverItselfIsOne, ()) {
  Random random(*rc::gen::arbitrary<std::uint64_t>());
  const Goodput goodput = random_goodput(random);
  const Footprint place = random_place(random, 64);
  const auto best = goodput.best(place);
  GoodputTable table(goodput, 64);
  if (!best) {
    RC_ASSERT(table.at(place) == 0);
    return;
  }
  const double throughput = goodput.time.throughput(place, best->batch);
  RC_ASSERT(best->goodput <= throughput * (1 + 1e-9));
  RC_ASSERT(best->goodput > 0);
  RC_ASSERT(table.speedup(place, place) == 1.0);
}

}  // namespace
}  // namespace rubato::model
