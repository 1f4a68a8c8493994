// The contract of an Engine, as tests that every engine must pass:
//
//   struct SimHarness { ... };
//   INSTANTIATE_TYPED_TEST_SUITE_P(Sim, EngineContract, SimHarness);
//
// A harness owns an engine over two nodes of four GPUs and three jobs, each able to use 1 to 4 GPUs
// and with work for much longer than the test. It offers
//
//   facts carry_out(commands)   all facts that follow from the commands alone
//   facts finish(job)           lets the job finish; all facts that follow
//   facts break_node(node)      the node dies, with everything on it
//   void break_unnoticed(node)  the same, but the facts are not collected before the next call
#pragma once

#include <gtest/gtest.h>
#include <variant>
#include <vector>

#include "rubato/core/testing.h"
#include "rubato/loop/engine.h"

namespace rubato::loop {

using Facts = std::vector<Fact>;

template <class Kind>
std::vector<Kind> only(const Facts& facts) {
  std::vector<Kind> found;
  for (const auto& fact : facts) {
    if (const auto* one = std::get_if<Kind>(&fact)) found.push_back(*one);
  }
  return found;
}

// The GPUs that a job has released, by the facts.
inline Allocation released_by(const Facts& facts, JobId job) {
  Allocation gpus;
  for (const auto& fact : only<ReleasedFact>(facts)) {
    if (fact.job == job) gpus.add(fact.gpus);
  }
  return gpus;
}

template <class Harness>
class EngineContract : public ::testing::Test {
 public:
  Facts start(std::size_t job, unsigned generation, const Allocation& gpus) {
    return harness.carry_out({Start{job_id(job), Generation(generation), gpus}});
  }
  Facts resize(std::size_t job, unsigned generation, const Allocation& gpus) {
    return harness.carry_out({Resize{job_id(job), Generation(generation), gpus}});
  }
  Facts stop(std::size_t job, unsigned generation) {
    return harness.carry_out({Stop{job_id(job), Generation(generation)}});
  }

  Harness harness;
};

TYPED_TEST_SUITE_P(EngineContract);

TYPED_TEST_P(EngineContract, AStartIsAnsweredByRunning) {
  const Facts facts = this->start(0, 1, gpus_on({{0, 0b11}}));
  ASSERT_EQ(facts.size(), 1U);
  const auto running = only<RunningFact>(facts);
  ASSERT_EQ(running.size(), 1U);
  EXPECT_EQ(running[0].job, job_id(0));
  EXPECT_EQ(running[0].generation, Generation(1));
}

TYPED_TEST_P(EngineContract, CommandsAreIdempotentOnTheGeneration) {
  this->start(0, 2, gpus_on({{0, 0b11}}));
  EXPECT_TRUE(this->start(0, 2, gpus_on({{0, 0b11}})).empty());
  EXPECT_TRUE(this->resize(0, 2, gpus_on({{0, 0b1}})).empty()) << "it has answered this one";
  EXPECT_TRUE(this->resize(0, 1, gpus_on({{1, 0b1}})).empty()) << "older";
  EXPECT_TRUE(this->stop(0, 1).empty());
  EXPECT_TRUE(this->stop(0, 2).empty());
  EXPECT_EQ(released_by(this->stop(0, 3), job_id(0)), gpus_on({{0, 0b11}}));
  EXPECT_TRUE(this->stop(0, 3).empty());
}

TYPED_TEST_P(EngineContract, AResizeReleasesExactlyTheDifferenceAndThenRuns) {
  this->start(0, 1, gpus_on({{0, 0b111}, {1, 0b1}}));
  const Facts facts = this->resize(0, 2, gpus_on({{0, 0b1001}}));
  EXPECT_EQ(released_by(facts, job_id(0)), gpus_on({{0, 0b110}, {1, 0b1}}));
  for (const auto& released : only<ReleasedFact>(facts)) {
    EXPECT_EQ(released.generation, Generation(2));
    EXPECT_FALSE(released.stopped);
  }
  ASSERT_FALSE(facts.empty());
  ASSERT_TRUE(std::holds_alternative<RunningFact>(facts.back()))
      << "first it lets go, then it runs";
  EXPECT_EQ(only<RunningFact>(facts).size(), 1U);
  EXPECT_EQ(std::get<RunningFact>(facts.back()).generation, Generation(2));
}

TYPED_TEST_P(EngineContract, GrowingReleasesNothing) {
  this->start(0, 1, gpus_on({{0, 0b1}}));
  const Facts facts = this->resize(0, 2, gpus_on({{0, 0b11}, {1, 0b1}}));
  ASSERT_EQ(facts.size(), 1U);
  EXPECT_EQ(only<RunningFact>(facts).size(), 1U);
}

TYPED_TEST_P(EngineContract, AStopReleasesEverything) {
  this->start(0, 1, gpus_on({{0, 0b11}, {1, 0b1}}));
  const Facts facts = this->stop(0, 2);
  EXPECT_EQ(released_by(facts, job_id(0)), gpus_on({{0, 0b11}, {1, 0b1}}));
  ASSERT_FALSE(only<ReleasedFact>(facts).empty());
  EXPECT_TRUE(only<ReleasedFact>(facts).back().stopped);
  EXPECT_EQ(only<ReleasedFact>(facts).back().generation, Generation(2));
  EXPECT_TRUE(only<RunningFact>(facts).empty());
  EXPECT_TRUE(only<Finished>(facts).empty());
}

TYPED_TEST_P(EngineContract, AStoppedJobGoesOnWhereItWas) {
  this->start(0, 1, gpus_on({{0, 0b11}}));
  this->stop(0, 2);
  EXPECT_EQ(only<RunningFact>(this->start(0, 3, gpus_on({{1, 0b1}}))).size(), 1U);
  const auto finished = only<Finished>(this->harness.finish(job_id(0)));
  ASSERT_EQ(finished.size(), 1U);
  EXPECT_EQ(finished[0].generation, Generation(3));
}

TYPED_TEST_P(EngineContract, AJobFinishesOnceAndThenKeepsQuiet) {
  this->start(0, 1, gpus_on({{0, 0b1}}));
  this->start(1, 1, gpus_on({{1, 0b1}}));
  const auto finished = only<Finished>(this->harness.finish(job_id(0)));
  ASSERT_EQ(finished.size(), 1U);
  EXPECT_EQ(finished[0].job, job_id(0));
  EXPECT_EQ(finished[0].generation, Generation(1));
  // Commands that were sent before the end was known. The Finished is the answer to all of them.
  EXPECT_TRUE(this->resize(0, 2, gpus_on({{0, 0b11}})).empty());
  EXPECT_TRUE(this->stop(0, 3).empty());
  EXPECT_TRUE(this->start(0, 4, gpus_on({{0, 0b1}})).empty());
  EXPECT_TRUE(only<Finished>(this->stop(1, 2)).empty());
}

TYPED_TEST_P(EngineContract, ABrokenNodeFailsTheJobsOnItAndNoOther) {
  this->start(0, 1, gpus_on({{0, 0b1}, {1, 0b1}}));
  this->start(1, 1, gpus_on({{0, 0b10}}));
  this->start(2, 1, gpus_on({{1, 0b10}}));
  const Facts facts = this->harness.break_node(node_id(1));
  ASSERT_EQ(only<NodeChanged>(facts).size(), 1U);
  EXPECT_EQ(only<NodeChanged>(facts)[0].node, node_id(1));
  EXPECT_EQ(only<NodeChanged>(facts)[0].state, NodeState::down);
  std::set<JobId> failed;
  for (const auto& fact : only<FailedFact>(facts)) {
    EXPECT_TRUE(failed.insert(fact.job).second) << "once";
    EXPECT_EQ(fact.generation, Generation(1));
  }
  EXPECT_EQ(failed, (std::set<JobId>{job_id(0), job_id(2)}));
  EXPECT_EQ(only<RunningFact>(this->start(0, 2, gpus_on({{0, 0b1}}))).size(), 1U)
      << "it starts again";
}

// The scheduler waits for an answer to its last command, so there must be one.
TYPED_TEST_P(EngineContract, ACommandThatCrossedWithAFailureIsAnswered) {
  this->start(0, 1, gpus_on({{0, 0b11}}));
  this->start(1, 1, gpus_on({{0, 0b1100}}));
  this->harness.break_unnoticed(node_id(0));
  auto failed = only<FailedFact>(this->resize(0, 2, gpus_on({{0, 0b1}})));
  std::erase_if(failed, [](const FailedFact& fact) { return fact.job != job_id(0); });
  ASSERT_FALSE(failed.empty());
  EXPECT_EQ(failed.back().generation, Generation(2));
  const auto released = only<ReleasedFact>(this->stop(1, 2));
  ASSERT_EQ(released.size(), 1U);
  EXPECT_TRUE(released[0].stopped);
  EXPECT_EQ(released[0].generation, Generation(2));
}

REGISTER_TYPED_TEST_SUITE_P(EngineContract, AStartIsAnsweredByRunning,
                            CommandsAreIdempotentOnTheGeneration,
                            AResizeReleasesExactlyTheDifferenceAndThenRuns, GrowingReleasesNothing,
                            AStopReleasesEverything, AStoppedJobGoesOnWhereItWas,
                            AJobFinishesOnceAndThenKeepsQuiet,
                            ABrokenNodeFailsTheJobsOnItAndNoOther,
                            ACommandThatCrossedWithAFailureIsAnswered);

}  // namespace rubato::loop
