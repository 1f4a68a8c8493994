#include "rubato/base/text.h"

#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rubato/base/random.h"

namespace rubato::base {
namespace {

using Parts = std::vector<std::string_view>;

TEST(Text, TrimTakesBlanksOffBothEndsOnly) {
  EXPECT_EQ(trim(" \t\r\na b\n"), "a b");
  EXPECT_EQ(trim("a"), "a");
  EXPECT_EQ(trim("  \n"), "");
  EXPECT_EQ(trim(""), "");
}

TEST(Text, SplitKeepsEmptyParts) {
  EXPECT_EQ(split("a,b", ','), (Parts{"a", "b"}));
  EXPECT_EQ(split("", ','), (Parts{""}));
  EXPECT_EQ(split(",", ','), (Parts{"", ""}));
  EXPECT_EQ(split("a,,b,", ','), (Parts{"a", "", "b", ""}));
}

TEST(Text, ParseDoubleTakesTheWholeTextOrNothing) {
  for (const std::string_view bad : {"", " ", " 1", "1 ", "+1", "1e400", "-1e400", "1,5", "0x10",
                                     "1e", ".", "-", "--1", "1.5.2", "one", "1_000"}) {
    EXPECT_EQ(parse_double(bad), std::nullopt) << bad;
  }
  EXPECT_EQ(parse_double("1"), 1);
  EXPECT_EQ(parse_double("-0.5"), -0.5);
  EXPECT_EQ(parse_double("1e3"), 1000);
  EXPECT_EQ(parse_double(".5"), 0.5);
  EXPECT_EQ(parse_double("5."), 5);
  EXPECT_EQ(parse_double("0.1"), 0.1);
  EXPECT_EQ(parse_double(std::string_view("12345", 2)), 12) << "reads no further than the text";
  // Numbers to from_chars; whoever reads a quantity must ask for a range.
  EXPECT_EQ(parse_double("inf"), std::numeric_limits<double>::infinity());
  EXPECT_EQ(parse_double("-Infinity"), -std::numeric_limits<double>::infinity());
  ASSERT_TRUE(parse_double("nan").has_value());
  EXPECT_TRUE(std::isnan(*parse_double("nan")));
}

TEST(Text, ParseIntegerTakesTheWholeTextOrNothing) {
  for (const std::string_view bad :
       {"", " 1", "1 ", "+1", "1.0", "1e3", "9223372036854775808", "0x1", "-", "--1"}) {
    EXPECT_EQ(parse_integer(bad), std::nullopt) << bad;
  }
  EXPECT_EQ(parse_integer("9223372036854775807"), std::numeric_limits<long long>::max());
  EXPECT_EQ(parse_integer("-12"), -12);
  EXPECT_EQ(parse_integer("007"), 7);
}

TEST(Text, ShortestReadsBackAsTheSameNumber) {
  EXPECT_EQ(shortest(5), "5");
  EXPECT_EQ(shortest(0.1), "0.1");
  EXPECT_EQ(shortest(-2.25), "-2.25");
  EXPECT_EQ(shortest(1e300), "1e+300");
  Random random(5);
  for (int i = 0; i < 10'000; ++i) {
    const double value = random.log_uniform(1e-300, 1e300) * (i % 2 == 0 ? 1 : -1);
    ASSERT_EQ(parse_double(shortest(value)), value);
  }
}

TEST(Text, QuotedShowsControlBytesAndCutsLongTexts) {
  EXPECT_EQ(base::quoted("abc"), "\"abc\"");
  EXPECT_EQ(base::quoted(""), "\"\"");
  EXPECT_EQ(base::quoted("a\nb\x7f\xff"), "\"a\\x0ab\\x7f\\xff\"");
  EXPECT_EQ(base::quoted(std::string_view("\0", 1)), "\"\\x00\"");
  EXPECT_EQ(base::quoted("abcdef", 3), "\"abc...\"");
  EXPECT_EQ(base::quoted("abc", 3), "\"abc\"");
  const std::string longest(1'000'000, 'x');
  EXPECT_LT(base::quoted(longest).size(), 100U);
}

TEST(Text, ClosestFindsWhatWasMeantOrNothing) {
  const std::vector<std::string> names = {"fifo", "srtf", "srsf", "tiresias-las",
                                          "tiresias-gittins"};
  EXPECT_EQ(closest("fifo", names), "fifo");
  EXPECT_EQ(closest("fifp", names), "fifo");
  EXPECT_EQ(closest("ffio", names), "fifo");
  EXPECT_EQ(closest("tiresis-las", names), "tiresias-las");
  EXPECT_EQ(closest("tiresias", names), std::nullopt) << "four letters off a word of eight";
  EXPECT_EQ(closest("srff", names), "srtf") << "the first of equals";
  EXPECT_EQ(closest("kubernetes", names), std::nullopt);
  EXPECT_EQ(closest("fifo", {}), std::nullopt);
}

}  // namespace
}  // namespace rubato::base
