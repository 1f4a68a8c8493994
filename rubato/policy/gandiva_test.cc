#include "rubato/policy/gandiva.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <vector>

#include "rubato/policy/testing.h"

namespace rubato::policy {
namespace {

using testing::make_policy;
using testing::rates;
using testing::World;

TEST(Gandiva, JobsTakeTurnsOfAQuantum) {
  const auto policy = make_policy("gandiva");
  World world("1x1");
  for (int i = 0; i < 3; ++i) world.submit({.work = 1000});
  EXPECT_EQ(world.decide(*policy), "0x1");
  EXPECT_EQ(world.last().again_at, time_at(60));
  EXPECT_EQ(world.pass(30).decide(*policy), "0x1") << "not before the quantum is over";
  for (const auto* turn : {"1x1", "2x1", "0x1", "1x1"}) {
    EXPECT_EQ(world.pass(seconds(*world.last().again_at - world.now())).decide(*policy), turn);
  }
}

TEST(Gandiva, AQuantumIsLongerByTheRestart) {
  const auto policy = make_policy("gandiva");
  World world("1x1");
  world.submit({.work = 1000, .restart_s = 20});
  world.submit({.work = 1000, .restart_s = 20});
  world.decide(*policy);
  EXPECT_EQ(world.last().again_at, time_at(80));
}

TEST(Gandiva, ALargeGangHasItsTurnToo) {
  const auto policy = make_policy("gandiva");
  World world("1x2");
  world.submit({.gpus = 1, .work = 1000});
  world.submit({.gpus = 1, .work = 1000});
  world.submit({.gpus = 2, .work = 1000});
  EXPECT_EQ(world.decide(*policy), "0x1 1x1");
  EXPECT_EQ(world.pass(60).decide(*policy), "2x2");
  EXPECT_EQ(world.pass(60).decide(*policy), "0x1 1x1");
}

TEST(Gandiva, NobodyIsDisturbedWhileNobodyWaits) {
  const auto policy = make_policy("gandiva");
  World world("1x2");
  world.submit({.work = 1000});
  world.submit({.work = 1000});
  EXPECT_EQ(world.decide(*policy), "0x1 1x1");
  EXPECT_EQ(world.last().again_at, std::nullopt);
}

const std::vector<CurvePoint> kPerfect = rates({1, 2, 3, 4});

TEST(Gandiva, GrowsOnIdleGpusAndShrinksOnDemand) {
  const auto policy = make_policy("gandiva");
  World world("1x4");
  world.submit({.gpus = 1, .work = 1000, .curve = kPerfect});
  EXPECT_EQ(world.decide(*policy), "0x4");
  world.submit({.gpus = 2, .work = 1000});
  EXPECT_EQ(world.pass(5).decide(*policy), "0x2 1x2");
  world.submit({.gpus = 1, .work = 1000});
  EXPECT_EQ(world.pass(5).decide(*policy), "0x1 1x2 2x1");
  EXPECT_EQ(make_policy("gandiva:grow=off")->decide(world.snapshot())->run.size(), 3U);
}

TEST(Gandiva, AGrowthThatMeasuresNoGainIsUndoneForGood) {
  const auto policy = make_policy("gandiva");
  World world("1x2");
  const JobId job = world.submit({.gpus = 1, .work = 1000, .curve = rates({1, 2})});
  EXPECT_EQ(world.decide(*policy), "0x2");
  EXPECT_EQ(world.last().again_at, time_at(10)) << "when it has been measured";
  world.job(job).progress.rate = 0.9;  // the estimate said 2
  EXPECT_EQ(world.pass(10).decide(*policy), "0x1");
  EXPECT_EQ(world.pass(10).decide(*policy), "0x1");
}

TEST(Gandiva, AGrowthMustPayItsRestart) {
  const auto policy = make_policy("gandiva");
  World world("1x2");
  world.submit({.gpus = 1, .work = 1e6, .restart_s = 590, .curve = rates({1, 2})});
  EXPECT_EQ(world.decide(*policy), "0x1") << "half of the speed in 600 s against 590 s";
}

TEST(Gandiva, AJobSpreadOverNodesMovesWhenItMeasurablySuffers) {
  for (const double measured : {1.0, 2.0}) {
    const auto policy = make_policy("gandiva:grow=off");
    World world("2x2");
    const JobId id = world.submit({.gpus = 2, .work = 1000, .curve = rates({1, 2}), .network = 2});
    world.decide(*policy);
    JobView& job = world.job(id);
    job.held = Allocation();
    job.held.add({NodeId(0), 1});
    job.held.add({NodeId(1), 1});
    job.target = job.held;
    job.progress.rate = measured;
    const auto decision = policy->decide(world.snapshot());
    ASSERT_TRUE(decision.ok() && validate(*decision, world.snapshot()).ok());
    ASSERT_EQ(decision->run.size(), 1U);
    const auto* exact = std::get_if<Exact>(&decision->run[0].want);
    if (measured == 2.0) {
      EXPECT_EQ(exact, nullptr) << "as fast as it can be";
    } else {
      ASSERT_NE(exact, nullptr);
      EXPECT_EQ(exact->gpus.nodes(), 1);
      EXPECT_FALSE(exact->gpus.mask_on(NodeId(0)) == 0) << "keeps the GPU it has there";
    }
  }
}

// --- live pairs ---

// Two live jobs on one GPU, whose progress is set by hand.
class LivePair : public ::testing::Test {
 protected:
  LivePair() {
    for (const bool first : {true, false}) {
      auto job = testing::Draft{.work = 1e6}.job();
      auto spec = std::make_shared<JobSpec>(*job.spec);
      spec->tries_pairs = true;
      job.spec = spec;
      (first ? a_ : b_) = world_.submit_job(job);
    }
  }
  // The decision is carried out at once, and the jobs train at these speeds.
  Decision decide(double alone, double together) {
    Decision decision = policy_.decide(world_.snapshot(), state_);
    EXPECT_TRUE(validate(decision, world_.snapshot()).ok());
    const bool pair = decision.run.size() == 2;
    for (const JobId id : {a_, b_}) {
      JobView& job = world_.job(id);
      const bool ran = !job.held.empty();
      job.target = job.held = Allocation();
      job.shares_with.reset();
      for (const Grant& grant : decision.run) {
        if (grant.job == id) job.target = job.held = one_gpu();
      }
      if (job.held.empty()) continue;
      if (pair) job.shares_with = id == a_ ? b_ : a_;
      if (!ran) job.generation = job.generation.next();
      job.phase = Phase::running;
      job.progress = {1e6, ran ? job.progress.at : world_.now(), pair ? together : alone};
    }
    return decision;
  }
  // Asks as often as the policy wishes, for so long. Returns how long the two were together.
  double live(double seconds_in_all, double alone, double together) {
    double shared = 0;
    const Time end = world_.now() + from_seconds(seconds_in_all);
    while (world_.now() < end) {
      const Decision decision = decide(alone, together);
      const Time next = std::min(end, decision.again_at.value_or(end));
      const double passed = seconds(next - world_.now());
      if (decision.run.size() == 2) shared += passed;
      world_.pass(passed);
    }
    return shared;
  }
  [[nodiscard]] static Allocation one_gpu() {
    Allocation gpus{GpuType()};
    gpus.add({NodeId(0), 1});
    return gpus;
  }

  World world_{"1x1"};
  Gandiva policy_;
  Gandiva::State state_;
  JobId a_, b_;
};

TEST_F(LivePair, IsTriedWhenBothWereMeasuredAloneAndStaysIfItPaysOff) {
  EXPECT_EQ(live(60, 1, 0.8), 0) << "the second had no turn alone yet";
  live(110, 1, 0.8);
  EXPECT_NEAR(live(300, 1, 0.8), 300, 1e-6);
}

TEST_F(LivePair, IsSeparatedAfterItsTrialIfItDoesNotPayOffAndNotTriedAgain) {
  live(170, 1, 0.4);
  EXPECT_GT(state_.tried.size(), 0U);
  EXPECT_EQ(live(600, 1, 0.4), 0);
}

TEST_F(LivePair, WhatItKnowsIsSaved) {
  live(100, 1, 0.8);
  EXPECT_FALSE(state_.settled.empty());
  const Json saved = state_.save();
  EXPECT_EQ(Gandiva::State::load(saved)->save(), saved);
}

}  // namespace
}  // namespace rubato::policy
