#include "rubato/loop/follow.h"

#include <gtest/gtest.h>

#include "rubato/core/testing.h"

namespace rubato::loop {
namespace {

// One job that waits, on a node of 4 GPUs.
State scene() {
  State state(cluster_of("1x4"));
  state.snapshot.jobs.insert(job_view(job_id(0), rigid_spec(2)));
  return state;
}

const JobView& job_of(const State& state) { return *state.snapshot.jobs.find(job_id(0)); }

TEST(Follow, StoredCommandsCount) {
  State state = scene();
  const Allocation two = gpus_on({{0, 0b0011}});
  const Command start = Start{job_id(0), Generation(5), two};
  follow(state, {start}, {});
  EXPECT_EQ(job_of(state).phase, Phase::starting);
  EXPECT_EQ(job_of(state).generation, Generation(5));
  EXPECT_EQ(job_of(state).held, two);
  EXPECT_TRUE(state.decision_due);

  const Allocation one = gpus_on({{0, 0b0001}});
  follow(state, {Resize{job_id(0), Generation(6), one}}, {});
  EXPECT_EQ(job_of(state).phase, Phase::resizing);
  EXPECT_EQ(job_of(state).held, two) << "it holds the GPU until the engine reports its release";
  EXPECT_EQ(job_of(state).release_due, 1);

  follow(state, {Stop{job_id(0), Generation(7)}}, {});
  EXPECT_EQ(job_of(state).phase, Phase::stopping);
  EXPECT_EQ(job_of(state).release_due, 2);
}

TEST(Follow, AJobWithoutItsCommandIsAsAfterTheOneBefore) {
  State state = scene();
  const Allocation two = gpus_on({{0, 0b0011}});
  const Command start = Start{job_id(0), Generation(5), two};
  follow(state, {start}, {});
  follow(state, {}, {{job_id(0), start}});
  EXPECT_EQ(job_of(state).generation, Generation(5));
  EXPECT_EQ(job_of(state).held, two);
  EXPECT_EQ(job_of(state).target, two);

  follow(state, {}, {{job_id(0), std::nullopt}});
  EXPECT_EQ(job_of(state).phase, Phase::pending);
  EXPECT_TRUE(job_of(state).held.empty());
  EXPECT_EQ(job_of(state).generation, Generation());
}

TEST(Follow, CommandsOfJobsThatAreGoneChangeNothing) {
  State state = scene();
  follow(state, {Stop{job_id(3), Generation(9)}}, {{job_id(4), std::nullopt}});
  EXPECT_EQ(job_of(state).phase, Phase::pending);
}

}  // namespace
}  // namespace rubato::loop
