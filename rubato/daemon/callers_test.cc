#include "rubato/daemon/callers.h"

#include <gtest/gtest.h>
#include <string>
#include <unistd.h>

namespace rubato {
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

TEST(Callers, PeersHaveTheNameThatTheSystemKnows) {
  Callers callers;
  EXPECT_EQ(callers.by_peer(0), (Caller{"root", true}));
  EXPECT_TRUE(callers.by_peer(::geteuid()).admin);
  constexpr uid_t kNobodyKnows = 3'123'456'789;
  EXPECT_EQ(callers.by_peer(kNobodyKnows), (Caller{"3123456789", false}));
  callers.publish({{}, {"3123456789"}});
  EXPECT_TRUE(callers.by_peer(kNobodyKnows).admin);
}

}  // namespace
}  // namespace rubato
