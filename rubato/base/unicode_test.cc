#include "rubato/base/unicode.h"

#include <gtest/gtest.h>
#include <string>

#include "rubato/base/random.h"

namespace rubato::base {
namespace {

TEST(Unicode, KnowsWhatIsUtf8) {
  for (const char* good :
       {"", "plain", "\xc3\xa9", "\xe6\x97\xa5", "\xf0\x9f\x98\x80", "\xf4\x8f\xbf\xbf"}) {
    EXPECT_TRUE(is_utf8(good)) << good;
  }
  for (const char* bad : {"\x80", "\xc3", "\xc0\xaf", "\xe0\x80\xaf", "\xed\xa0\x80",
                          "\xf4\x90\x80\x80", "\xff", "a\xe6\x97", "\xf8\x88\x80\x80\x80"}) {
    EXPECT_FALSE(is_utf8(bad)) << for_terminal(bad);
  }
}

TEST(Unicode, SpellsOutWhatWouldCommandATerminal) {
  EXPECT_EQ(for_terminal("plain é 日本 😀"), "plain é 日本 😀");
  EXPECT_EQ(for_terminal("\x1b[2J\x1b]0;title\x07"), "\\x1b[2J\\x1b]0;title\\x07");
  EXPECT_EQ(for_terminal("a\r\n\tb\x7f"), "a\\x0d\\x0a\\x09b\\x7f");
  EXPECT_EQ(for_terminal("\xc2\x9b"
                         "2J"),
            "\\u{9b}2J");  // the one-byte escape of 8-bit terminals
  EXPECT_EQ(for_terminal("\xe2\x80\xae"
                         "gpj"),
            "\\u{202e}gpj");  // right to left
  EXPECT_EQ(for_terminal("\xff\x80"), "\\xff\\x80");
  EXPECT_EQ(for_terminal("\xf3\xa0\x81\x81"), "\\u{e0041}");  // an invisible letter
}

TEST(Unicode, PilesOfMarksAreCut) {
  std::string pile = "e";
  for (int i = 0; i < 5; ++i) pile += "\xcc\x81";
  EXPECT_EQ(for_terminal(pile), "e\xcc\x81\xcc\x81\xcc\x81\\u{301}\\u{301}");
}

TEST(Unicode, CountsColumns) {
  EXPECT_EQ(text_columns("abc"), 3);
  EXPECT_EQ(text_columns("日本"), 4);
  EXPECT_EQ(text_columns("e\xcc\x81"), 1);
  EXPECT_EQ(text_columns("😀"), 2);
  EXPECT_EQ(text_columns("█░"), 2);
}

TEST(Unicode, FitsIntoColumns) {
  EXPECT_EQ(fitted("abc", 5), "abc  ");
  EXPECT_EQ(fitted("abcdef", 5), "abcd~");
  EXPECT_EQ(fitted("日本語", 6), "日本語");
  EXPECT_EQ(fitted("日本語", 5), "日本~");
  EXPECT_EQ(fitted("日本語", 4), "日~ ");
  EXPECT_EQ(fitted("x", 0), "");
  EXPECT_EQ(fitted("\x1b", 6), "\\x1b  ");
}

TEST(Unicode, AnyBytesBecomeOneSafeLineOfTheRightWidth) {
  Random random(7);
  for (int round = 0; round < 5000; ++round) {
    std::string bytes;
    for (auto length = random.below(12); length > 0; --length) {
      bytes += static_cast<char>(random.below(256));
    }
    const std::string safe = for_terminal(bytes);
    EXPECT_TRUE(is_utf8(safe));
    for (const char c : safe) EXPECT_TRUE(static_cast<unsigned char>(c) >= 0x20 && c != 0x7f);
    for (const int wide : {1, 3, 8}) EXPECT_EQ(text_columns(fitted(bytes, wide)), wide);
  }
}

}  // namespace
}  // namespace rubato::base
