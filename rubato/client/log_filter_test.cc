#include "rubato/client/log_filter.h"

#include <gtest/gtest.h>
#include <string>

namespace rubato::client {
namespace {

TEST(LogFilter, ColoursPassAndCommandsDoNot) {
  LogFilter filter;
  EXPECT_EQ(filter.pass("a\tb\r\n\x1b[1;31mred\x1b[0m \x1b[2J \x1b]0;x\x07é"),
            "a\tb\r\n\x1b[1;31mred\x1b[0m \\x1b[2J \\x1b]0;x\\x07é");
  EXPECT_EQ(filter.finish(), "");
}

TEST(LogFilter, DoesNotCareWhereBytesAreCut) {
  const std::string text = "x\x1b[32mgrün 日本\x1b[0m\x1b[3A\xff\xe6\x97 end\x1b";
  LogFilter whole;
  std::string expected = whole.pass(text);
  expected += whole.finish();
  for (std::size_t piece = 1; piece < text.size(); ++piece) {
    LogFilter filter;
    std::string out;
    for (std::size_t at = 0; at < text.size(); at += piece)
      out += filter.pass(text.substr(at, piece));
    out += filter.finish();
    EXPECT_EQ(out, expected) << piece;
  }
}

}  // namespace
}  // namespace rubato::client
