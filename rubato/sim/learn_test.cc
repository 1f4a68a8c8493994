#include "rubato/sim/learn.h"

#include <gtest/gtest.h>
#include <memory>

#include "rubato/sim/generator.h"
#include "rubato/sim/learn_ppo.h"

namespace rubato::sim {
namespace {

LearnOptions small() {
  LearnOptions options;
  options.population = 4;
  options.elite = 2;
  options.scenes = 3;
  options.jobs = 20;
  options.threads = 1;
  options.models = {"a", "b"};
  options.contention =
      std::make_shared<PairLoss>(PairLoss::Numbers{{"a", {1, 0.5}}, {"b", {0.2, 1}}});
  return options;
}

LearnState after(const LearnOptions& options, LearnState state, int generations) {
  const auto learner = Learner::make(options);
  EXPECT_TRUE(learner.ok());
  for (int i = 0; i < generations; ++i) state = (*learner)->step(std::move(state), nullptr).value();
  return state;
}

TEST(Learn, GivesTheSameBytesWithAnyNumberOfThreadsAndFromACheckpoint) {
  const LearnState whole = after(small(), first_state(), 3);
  LearnOptions threads = small();
  threads.threads = 3;
  const auto part = LearnState::parse(after(threads, first_state(), 1).to_text(), "file");
  ASSERT_TRUE(part.ok()) << part.error().message;
  EXPECT_EQ(after(threads, *part, 2).to_text(), whole.to_text());
}

TEST(Learn, NeverEndsWorseThanItBegan) {
  const auto learner = Learner::make(small());
  const LearnState state = after(small(), first_state(), 3);
  EXPECT_LE(state.best_cost, (*learner)->cost(first_weights()).value());
  EXPECT_DOUBLE_EQ(state.best_cost, (*learner)->cost(state.best).value());
  EXPECT_EQ(state.curve.size(), 3U);
}

TEST(Learn, RefusesWhatIsNotACheckpoint) {
  EXPECT_EQ(LearnState::parse("{}", "file").error().message,
            "file: is not a checkpoint of rubato learn");
}

PpoOptions small_ppo() {
  PpoOptions options;
  options.scenes = small();
  options.imitations = 1;
  options.iterations = 3;
  options.drawn_scenes = 2;
  return options;
}

PpoState after(const PpoOptions& options, PpoState state, int iterations) {
  const auto learner = PpoLearner::make(options);
  EXPECT_TRUE(learner.ok());
  for (int i = 0; i < iterations; ++i) state = (*learner)->step(std::move(state), nullptr).value();
  return state;
}

TEST(LearnPpo, GivesTheSameBytesWithAnyNumberOfThreadsAndFromACheckpoint) {
  const PpoState whole = after(small_ppo(), first_ppo_state(1), 3);
  PpoOptions threads = small_ppo();
  threads.scenes.threads = 3;
  const auto part = PpoState::parse(after(threads, first_ppo_state(1), 1).to_text(), "file");
  ASSERT_TRUE(part.ok()) << part.error().message;
  EXPECT_EQ(after(threads, *part, 2).to_text(), whole.to_text());
  EXPECT_EQ(whole.curve.size(), 3U);
  const auto weights = parse_network(to_text(whole.best), "file");
  ASSERT_TRUE(weights.ok()) << weights.error().message;
  EXPECT_EQ(*weights, whole.best);
}

TEST(LearnPpo, KeepsTheOrderOfTheScorerThatItImitates) {
  PpoOptions options = small_ppo();
  options.imitated = first_weights();
  const PpoState state = after(options, first_ppo_state(1), 1);
  for (std::size_t i = 0; i < kJobFeatures; ++i)
    EXPECT_EQ(state.best.order[i], static_cast<float>(options.imitated[i]));
  EXPECT_NE(state.network, after(small_ppo(), first_ppo_state(1), 1).network);
  EXPECT_EQ(PpoState::parse(state.to_text(), "file").value().best, state.best);
}

TEST(LearnPpo, OpensCheckpointsFromBeforeTheyHadAnOrder) {
  const PpoState state = first_ppo_state(1);
  Json json = Json::parse(state.to_text());
  EXPECT_EQ(json.erase("order"), 1U);
  const auto old = PpoState::parse(json.dump(), "file");
  ASSERT_TRUE(old.ok()) << old.error().message;
  EXPECT_EQ(old->best, state.best);
}

TEST(LearnPpo, LearnsOtherWeightsWithContentionHidden) {
  PpoOptions hidden = small_ppo();
  hidden.scenes.hidden = true;
  EXPECT_NE(after(hidden, first_ppo_state(1), 2).network,
            after(small_ppo(), first_ppo_state(1), 2).network);
}

TEST(LearnPpo, RefusesWhatIsNotACheckpoint) {
  EXPECT_FALSE(PpoState::parse("{}", "file").ok());
  EXPECT_FALSE(PpoState::parse(LearnState{}.to_text(), "file").ok());
}

// A decision for 1,000 jobs is quick enough to be taken at every event. bench_decide has the time.
TEST(Learn, DecidesForAThousandJobs) {
  GeneratorOptions generator;
  generator.jobs = 1000;
  generator.at_once = true;
  generator.cluster_gpus = 512;
  const auto workload = make_workload(generate(generator).value(), {.assign_curves = true});
  SimulationOptions options;
  options.placement = Placement::pack;
  const auto policy = erase(Learned(Learned::Config{}));
  const auto result = simulate(*workload, parse_cluster("64x8").value(), *policy, options);
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_EQ(result->metrics.completed, 1000U);
  RecordProperty("decide_ms_p99", std::to_string(result->metrics.decide_ms_p99));
}

}  // namespace
}  // namespace rubato::sim
