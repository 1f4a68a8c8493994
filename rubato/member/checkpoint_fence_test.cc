#include "rubato/member/checkpoint_fence.h"

#include <gtest/gtest.h>

namespace rubato::member {
namespace {

CheckpointName named(std::int64_t round, std::int64_t recovery, Step step,
                     MembershipGeneration generation = {1, 0}) {
  return {round, recovery, step, generation, 1};
}

TEST(CheckpointFence, OnlyFilesOfTheClaimedRoundCount) {
  const CheckpointName base = base_of_round(named(1, 3, 50), 2, 9);
  const std::vector<CheckpointClaim> claims = {{1, {}}, {2, base}};
  // A worker of round 1 that was frozen past its last check has written step 60.
  EXPECT_EQ(newest_checkpoint(claims, {named(1, 3, 50), named(1, 3, 60), base}), base);
  EXPECT_EQ(newest_checkpoint(claims, {named(1, 3, 60), base, named(2, 0, 55)}), named(2, 0, 55));
  EXPECT_FALSE(newest_checkpoint({}, {named(1, 0, 5)}));
  EXPECT_FALSE(newest_checkpoint({{1, {}}}, {}));
}

TEST(CheckpointFence, ALaterRecoveryIsNewerWhateverItsGeneration) {
  const std::vector<CheckpointClaim> claims = {{1, {}}};
  EXPECT_EQ(newest_checkpoint(claims, {named(1, 0, 9, {5, 2}), named(1, 1, 8, {4, 7})}),
            named(1, 1, 8, {4, 7}));
  EXPECT_EQ(newest_checkpoint(claims, {named(1, 1, 8, {5, 0}), named(1, 1, 9, {4, 0})}),
            named(1, 1, 9, {4, 0}));
}

TEST(CheckpointFence, TheBaseIsOlderThanAllThatTheRoundWrites) {
  EXPECT_LT(base_of_round(named(1, 3, 50), 2, 9), named(2, 0, 1));
}

TEST(CheckpointFence, AWriterRemovesOnlyFilesOfItsRound) {
  const std::vector<CheckpointName> present = {named(1, 0, 1), named(2, -1, 1), named(2, 0, 2),
                                               named(2, 0, 3), named(3, 0, 1)};
  EXPECT_EQ(removable(2, 2, present), (std::vector<CheckpointName>{named(2, -1, 1)}));
  EXPECT_TRUE(removable(1, 2, present).empty());
}

}  // namespace
}  // namespace rubato::member
