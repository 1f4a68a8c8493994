#include "rubato/http/connection_shares.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "rubato/base/random.h"

namespace rubato::http {
namespace {

constexpr const char* kNobody = "";

TEST(ConnectionShares, WhoHasTheMostMakesRoomForOthers) {
  ConnectionShares shares(4, 4);
  for (ConnectionShares::Id id = 1; id <= 4; ++id) EXPECT_TRUE(shares.enter(id, "ada").admitted);
  EXPECT_FALSE(shares.enter(5, "ada").admitted) << "nobody pushes out their own";
  shares.set_busy(1);
  const auto bob = shares.enter(6, "bob");
  EXPECT_TRUE(bob.admitted);
  EXPECT_EQ(bob.evicted, 2U) << "the longest idle; one that is being answered stays";
  EXPECT_EQ(shares.enter(7, "bob").evicted, 3U);
  EXPECT_FALSE(shares.enter(8, "bob").admitted) << "both have the same";
  EXPECT_EQ(shares.enter(9, "cay").evicted, 4U);
  EXPECT_FALSE(shares.enter(10, "cay").admitted);
  EXPECT_EQ(shares.count(), 4U);
}

TEST(ConnectionShares, AFloodOfStrangersKeepsNobodyOut) {
  ConnectionShares shares(100, 10);
  for (ConnectionShares::Id id = 1; id <= 1000; ++id) {
    const auto stranger = shares.enter(id, kNobody);
    EXPECT_TRUE(stranger.admitted);
    if (id > 10) {
      EXPECT_EQ(stranger.evicted, id - 10);
    }
  }
  EXPECT_EQ(shares.count_of(kNobody), 10U);
  EXPECT_FALSE(shares.enter(2000, "ada").evicted) << "there is room for those who are known";
  // A connection that identifies itself no longer counts as unidentified, so there is room for
  // another one.
  shares.identify(1000, "ada");
  EXPECT_EQ(shares.count_of("ada"), 2U);
  EXPECT_FALSE(shares.enter(2001, kNobody).evicted);
}

TEST(ConnectionShares, WhoComesOverTcpFindsAPlaceThoughOneUserHasAll) {
  ConnectionShares shares(8, 8);
  for (ConnectionShares::Id id = 1; id <= 8; ++id) EXPECT_TRUE(shares.enter(id, "ada").admitted);
  EXPECT_EQ(shares.enter(9, kNobody).evicted, 1U);
  shares.identify(9, "bob");
  EXPECT_EQ(shares.count_of("bob"), 1U);
  EXPECT_EQ(shares.count_of("ada"), 7U);
}

TEST(ConnectionShares, WhoeverLeavesOrIsUnknownIsNoMistake) {
  ConnectionShares shares(2, 2);
  shares.leave(7);
  shares.set_busy(7);
  shares.set_idle(7);
  shares.identify(7, "ada");
  EXPECT_EQ(shares.count(), 0U);
  EXPECT_TRUE(shares.enter(1, "ada").admitted);
  shares.leave(1);
  EXPECT_EQ(shares.count_of("ada"), 0U);
}

// In any order of events: the limits hold, busy connections are never closed, and no user loses a
// connection to a user who has as many.
TEST(ConnectionShares, HoldsInAnyOrder) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    Random random(seed);
    const std::size_t most = 3 + random.below(10);
    const std::size_t strangers = 1 + random.below(most);
    ConnectionShares shares(most, strangers);
    const std::vector<std::string> owners = {kNobody, "ada", "bob", "cay"};
    std::map<ConnectionShares::Id, std::string> open;
    std::set<ConnectionShares::Id> busy;
    const auto any = [&] {
      return std::next(open.begin(), static_cast<long>(random.below(open.size())));
    };
    for (ConnectionShares::Id id = 1; id < 2000; ++id) {
      const std::string& owner = owners[random.below(owners.size())];
      switch (random.below(5)) {
        case 0:
          if (!open.empty()) {
            const auto gone = any();
            shares.leave(gone->first);
            busy.erase(gone->first);
            open.erase(gone);
          }
          break;
        case 1:
          if (!open.empty()) {
            const auto one = any();
            shares.set_busy(one->first);
            busy.insert(one->first);
          }
          break;
        case 2:
          if (!open.empty()) {
            const auto one = any();
            shares.set_idle(one->first);
            busy.erase(one->first);
          }
          break;
        case 3:
          if (!open.empty() && owner != kNobody) {
            const auto one = any();
            shares.identify(one->first, owner);
            one->second = owner;
          }
          break;
        default: {
          const auto before = shares.count_of(owner);
          const auto verdict = shares.enter(id, owner);
          if (verdict.evicted) {
            ASSERT_TRUE(verdict.admitted);
            ASSERT_FALSE(busy.contains(*verdict.evicted));
            const std::string loser = open.at(*verdict.evicted);
            open.erase(*verdict.evicted);
            ASSERT_TRUE(loser == owner ? owner == kNobody : shares.count_of(loser) > before);
          }
          if (verdict.admitted) open[id] = owner;
          ASSERT_TRUE(verdict.admitted || shares.count() >= std::min(most, strangers));
        }
      }
      ASSERT_LE(open.size(), most);
      ASSERT_EQ(shares.count(), open.size());
      for (const std::string& name : owners) {
        const auto count = static_cast<std::size_t>(std::count_if(
            open.begin(), open.end(), [&](const auto& one) { return one.second == name; }));
        ASSERT_EQ(shares.count_of(name), count);
      }
      ASSERT_LE(shares.count_of(kNobody), strangers);
    }
  }
}

}  // namespace
}  // namespace rubato::http
