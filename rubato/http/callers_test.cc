#include "rubato/http/callers.h"

#include <chrono>
#include <gtest/gtest.h>
#include <optional>
#include <string>
#include <unistd.h>

namespace rubato::http {
namespace {

TEST(Callers, TokensAreLongAndAllDifferent) {
  const std::string token = new_token();
  EXPECT_EQ(token.size(), 4U + 43U);
  EXPECT_EQ(token.substr(0, 4), "rub_");
  EXPECT_EQ(token.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                    "0123456789-_"),
            std::string::npos);
  EXPECT_NE(token, new_token());
  EXPECT_EQ(token_name(token_hash(token)).size(), static_cast<std::size_t>(kTokenNameDigits));
}

TEST(Callers, FindsByHashAlone) {
  Callers callers;
  EXPECT_FALSE(callers.by_hash(token_hash("rub_a")));
  callers.publish({{{token_hash("rub_a"), {"ada", false}}}, {}});
  EXPECT_EQ(callers.by_hash(token_hash("rub_a")), (Caller{"ada", false}));
  EXPECT_FALSE(callers.by_hash(token_hash("rub_b")));
  callers.publish({});
  EXPECT_FALSE(callers.by_hash(token_hash("rub_a"))) << "the newest table counts";
}

TEST(Callers, SomeTokensEndByThemselves) {
  Callers::Clock::time_point now{};
  Callers callers([](uid_t) { return std::nullopt; }, [&] { return now; });
  Callers::Table table;
  table.tokens[token_hash("rub_a")] = {"ada", false};
  table.tokens[token_hash("rub_page")] = {"ada", false};
  table.ends[token_hash("rub_page")] = now + std::chrono::hours(1);
  callers.publish(table);
  EXPECT_TRUE(callers.ends(token_hash("rub_page")));
  EXPECT_FALSE(callers.ends(token_hash("rub_a")));
  EXPECT_TRUE(callers.by_hash(token_hash("rub_page")));
  now += std::chrono::hours(1);
  EXPECT_FALSE(callers.by_hash(token_hash("rub_page")));
  EXPECT_TRUE(callers.by_hash(token_hash("rub_a")));
}

TEST(Callers, PeersHaveTheNameThatTheSystemKnows) {
  Callers callers;
  EXPECT_EQ(callers.by_peer(0), (Caller{"root", true}));
  EXPECT_TRUE(callers.by_peer(::geteuid()).admin);
  constexpr uid_t kNobodyKnows = 3'123'456'789;
  EXPECT_EQ(callers.by_peer(kNobodyKnows), (Caller{"3123456789", false}));
  callers.publish({{}, {"3123456789"}});
  EXPECT_TRUE(callers.by_peer(kNobodyKnows).admin);
}

TEST(Callers, NamesAreLookedUpOnceAMinuteAndUntilThereIsOne) {
  constexpr uid_t kSomebody = 3'123'456'789;
  Callers::Clock::time_point now{};
  std::optional<std::string> known;
  int lookups = 0;
  const Callers callers(
      [&](uid_t) {
        ++lookups;
        return known;
      },
      [&] { return now; });
  EXPECT_EQ(callers.by_peer(kSomebody).user, "3123456789");
  known = "ada";
  EXPECT_EQ(callers.by_peer(kSomebody).user, "ada") << "a lookup that failed is not remembered";
  known = "bo";
  now += std::chrono::seconds(59);
  EXPECT_EQ(callers.by_peer(kSomebody).user, "ada");
  EXPECT_EQ(lookups, 2);
  now += std::chrono::seconds(1);
  EXPECT_EQ(callers.by_peer(kSomebody).user, "bo");
}

}  // namespace
}  // namespace rubato::http
