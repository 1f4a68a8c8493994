#include "rubato/wire/random_hex.h"

#include <gtest/gtest.h>

namespace rubato::wire {
namespace {

TEST(RandomHex, HasTwoLowerCaseDigitsForEachByte) {
  EXPECT_EQ(random_hex(0), "");
  const std::string one = random_hex(16);
  EXPECT_EQ(one.size(), 32U);
  EXPECT_EQ(one.find_first_not_of("0123456789abcdef"), std::string::npos) << one;
  EXPECT_NE(one, random_hex(16));
  EXPECT_EQ(random_hex(256).size(), 512U);
}

}  // namespace
}  // namespace rubato::wire
