#include "rubato/http/answer_reader.h"

#include <gtest/gtest.h>
#include <string>
#include <string_view>

namespace rubato::http {
namespace {

using State = AnswerReader::State;

struct Outcome {
  State state = State::hungry;
  int status = 0;
  std::string body;
  std::string problem;
};

Outcome read(std::string_view text, std::size_t size, bool end) {
  AnswerReader reader;
  Outcome outcome;
  bool head = false;
  for (bool given_all = false;;) {
    if (!head) {
      outcome.state = reader.read_head();
      head = outcome.state == State::complete;
      if (head) outcome.status = reader.head().status;
    }
    if (head) {
      outcome.state = reader.read_body([&](std::string_view piece) {
        outcome.body += piece;
        return true;
      });
    }
    outcome.problem = reader.problem();
    if (outcome.state != State::hungry || given_all) return outcome;
    given_all = text.empty();
    if (given_all && end) reader.give_end();
    reader.give(text.substr(0, size));
    text.remove_prefix(std::min(size, text.size()));
  }
}

// The outcome must be the same for every cut of the text.
Outcome read(const std::string& text, bool end = true) {
  const auto whole = read(text, text.size() + 1, end);
  for (const std::size_t size : {1, 2, 3, 7, 64}) {
    const auto cut = read(text, size, end);
    EXPECT_EQ(cut.state, whole.state) << size << "\n" << text;
    EXPECT_EQ(cut.status, whole.status) << size << "\n" << text;
    EXPECT_EQ(cut.body, whole.body) << size << "\n" << text;
    EXPECT_EQ(cut.problem, whole.problem) << size << "\n" << text;
  }
  return whole;
}

TEST(AnswerReader, ReadsABodyOfEachKind) {
  const auto length = read("HTTP/1.1 201 Created\r\nContent-Length: 5\r\n\r\nhelloNEXT", false);
  EXPECT_EQ(length.state, State::complete);
  EXPECT_EQ(length.status, 201);
  EXPECT_EQ(length.body, "hello");
  const auto chunks = read(
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
      "5\r\nhello\r\nA;name=value\r\n, chunked!\r\n0\r\nDigest: x\r\n\r\n",
      false);
  EXPECT_EQ(chunks.state, State::complete);
  EXPECT_EQ(chunks.body, "hello, chunked!");
  const auto rest = read("HTTP/1.0 200 OK\r\n\r\nto the end");
  EXPECT_EQ(rest.state, State::complete);
  EXPECT_EQ(rest.body, "to the end");
  const auto none = read("HTTP/1.1 204 No Content\r\nContent-Length: 7\r\n\r\n", false);
  EXPECT_EQ(none.state, State::complete);
  EXPECT_EQ(none.body, "");
  const auto empty = read("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", false);
  EXPECT_EQ(empty.state, State::complete);
  EXPECT_EQ(empty.status, 404);
}

TEST(AnswerReader, HeaderNamesAreInLowerCaseAndTrailersAreNoHeaders) {
  AnswerReader reader;
  reader.give(
      "HTTP/1.1 200 OK\r\nX-One:  a b \r\nTransfer-Encoding: chunked\r\n\r\n"
      "0\r\nX-Two: c\r\n\r\n");
  ASSERT_EQ(reader.read_head(), State::complete);
  EXPECT_EQ(reader.head().headers.at("x-one"), "a b");
  ASSERT_EQ(reader.read_body([](std::string_view) { return true; }), State::complete);
  EXPECT_EQ(reader.head().headers.count("x-two"), 0U);
}

TEST(AnswerReader, SkipsInterimAnswersButNotForEver) {
  const std::string interim = "HTTP/1.1 100 Continue\r\n\r\n";
  const auto skipped = read(interim + interim + "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx");
  EXPECT_EQ(skipped.status, 200);
  EXPECT_EQ(skipped.body, "x");
  std::string many;
  for (int i = 0; i < 100; ++i) many += interim;
  EXPECT_EQ(read(many).problem, "it begins with too many interim answers");
}

TEST(AnswerReader, NoticesAnAnswerThatIsCutOff) {
  const std::string chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (const std::string& text :
       {std::string(), std::string("HTTP/1.1 2"), std::string("HTTP/1.1 200 OK\r\nA: b\r\n"),
        std::string("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell"), chunked,
        chunked + "5\r\nhell", chunked + "5\r\nhello\r\n", chunked + "0\r\n"}) {
    EXPECT_EQ(read(text).state, State::cut_off) << text;
    EXPECT_EQ(read(text, false).state, State::hungry) << text;
  }
}

TEST(AnswerReader, RefusesWhatIsNoHttp) {
  const std::string ok = "HTTP/1.1 200 OK\r\n";
  const std::string chunked = ok + "Transfer-Encoding: chunked\r\n\r\n";
  for (const std::string& text :
       {std::string("S"), std::string("SSH-2.0-OpenSSH_9.2\r\n"),
        std::string("HTTP/2 200 OK\r\n\r\n"), std::string("HTTP/1.1 099 Low\r\n\r\n"),
        std::string("HTTP/1.1 600 High\r\n\r\n"), std::string("HTTP/1.1 2x0 OK\r\n\r\n"),
        ok + "no colon\r\n\r\n", ok + "A: b\nC: d\r\n\r\n", ok + "Content-Length: -1\r\n\r\n",
        ok + "Content-Length: 1, 2\r\n\r\n", ok + "Content-Length: 99999999999999999999999\r\n\r\n",
        ok + "Content-Length: 1\r\nContent-Length: 2\r\n\r\n",
        ok + "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n",
        ok + "Transfer-Encoding: gzip\r\n\r\n", ok + "Transfer-Encoding: gzip, chunked, x\r\n\r\n",
        chunked + "x\r\n", chunked + "11111111111111111\r\n", chunked + "2\r\nlong\r\n"}) {
    const auto outcome = read(text);
    EXPECT_EQ(outcome.state, State::malformed) << text;
    EXPECT_TRUE(outcome.problem.starts_with("it is no HTTP")) << text << outcome.problem;
  }
}

TEST(AnswerReader, KeepsItsLimits) {
  const std::string ok = "HTTP/1.1 200 OK\r\n";
  const std::string much(AnswerReader::kLargestHead, 'x');
  std::string many;
  while (many.size() < AnswerReader::kLargestHead)
    many += "A-Header: of forty bytes and no more xx\r\n";
  for (const std::size_t size : {std::size_t{100}, std::size_t{16} << 10U, std::size_t{1} << 20U}) {
    EXPECT_EQ(read(ok + "A: " + much + "\r\n\r\n", size, true).state, State::malformed) << size;
    EXPECT_EQ(read(ok + many + "\r\n", size, true).state, State::malformed) << size;
    EXPECT_EQ(read(ok + "Transfer-Encoding: chunked\r\n\r\n0\r\n" + many + many, size, true).state,
              State::malformed)
        << size;
  }
}

TEST(AnswerReader, StopsWhenTheCallerHasEnough) {
  AnswerReader reader;
  reader.give("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello");
  ASSERT_EQ(reader.read_head(), State::complete);
  std::string body;
  const auto once = [&](std::string_view piece) {
    body += piece;
    return false;
  };
  EXPECT_EQ(reader.read_body(once), State::stopped);
  reader.give("world");
  EXPECT_EQ(reader.read_body(once), State::stopped);
  EXPECT_EQ(body, "hello");
}

}  // namespace
}  // namespace rubato::http
