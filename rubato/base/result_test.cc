#include "rubato/base/result.h"

#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <utility>

namespace rubato::base {
namespace {

Result<int> half(int number) {
  if (number % 2 != 0) return Error{"odd"};
  return number / 2;
}
Result<void> must_be_even(int number) {
  if (auto result = half(number); !result) return result.error();
  return {};
}

TEST(Result, IsAValueOrOneSentence) {
  ASSERT_TRUE(half(4).ok());
  EXPECT_EQ(*half(4), 2);
  ASSERT_FALSE(half(3));
  EXPECT_EQ(half(3).error().message, "odd");
  EXPECT_TRUE(must_be_even(2).ok());
  EXPECT_EQ(must_be_even(1).error().message, "odd");
}

TEST(Result, CarriesMoveOnlyValues) {
  Result<std::unique_ptr<int>> result(std::make_unique<int>(5));
  const std::unique_ptr<int> taken = std::move(*result);
  EXPECT_EQ(*taken, 5);
}

TEST(Result, AnErrorIsNotAValueEvenIfTheValueIsAText) {
  EXPECT_TRUE(Result<std::string>(std::string("fine")).ok());
  EXPECT_FALSE(Result<std::string>(Error{"bad"}).ok());
}

TEST(ResultDeathTest, ReadingWhatIsNotThereIsABug) {
  EXPECT_DEATH(static_cast<void>(half(3).value()), "CHECK\\(ok\\(\\)\\) failed");
  EXPECT_DEATH(static_cast<void>(half(4).error()), "CHECK\\(!ok\\(\\)\\) failed");
  EXPECT_DEATH(static_cast<void>(must_be_even(2).error()), "internal error");
}

}  // namespace
}  // namespace rubato::base
