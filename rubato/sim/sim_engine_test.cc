#include "rubato/sim/sim_engine.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <memory>
#include <optional>
#include <vector>

#include "rubato/sim/testing.h"
#include "rubato/sim/testing_profiles.h"

namespace rubato::sim {
namespace {

class SimEngineTest : public ::testing::Test {
 protected:
  // Carries out one command and drops the facts.
  void tell(double s, const Command& command) {
    engine_.carry_out(time_at(s), std::vector<Command>{command});
    facts_.clear();
    engine_.collect(time_at(s), facts_);
  }
  Progress progress() const { return std::get<Running>(facts_.back()).progress; }

  Workload workload_ = workload_of(
      {elastic_job(0, 100, {{1, 1}, {2, 1.5}, {4, 2}, {8, 3}}, 2, 1), rigid_job(0, 2, 10)});
  Cluster cluster_ = cluster_of("4x4");
  SimEngine engine_{workload_, cluster_, false};
  std::vector<Event> facts_;
};

TEST_F(SimEngineTest, ProgressCountsFromTheEndOfTheRestart) {
  tell(10, Start{job_id(0), Generation(1), gpus_on({{0, 0b1}})});
  EXPECT_EQ(progress().at, time_at(12));
  EXPECT_EQ(progress().work_left, 100);
  EXPECT_EQ(progress().rate, 1);
  EXPECT_EQ(engine_.next_fact(), time_at(112));
}

TEST_F(SimEngineTest, WorkDoneIsKeptWhenTheGpusChange) {
  tell(0, Start{job_id(0), Generation(1), gpus_on({{0, 0b1}})});
  tell(42, Resize{job_id(0), Generation(2), gpus_on({{0, 0b1111}})});
  EXPECT_EQ(progress().work_left, 60);
  EXPECT_EQ(engine_.next_fact(), time_at(42 + 2 + 30));
  tell(54, Stop{job_id(0), Generation(3)});
  EXPECT_EQ(std::get<Released>(facts_.back()).progress.work_left, 40);
  EXPECT_EQ(engine_.next_fact(), std::nullopt);
  EXPECT_EQ(engine_.rate(job_id(0)), 0);
  tell(100, Start{job_id(0), Generation(4), gpus_on({{1, 0b11}})});
  EXPECT_EQ(engine_.next_fact(), time_at(102) + from_seconds(40 / 1.5));
}

TEST_F(SimEngineTest, ASecondChangeDuringARestartChargesOnlyFromThere) {
  tell(0, Start{job_id(0), Generation(1), gpus_on({{0, 0b1}})});
  tell(1, Resize{job_id(0), Generation(2), gpus_on({{0, 0b11}})});
  EXPECT_EQ(progress().work_left, 100);
  EXPECT_EQ(progress().at, time_at(3));
  tell(1, Resize{job_id(0), Generation(3), gpus_on({{0, 0b111}})});
  EXPECT_EQ(progress().at, time_at(3)) << "two steps at one instant are one restart";
}

TEST_F(SimEngineTest, ACountOnWhichAJobCannotRunMakesNoProgress) {
  tell(0, Start{job_id(0), Generation(1), gpus_on({{0, 0b1111}, {1, 0b1111}, {2, 0b1}})});
  EXPECT_EQ(engine_.rate(job_id(0)), 0);
  EXPECT_EQ(engine_.next_fact(), std::nullopt);
  tell(50, Resize{job_id(0), Generation(2), gpus_on({{0, 0b1}})});
  EXPECT_EQ(engine_.next_fact(), time_at(152));
}

TEST_F(SimEngineTest, TopologySlowsAJobOnMoreNodesThanItNeeds) {
  SimEngine engine(workload_, cluster_, true);
  const auto rate_on = [&](unsigned generation, const Allocation& gpus) {
    engine.carry_out(kStart, std::vector<Command>{Resize{job_id(0), Generation(generation), gpus}});
    return engine.rate(job_id(0));
  };
  engine.carry_out(kStart,
                   std::vector<Command>{Start{job_id(0), Generation(1), gpus_on({{3, 1}})}});
  EXPECT_EQ(rate_on(2, gpus_on({{0, 0b1111}})), 2);
  EXPECT_DOUBLE_EQ(rate_on(3, gpus_on({{0, 0b11}, {1, 0b11}})), 2 / 1.5);
  EXPECT_DOUBLE_EQ(rate_on(4, gpus_on({{0, 1}, {1, 1}, {2, 1}, {3, 1}})), 2 / 1.75);
  EXPECT_EQ(rate_on(5, gpus_on({{0, 0b1111}, {1, 0b1111}})), 3) << "two nodes are needed";
}

TEST_F(SimEngineTest, AFailureLosesNothingButTheTimeToRestart) {
  tell(0, Start{job_id(0), Generation(1), gpus_on({{0, 0b1}})});
  facts_.clear();
  engine_.change_node(time_at(32), node_id(0), NodeState::down);
  engine_.collect(time_at(32), facts_);
  ASSERT_EQ(facts_.size(), 2U);
  EXPECT_EQ(std::get<NodeChanged>(facts_[0]).state, NodeState::down) << "the node first";
  EXPECT_EQ(std::get<Failed>(facts_[1]).progress.work_left, 70);
  EXPECT_EQ(engine_.next_fact(), std::nullopt);
  facts_.clear();
  engine_.change_node(time_at(40), node_id(0), NodeState::up);
  engine_.collect(time_at(40), facts_);
  ASSERT_EQ(facts_.size(), 1U);
  tell(40, Start{job_id(0), Generation(2), gpus_on({{0, 0b1}})});
  EXPECT_EQ(engine_.next_fact(), time_at(112));
}

TEST_F(SimEngineTest, EndsAtOneInstantComeInTheOrderOfTheJobs) {
  tell(0, Start{job_id(1), Generation(1), gpus_on({{1, 0b11}})});
  tell(0, Start{job_id(0), Generation(1), gpus_on({{0, 0b1}})});
  facts_.clear();
  engine_.collect(time_at(9.999999), facts_);
  EXPECT_TRUE(facts_.empty());
  engine_.collect(time_at(500), facts_);
  ASSERT_EQ(facts_.size(), 2U);
  EXPECT_EQ(std::get<Finished>(facts_[0]).job, job_id(1)) << "the earlier end first";
  EXPECT_EQ(std::get<Finished>(facts_[1]).job, job_id(0));
}

// ---- jobs with a profile: 200 steps at batch 10 in two epochs ----

class TrainingTest : public ::testing::Test {
 protected:
  std::vector<Event> tell(double s, const Command& command) {
    engine_.carry_out(time_at(s), std::vector<Command>{command});
    return facts_at(s);
  }
  std::vector<Event> facts_at(double s) {
    std::vector<Event> facts;
    engine_.collect(time_at(s), facts);
    return facts;
  }
  double next() const { return seconds(*engine_.next_fact()); }
  const GoodputEstimate& estimate(std::size_t job) {
    seen_ = engine_.estimate(job_id(job));
    return dynamic_cast<const GoodputEstimate&>(*seen_);
  }

  Workload workload_ = workload_of({profiled_job(std::nullopt), profiled_job(40)});
  Cluster cluster_ = cluster_of("4x4");
  SimEngine engine_{workload_, cluster_, false, std::make_shared<FixedLoss>(0.25)};
  std::shared_ptr<const SpeedModel> seen_;
};

TEST_F(TrainingTest, AJobEndsByProgressFromEpochToEpoch) {
  tell(0, Start{job_id(0), Generation(1), gpus_on({{0, 1}}), Batch{10, 0}});
  EXPECT_EQ(next(), 30) << "the restart";
  EXPECT_FALSE(estimate(0).seen().has_value());
  auto facts = facts_at(30);
  ASSERT_EQ(facts.size(), 1U);
  EXPECT_TRUE(std::holds_alternative<Estimated>(facts[0]));
  EXPECT_EQ(estimate(0).seen()->most_gpus, 1);
  EXPECT_DOUBLE_EQ(next(), 30 + 90 * 0.2) << "the first epoch";
  facts = facts_at(48);
  ASSERT_EQ(facts.size(), 2U);
  EXPECT_EQ(std::get<Running>(facts[0]).progress.work_left, 110);
  EXPECT_DOUBLE_EQ(next(), 48 + 110 * 0.2);
  facts = facts_at(70);
  ASSERT_EQ(facts.size(), 1U);
  EXPECT_EQ(std::get<Finished>(facts[0]).job, job_id(0));
}

TEST_F(TrainingTest, AnotherBatchCostsNoRestartAndIsMeasured) {
  tell(0, Start{job_id(0), Generation(1), gpus_on({{0, 1}}), Batch{10, 0}});
  facts_at(30);
  const auto facts = tell(39, Resize{job_id(0), Generation(2), gpus_on({{0, 1}}), Batch{20, 1}});
  ASSERT_EQ(facts.size(), 2U);
  EXPECT_EQ(std::get<Running>(facts[0]).generation, Generation(2));
  EXPECT_EQ(std::get<Running>(facts[0]).progress.at, time_at(39));
  EXPECT_TRUE(std::holds_alternative<Estimated>(facts[1]));
  EXPECT_EQ(estimate(0).seen()->noise.var, 3) << "as at 40 samples";
  // 45 steps done; 40 samples in 0.8 s are worth 4/1.75 steps.
  EXPECT_NEAR(next(), 39 + 45 * 0.8 * 1.75 / 4, 1e-6);
}

TEST_F(TrainingTest, WithoutABatchInTheGrantTheOwnersIsSpread) {
  tell(0, Start{job_id(1), Generation(1), gpus_on({{0, 0b11}})});
  facts_at(30);
  EXPECT_EQ(estimate(1).owners_batch(), 40);
  EXPECT_DOUBLE_EQ(engine_.rate(job_id(1)), 4 / 1.75 / 0.5);
}

TEST_F(TrainingTest, AFixedBatchThatCannotBeSpreadTrainsNothing) {
  tell(0, Start{job_id(1), Generation(1), gpus_on({{0, 0b1111}, {1, 0b1}})});
  EXPECT_EQ(engine_.rate(job_id(1)), 0);
  EXPECT_EQ(engine_.next_fact(), std::nullopt);
}

TEST_F(TrainingTest, TwoJobsThatSpanNodesSlowEachOtherDown) {
  tell(0, Start{job_id(0), Generation(1), gpus_on({{0, 1}, {1, 1}}), Batch{10, 0}});
  facts_at(30);
  const double alone = engine_.rate(job_id(0));
  auto facts = tell(40, Start{job_id(1), Generation(1), gpus_on({{1, 0b10}, {2, 0b1}})});
  EXPECT_DOUBLE_EQ(engine_.rate(job_id(0)), 0.75 * alone);
  EXPECT_DOUBLE_EQ(engine_.rate(job_id(1)), 0.75 * 4 / 1.75 / 0.6);
  const auto slowed = std::find_if(facts.begin(), facts.end(), [](const Event& event) {
    const auto* running = std::get_if<Running>(&event);
    return running != nullptr && running->job == job_id(0);
  });
  ASSERT_NE(slowed, facts.end()) << "the scheduler hears of it";
  tell(41, Resize{job_id(1), Generation(2), gpus_on({{1, 0b110}})});
  EXPECT_DOUBLE_EQ(engine_.rate(job_id(0)), alone) << "a job on one node disturbs nobody";
}

TEST_F(TrainingTest, TheAgentKeepsTheFirstMeasurementOfEachKey) {
  SimAgent agent(*small_application(), std::nullopt);
  EXPECT_FALSE(agent.estimate()->seen().has_value());
  agent.observe({}, {1, 2}, {10, 0}, {0.3, 0.1}, {1, 1});
  const auto first = agent.estimate();
  EXPECT_NEAR(first->seen()->time.iteration({1, 2}, {10, 0}), 0.3, 0.003);
  agent.observe({}, {1, 2}, {10, 0}, {3, 1}, {1, 2});
  EXPECT_EQ(agent.estimate()->seen()->time.grad_fixed, first->seen()->time.grad_fixed);
  EXPECT_EQ(agent.estimate()->seen()->noise.var, 2);
  agent.observe({}, {2, 4}, {20, 0}, {0.9, 0.5}, {1, 2});
  EXPECT_EQ(agent.estimate()->seen()->most_gpus, 4);
  EXPECT_NEAR(agent.estimate()->seen()->time.iteration({2, 4}, {20, 0}), 0.9, 0.009);
}

TEST_F(TrainingTest, TheAgentFitsEachTypeOnItsOwn) {
  auto texts = small_application_texts();
  texts.type_speeds = {1, 2};
  SimAgent agent(*Application::parse(texts).value(), std::nullopt);
  EXPECT_EQ(agent.estimate()->rate({GpuType(1), 3, 1, 1}), 6) << "one GPU was tried in advance";
  agent.observe(GpuType(0), {1, 2}, {10, 0}, {0.3, 0.1}, {1, 1});
  const auto once = agent.estimate();
  EXPECT_NEAR(once->goodput(GpuType(0)).time.iteration({1, 2}, {10, 0}), 0.3, 0.003);
  EXPECT_NEAR(once->goodput(GpuType(1)).time.iteration({1, 2}, {10, 0}), 0.15, 0.0015)
      << "by the ratio of one GPU";
  agent.observe(GpuType(1), {1, 2}, {10, 0}, {0.2, 0.1}, {1, 1});
  const auto twice = agent.estimate();
  EXPECT_NEAR(twice->goodput(GpuType(0)).time.iteration({1, 2}, {10, 0}), 0.3, 0.003);
  EXPECT_NEAR(twice->goodput(GpuType(1)).time.iteration({1, 2}, {10, 0}), 0.2, 0.002);
  const double together = twice->goodput().time.iteration({1, 2}, {10, 0});
  EXPECT_GT(together, 0.2) << "who does not see types gets something in between";
  EXPECT_LT(together, 0.3);
}

TEST(SimEngineSharing, APairRunsAtItsOwnSpeedsAndWhoIsLeftAtItsOwn) {
  const auto table = pair_table();
  const Workload workload =
      workload_of({typed_job(0, 1000, table, 0), typed_job(0, 40, table, 1, 2)});
  const Cluster cluster = cluster_of("1x2");
  SimEngine engine(workload, cluster, false);
  const auto tell = [&](double s, const Command& command) {
    engine.carry_out(time_at(s), std::vector<Command>{command});
    std::vector<Event> facts;
    engine.collect(time_at(s), facts);
    return facts;
  };
  tell(0, Start{job_id(0), Generation(1), gpus_on({{0, 0b1}})});
  EXPECT_EQ(engine.rate(job_id(0)), 10);
  const auto joined = tell(10, Start{job_id(1), Generation(1), gpus_on({{0, 0b1}})});
  ASSERT_EQ(joined.size(), 2U);
  EXPECT_EQ(std::get<Running>(joined[0]).job, job_id(0)) << "it is told its new speed";
  EXPECT_EQ(std::get<Running>(joined[0]).generation, Generation(1));
  EXPECT_EQ(std::get<Running>(joined[0]).progress.work_left, 900);
  EXPECT_EQ(std::get<Running>(joined[0]).progress.rate, 8);
  EXPECT_EQ(std::get<Running>(joined[1]).progress.rate, 3);
  EXPECT_EQ(engine.next_fact(), time_at(12) + from_seconds(40 / 3.0));

  std::vector<Event> facts;
  const Time end = *engine.next_fact();
  engine.collect(end, facts);
  ASSERT_EQ(facts.size(), 2U);
  EXPECT_EQ(std::get<Finished>(facts[0]).job, job_id(1));
  EXPECT_EQ(std::get<Running>(facts[1]).progress.rate, 10) << "alone again";
  EXPECT_NEAR(std::get<Running>(facts[1]).progress.work_left, 900 - 8 * (seconds(end) - 10), 1e-9);
}

TEST(SimEngineSharing, MovingAwayEndsThePair) {
  const auto table = pair_table();
  const Workload workload =
      workload_of({typed_job(0, 1000, table, 0), typed_job(0, 1000, table, 0)});
  const Cluster cluster = cluster_of("2x2");
  SimEngine engine(workload, cluster, false);
  const auto tell = [&](double s, const Command& command) {
    engine.carry_out(time_at(s), std::vector<Command>{command});
  };
  tell(0, Start{job_id(0), Generation(1), gpus_on({{0, 0b1}})});
  tell(0, Start{job_id(1), Generation(1), gpus_on({{0, 0b1}})});
  EXPECT_EQ(engine.rate(job_id(0)), 5);
  tell(5, Resize{job_id(1), Generation(2), gpus_on({{1, 0b1}})});
  EXPECT_EQ(engine.rate(job_id(0)), 10);
  EXPECT_EQ(engine.rate(job_id(1)), 10);
  tell(6, Resize{job_id(0), Generation(2), gpus_on({{1, 0b1}})});
  EXPECT_EQ(engine.rate(job_id(1)), 5);
  engine.change_node(time_at(7), node_id(1), NodeState::down);
  EXPECT_EQ(engine.rate(job_id(0)), 0);
  EXPECT_EQ(engine.rate(job_id(1)), 0);
  EXPECT_EQ(engine.next_fact(), std::nullopt);
}

}  // namespace
}  // namespace rubato::sim
