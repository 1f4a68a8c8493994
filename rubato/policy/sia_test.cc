#include "rubato/policy/sia.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <gtest/gtest.h>
#include <memory>
#include <optional>
#include <rapidcheck/gtest.h>
#include <string>
#include <utility>
#include <vector>

#include "rubato/base/random.h"
#include "rubato/core/testing.h"
#include "rubato/model/curve.h"
#include "rubato/model/goodput_estimate.h"
#include "rubato/model/typed_speed.h"

namespace rubato::policy {
namespace {

const BatchLimits kSiaLimits{128, 4096, 32, 1024, true};
const StepTime kSiaTime{0.03, 0.0004, 0.01, 0.001, 0.05, 0.002, 1.5};
const GradientNoise kSiaNoise{1, 5};

class SiaTest : public ::testing::Test {
 protected:
  explicit SiaTest(std::string_view cluster = "4x4") { snapshot_.cluster = cluster_of(cluster); }

  JobView& add(std::shared_ptr<const SpeedModel> speed, GpuLimits limits = {1, 64, {}},
               double restart_s = 30) {
    auto spec = elastic_spec(limits.min, limits.max);
    spec->limits = std::move(limits);
    spec->restart_cost = from_seconds(restart_s);
    spec->batch = 128;
    spec->adaptive_batch = true;
    JobView job = job_view(job_id(jobs_++), spec);
    job.speed = std::move(speed);
    return snapshot_.jobs.insert(std::move(job));
  }
  // Speeds on 1, 2, 4, ... GPUs.
  JobView& add_curve(const std::vector<double>& rates, double restart_s = 0) {
    std::vector<CurvePoint> points;
    int gpus = 1;
    for (const double rate : rates) points.push_back({std::exchange(gpus, 2 * gpus), rate});
    return add(std::make_shared<CurveSpeed>(points, 0), {1, points.back().gpus, {}}, restart_s);
  }
  JobView& add_seen(int most_gpus, std::vector<GoodputEstimate::OnType> types = {}) {
    return add(std::make_shared<GoodputEstimate>(
        kSiaLimits, std::nullopt, GoodputEstimate::Seen{kSiaTime, kSiaNoise, most_gpus},
        std::move(types)));
  }
  static void run_on(JobView& job, const Allocation& gpus) {
    job.target = job.held = gpus;
    job.first_start = job.submitted;
  }
  Decision decide(double s) {
    snapshot_.now = time_at(s);
    Decision decision = sia_.decide(snapshot_, state_);
    const auto valid = validate(decision, snapshot_);
    EXPECT_TRUE(valid.ok()) << valid.error().message;
    return decision;
  }
  // "4b/1": 4 GPUs of type b on one node; "-": none.
  std::string of(const Decision& decision, std::size_t job) const {
    for (const auto& grant : decision.run) {
      if (grant.job != job_id(job)) continue;
      if (const auto* exact = std::get_if<Exact>(&grant.want)) {
        return std::to_string(exact->gpus.gpus()) +
               snapshot_.cluster.type_name(exact->gpus.type()) + "/" +
               std::to_string(exact->gpus.nodes());
      }
      const auto& spread = std::get<Spread>(grant.want).gpus;
      return std::to_string(gpus_of(grant.want)) +
             snapshot_.cluster.type_name(snapshot_.cluster.node(spread.front().first).type) + "/" +
             std::to_string(spread.size());
    }
    return "-";
  }

  Snapshot snapshot_;
  std::size_t jobs_ = 0;
  Sia sia_;
  Sia::State state_;
};

// The example of the paper: X is one node with 2 GPUs, Y one with 4.
class SiaExample : public SiaTest {
 protected:
  SiaExample() : SiaTest("1x2:X,1x4:Y") {
    auto table = std::make_shared<ThroughputTable>(2, 2);
    const double rates[2][5] = {{1, 1.5, 1.5, 2.5, 3.5}, {1.2, 2.1, 1, 1.9, 3.6}};
    for (std::size_t row = 0; row < 2; ++row) {
      table->set_alone(row, GpuType(0), 1, rates[row][0]);
      table->set_alone(row, GpuType(0), 2, rates[row][1]);
      table->set_alone(row, GpuType(1), 1, rates[row][2]);
      table->set_alone(row, GpuType(1), 2, rates[row][3]);
      table->set_alone(row, GpuType(1), 4, rates[row][4]);
      add(std::make_shared<TypedSpeed>(table, row), {1, 4, {}}, 0);
    }
  }
};

TEST_F(SiaExample, TheSumOfGoodputsOfThePapersTable) {
  sia_.config.p = 1;
  const Decision decision = decide(0);
  EXPECT_EQ(of(decision, 0), "4Y/1");
  EXPECT_EQ(of(decision, 1), "2X/1");
}

TEST_F(SiaTest, HalfEachWhereScalingDiffersALittle) {
  snapshot_.cluster = cluster_of("1x4");
  add_curve({1, 1.9, 3.6});
  add_curve({1, 1.4, 1.6});
  const Decision decision = decide(0);
  EXPECT_EQ(of(decision, 0), "2gpu/1");
  EXPECT_EQ(of(decision, 1), "2gpu/1");
}

TEST_F(SiaTest, AJobThatNeverRanStartsOnItsFewestGpus) {
  add(std::make_shared<GoodputEstimate>(kSiaLimits, std::nullopt));
  add(std::make_shared<GoodputEstimate>(kSiaLimits, std::nullopt), {2, 8, {}});
  const Decision decision = decide(600);
  EXPECT_EQ(of(decision, 0), "1gpu/1");
  EXPECT_EQ(of(decision, 1), "2gpu/1");
  EXPECT_EQ(decision.run[0].batch, (Batch{128, 0}));
  EXPECT_EQ(decision.again_at, time_at(660));
}

TEST_F(SiaTest, AJobGrowsToTwiceWhatItHasRunOn) {
  run_on(add_seen(2), gpus_on({{0, 0b11}}));
  EXPECT_EQ(of(decide(6000), 0), "4gpu/1");
}

TEST_F(SiaTest, BeyondANodeThereAreOnlyWholeNodes) {
  add_curve({1, 2, 4, 8, 16});
  add_curve({1, 1, 1, 1, 1});
  const Decision decision = decide(0);
  EXPECT_EQ(of(decision, 0), "12gpu/3") << "not 15";
  EXPECT_EQ(of(decision, 1), "1gpu/1");
}

TEST_F(SiaTest, BetweenRoundsNothingChanges) {
  run_on(add_seen(2), gpus_on({{0, 0b11}}));
  const Decision first = decide(6000);
  EXPECT_EQ(of(first, 0), "4gpu/1");
  add_seen(1);
  const Decision between = decide(6030);
  EXPECT_EQ(of(between, 0), "2gpu/1") << "as it was told to have";
  EXPECT_EQ(of(between, 1), "-");
  EXPECT_EQ(between.again_at, time_at(6060));
}

TEST_F(SiaTest, AJobThatRestartsKeepsItsConfiguration) {
  JobView& job = add_seen(4);
  run_on(job, gpus_on({{0, 0b11}}));
  job.progress.at = time_at(6010);
  EXPECT_EQ(of(decide(6000), 0), "2gpu/1");
  EXPECT_EQ(of(decide(6060), 0), "8gpu/2") << "when it has restarted";
}

TEST_F(SiaTest, AJobThatHasRestartedOftenStays) {
  run_on(add_curve({1, 1.1}, 30), gpus_on({{0, 0b1}}));
  state_.restarts[job_id(0)] = 10;
  EXPECT_EQ(of(decide(600), 0), "1gpu/1") << "half of its life was lost by restarts";
  state_.restarts[job_id(0)] = 0;
  EXPECT_EQ(of(decide(60'000), 0), "2gpu/1") << "a second of 10% more pays for 30 s in its life";
  EXPECT_EQ(state_.restarts[job_id(0)], 1);
}

TEST_F(SiaTest, AJobWithoutGpusHasNothingToLose) {
  JobView& job = add_curve({1, 1.1}, 30);
  job.first_start = job.submitted;
  state_.restarts[job_id(0)] = 1000;
  EXPECT_NE(of(decide(600), 0), "-");
}

TEST_F(SiaTest, PartsOfANodeAreNotSplitEvenIfOthersMustMove) {
  for (unsigned node = 0; node < 4; ++node) run_on(add_curve({1}), gpus_on({{node, 0b1}}));
  add(std::make_shared<CurveSpeed>(std::vector<CurvePoint>{{4, 4}}, 0), {4, 4, {}}, 0);
  const Decision decision = decide(6000);
  EXPECT_EQ(of(decision, 4), "4gpu/1");
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(of(decision, i), "1gpu/1");
  int moved = 0;
  for (const auto& [job, restarts] : state_.restarts) moved += restarts;
  EXPECT_EQ(moved, 1);
}

TEST_F(SiaTest, RigidCountsThatAreNoConfigurationRunAsWell) {
  add(std::make_shared<ConstantSpeed>(1), {6, 6, {}});
  add(std::make_shared<ConstantSpeed>(1), {3, 3, {}});
  const Decision decision = decide(0);
  EXPECT_EQ(of(decision, 0), "6gpu/2");
  EXPECT_EQ(of(decision, 1), "3gpu/1");
}

TEST_F(SiaTest, NodesOfDifferentSizesDoNotStarveAJob) {
  snapshot_.cluster = cluster_of("1x8,2x4");
  add(std::make_shared<ConstantSpeed>(1), {16, 16, {}});
  EXPECT_EQ(of(decide(0), 0), "16gpu/3");
}

class SiaTypes : public SiaTest {
 protected:
  SiaTypes() : SiaTest("1x4:slow,1x4:fast") {}
};

TEST_F(SiaTypes, ANewJobTakesTheFasterTypeByItsSpeedOnOneGpu) {
  add(std::make_shared<GoodputEstimate>(
      kSiaLimits, std::nullopt, std::nullopt,
      std::vector<GoodputEstimate::OnType>{{1, {}, 0}, {2, {}, 0}}));
  EXPECT_EQ(of(decide(0), 0), "1fast/1");
}

TEST_F(SiaTypes, AJobMovesToATypeThatItNeverSaw) {
  run_on(add_seen(4, {{1, kSiaTime, 4}, {2, {}, 0}}), gpus_on({{0, 0b1111}}));
  EXPECT_EQ(of(decide(60'000), 0), "4fast/1");
}

TEST_F(SiaTypes, WhatWasMeasuredCountsMoreThanWhatWasGuessed) {
  run_on(add_seen(4, {{1, kSiaTime, 4}, {2, kSiaTime.slowed_by(3), 4}}), gpus_on({{0, 0b1111}}));
  EXPECT_EQ(of(decide(60'000), 0), "4slow/1");
}

TEST_F(SiaTest, TheStateIsSavedAndLoaded) {
  state_.next_round = time_at(61);
  state_.restarts = {{job_id(3), 7}, {job_id(9), 1}};
  const auto loaded = Sia::State::load(state_.save());
  ASSERT_TRUE(loaded.ok());
  EXPECT_EQ(loaded->next_round, state_.next_round);
  EXPECT_EQ(loaded->restarts, state_.restarts);
  for (const char* wrong : {"{}", "[]", R"({"restarts":[[1]]})", R"({"restarts":[[1,-1]]})",
                            R"({"restarts":[],"next_round_us":"x"})"}) {
    EXPECT_FALSE(Sia::State::load(Json::parse(wrong)).ok()) << wrong;
  }
}

// The objective of the decision, found by trying all combinations of configurations.
RC_GTEST_PROP(Sia, TheObjectiveIsTheBestOfAllCombinations, ()) {
  Random random(*rc::gen::arbitrary<std::uint64_t>());
  Snapshot snapshot;
  snapshot.cluster = cluster_of("1x2:a,2x4:b");
  auto table = std::make_shared<ThroughputTable>(4, 2);
  const int counts[2][4] = {{1, 2, 0, 0}, {1, 2, 4, 8}};
  const auto jobs = 1 + random.below(4);
  for (std::size_t row = 0; row < jobs; ++row) {
    for (std::size_t t = 0; t < 2; ++t) {
      double rate = random.uniform(0.5, 2);
      for (const int gpus : counts[t]) {
        if (gpus > 0) table->set_alone(row, type_at(t), gpus, rate);
        rate *= random.uniform(1, 2);
      }
    }
    auto spec = elastic_spec(1, 8);
    JobView job = job_view(job_id(row), spec);
    job.speed = std::make_shared<TypedSpeed>(table, row);
    snapshot.jobs.insert(std::move(job));
  }
  Sia::State state;
  const Sia sia;
  const Decision decision = sia.decide(snapshot, state);
  RC_ASSERT(validate(decision, snapshot).ok());

  const auto cost = [&](std::size_t row, std::size_t type, int gpus) {
    double least = 1e9;
    for (std::size_t t = 0; t < 2; ++t) {
      for (const int k : counts[t])
        if (k > 0) least = std::min(least, table->alone(row, type_at(t), k));
    }
    return std::pow(table->alone(row, type_at(type), gpus) / least, -0.5);
  };
  const std::function<double(std::size_t, int, int)> best = [&](std::size_t row, int a, int b) {
    if (row == jobs) return 0.0;
    double least = 1.1 + best(row + 1, a, b);
    for (const int k : counts[0])
      if (k > 0 && k <= a) least = std::min(least, cost(row, 0, k) + best(row + 1, a - k, b));
    for (const int k : counts[1])
      if (k <= b) least = std::min(least, cost(row, 1, k) + best(row + 1, a, b - k));
    return least;
  };
  double reached = 1.1 * static_cast<double>(jobs - decision.run.size());
  for (const Grant& grant : decision.run) {
    const auto& spread = std::get<Spread>(grant.want).gpus;
    reached += cost(grant.job.index(), snapshot.cluster.node(spread.front().first).type.index(),
                    gpus_of(grant.want));
  }
  RC_ASSERT(std::abs(reached - best(0, 2, 8)) <= 1e-6);
}

}  // namespace
}  // namespace rubato::policy
