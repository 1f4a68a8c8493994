#include "rubato/http/page_codes.h"

#include <gtest/gtest.h>
#include <vector>

namespace rubato::http {
namespace {

using namespace std::chrono_literals;

TEST(PageCodes, ACodeWorksOnceAndForItsUser) {
  PageCodes codes;
  const PageCodes::Time now{};
  const std::string code = codes.make({"ada", true}, now);
  EXPECT_NE(code, codes.make({"ada", true}, now));
  EXPECT_EQ(codes.take("rub_guess", now), std::nullopt);
  EXPECT_EQ(codes.take("", now), std::nullopt);
  EXPECT_EQ(codes.take(code, now), (Caller{"ada", true}));
  EXPECT_EQ(codes.take(code, now), std::nullopt);
}

TEST(PageCodes, ACodeEndsAfterTwoMinutes) {
  PageCodes codes;
  const PageCodes::Time now{};
  const std::string early = codes.make({"ada", false}, now);
  const std::string late = codes.make({"ada", false}, now + 1s);
  EXPECT_EQ(codes.take(early, now + PageCodes::kHolds), std::nullopt);
  EXPECT_EQ(codes.take(late, now + PageCodes::kHolds), (Caller{"ada", false}));
}

TEST(PageCodes, OneUserCannotFillTheMemoryNorDropTheCodesOfOthers) {
  PageCodes codes;
  PageCodes::Time now{};
  const std::string bo = codes.make({"bo", false}, now);
  std::vector<std::string> made;
  for (std::size_t i = 0; i <= PageCodes::kMost; ++i)
    made.push_back(codes.make({"ada", false}, now += 1ms));
  EXPECT_EQ(codes.take(made.front(), now), std::nullopt);
  EXPECT_NE(codes.take(made[1], now), std::nullopt);
  EXPECT_NE(codes.take(made.back(), now), std::nullopt);
  EXPECT_EQ(codes.take(bo, now), (Caller{"bo", false}));
}

}  // namespace
}  // namespace rubato::http
