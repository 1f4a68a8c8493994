#include "rubato/base/glob.h"

#include <gtest/gtest.h>
#include <string>

#include "rubato/base/random.h"

namespace rubato::base {
namespace {

// What the rules say, word for word; takes too long on long patterns.
bool plainly(std::string_view pattern, std::string_view text) {
  if (pattern.empty()) return text.empty();
  if (pattern[0] == '*') {
    return plainly(pattern.substr(1), text) || (!text.empty() && plainly(pattern, text.substr(1)));
  }
  if (text.empty() || (pattern[0] != '?' && pattern[0] != text[0])) return false;
  return plainly(pattern.substr(1), text.substr(1));
}

TEST(Glob, MatchesWholeNames) {
  EXPECT_TRUE(matches_glob("sweep-*", "sweep-17"));
  EXPECT_TRUE(matches_glob("sweep-*", "sweep-"));
  EXPECT_FALSE(matches_glob("sweep-*", "my-sweep-17"));
  EXPECT_TRUE(matches_glob("*sweep*", "my-sweep-17"));
  EXPECT_TRUE(matches_glob("r?n", "run"));
  EXPECT_FALSE(matches_glob("r?n", "rn"));
  EXPECT_TRUE(matches_glob("r?n", "r\xc3\xbcn")) << "a character is more than a byte";
  EXPECT_TRUE(matches_glob("[a]", "[a]")) << "nothing else is special";
  EXPECT_FALSE(matches_glob("", "a"));
  EXPECT_TRUE(matches_glob("", ""));
}

TEST(Glob, AgreesWithTheRules) {
  Random random(7);
  for (int i = 0; i < 20'000; ++i) {
    const auto draw = [&](std::string_view letters, std::uint64_t most) {
      std::string text;
      for (auto left = random.below(most); left > 0; --left)
        text += letters[random.below(letters.size())];
      return text;
    };
    const std::string pattern = draw("ab*?", 7);
    const std::string text = draw("ab", 8);
    ASSERT_EQ(matches_glob(pattern, text), plainly(pattern, text)) << pattern << " " << text;
  }
}

TEST(Glob, IsQuickOnPatternsThatAreMeantToBeSlow) {
  std::string pattern;
  for (int i = 0; i < 100; ++i) pattern += "a*";
  EXPECT_FALSE(matches_glob(pattern + "b", std::string(100, 'a')));
}

}  // namespace
}  // namespace rubato::base
