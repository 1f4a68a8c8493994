#include "rubato/member/standing.h"

#include <gtest/gtest.h>

namespace rubato::member {
namespace {

wire::RosterWord roster_word(std::int64_t epoch, std::vector<Uid> gone, std::int64_t round = 1) {
  return {round, epoch, {epoch, {1, 2}}, std::move(gone), 1};
}

TEST(Standing, ObeysTheLatestMasterOnly) {
  Standing standing(2, 1);
  EXPECT_EQ(standing.hear(roster_word(3, {})), Standing::Verdict::heard);
  EXPECT_EQ(standing.hear(roster_word(2, {2})), Standing::Verdict::refused);
  EXPECT_TRUE(standing.gone().empty());
  EXPECT_EQ(standing.epoch(), 3);
}

TEST(Standing, EndsIfItIsGoneOrItsRoundIsOver) {
  EXPECT_EQ(Standing(2, 1).hear(roster_word(1, {3, 2, 1})), Standing::Verdict::ends);
  EXPECT_EQ(Standing(2, 1).hear(roster_word(1, {}, 2)), Standing::Verdict::ends);
}

TEST(Standing, TheGoneStayGone) {
  Standing standing(2, 1);
  (void)standing.hear(roster_word(1, {3, 4}));
  (void)standing.hear(roster_word(2, {3}));
  EXPECT_EQ(standing.gone(), (std::vector<Uid>{3, 4}));
  EXPECT_FALSE(standing.accepts(1, 4));
  EXPECT_FALSE(standing.accepts(2, 5));
  EXPECT_TRUE(standing.accepts(1, 5));
}

TEST(Standing, FoundsOnce) {
  Standing standing(1, 1);
  EXPECT_FALSE(standing.may_found());
  (void)standing.hear(roster_word(1, {}));
  EXPECT_TRUE(standing.may_found());
  (void)standing.hear(roster_word(2, {}));
  EXPECT_FALSE(standing.may_found());
}

TEST(Standing, SaysWhatItDoesItself) {
  Standing standing(1, 4);
  Membership membership(1);
  EXPECT_EQ(standing.hello(membership, 7).applied, kNoState);
  membership.found({3, {1}}, StepPlan{});
  const wire::WorkerHello hello = standing.hello(membership, 7);
  EXPECT_TRUE(hello.works);
  EXPECT_EQ(hello.generation.plan, 3);
  EXPECT_EQ(hello.applied, 0);
  EXPECT_EQ(hello.round, 4);
  EXPECT_EQ(hello.connection, 7);
}

}  // namespace
}  // namespace rubato::member
