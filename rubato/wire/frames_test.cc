#include "rubato/wire/frames.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

namespace rubato::wire {
namespace {

std::string bytes_of(std::initializer_list<int> bytes, const std::string& text) {
  std::string all;
  for (const int byte : bytes) all.push_back(static_cast<char>(byte));
  return all + text;
}

TEST(Frames, HaveTheirLengthInFront) {
  EXPECT_EQ(to_frame({{"a", 1}}), bytes_of({7, 0, 0, 0}, R"({"a":1})"));
  FrameReader reader;
  const auto messages = reader.feed(to_frame({{"a", 1}}) + to_frame({{"b", 2}}));
  ASSERT_TRUE(messages.ok());
  ASSERT_EQ(messages->size(), 2U);
  EXPECT_EQ(messages->back()["b"], 2);
}

TEST(Frames, TextThatIsNotUtf8DoesNotThrow) {
  FrameReader reader;
  const auto messages = reader.feed(to_frame({{"path", "a\xff"}}));
  ASSERT_TRUE(messages.ok());
  EXPECT_EQ(messages->size(), 1U);
}

TEST(Frames, RefusesGarbage) {
  const std::vector<std::string> all = {
      bytes_of({255, 255, 255, 255}, ""), bytes_of({1, 0, 64, 0}, ""),
      bytes_of({2, 0, 0, 0}, "[]"),       bytes_of({1, 0, 0, 0}, "{"),
      bytes_of({0, 0, 0, 0}, ""),         bytes_of({13, 0, 0, 0}, R"({"a":1,"a":2})"),
  };
  for (const std::string& bytes : all) {
    FrameReader reader;
    EXPECT_FALSE(reader.feed(bytes).ok());
  }
}

RC_GTEST_PROP(Frames, DoNotDependOnHowTheStreamIsCut, (std::vector<std::string> texts)) {
  std::string stream;
  for (const std::string& text : texts) stream += to_frame({{"size", text.size()}});
  FrameReader reader;
  std::vector<Json> all;
  for (std::size_t at = 0; at < stream.size();) {
    const auto size = *rc::gen::inRange<std::size_t>(1, 20);
    const auto messages = reader.feed(std::string_view(stream).substr(at, size));
    RC_ASSERT(messages.ok());
    all.insert(all.end(), messages->begin(), messages->end());
    at += size;
  }
  RC_ASSERT(all.size() == texts.size());
  for (std::size_t i = 0; i < all.size(); ++i) RC_ASSERT(all[i]["size"] == texts[i].size());
}

struct Pair {
  Pair() {
    int ends[2] = {-1, -1};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
    one = FrameStream(Fd(ends[0]));
    other = FrameStream(Fd(ends[1]));
  }
  FrameStream one, other;
};

TEST(FrameStream, KeepsWhatTheSocketDoesNotTake) {
  Pair pair;
  const std::string large(1'000'000, 'x');
  for (int i = 0; i < 3; ++i) pair.one.send({{"i", i}, {"large", large}});
  EXPECT_TRUE(pair.one.unsent());
  std::vector<Json> all;
  for (int i = 0; i < 10'000 && all.size() < 3; ++i) {
    for (Json& message : pair.other.receive()) all.push_back(std::move(message));
    pair.one.flush();
  }
  ASSERT_EQ(all.size(), 3U);
  EXPECT_EQ(all[2]["i"], 2);
  EXPECT_FALSE(pair.one.unsent());
}

TEST(FrameStream, LastWordsAreHeardThoughTheSpeakerIsGone) {
  Pair pair;
  pair.one.send({{"last", true}});
  pair.one.close();
  pair.other.send({{"lost", true}});
  EXPECT_TRUE(pair.other.open());
  const auto messages = pair.other.receive();
  ASSERT_EQ(messages.size(), 1U);
  EXPECT_FALSE(pair.other.open());
  EXPECT_TRUE(pair.other.receive().empty());
  pair.other.send({{"into", "nothing"}});
}

TEST(FrameStream, ClosesAtGarbage) {
  int ends[2] = {-1, -1};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
  const Fd raw(ends[0]);
  FrameStream stream{Fd(ends[1])};
  ASSERT_EQ(write(raw.get(), "GET / HTTP/1.1\r\n", 16), 16);
  EXPECT_TRUE(stream.receive().empty());
  EXPECT_FALSE(stream.open());
}

}  // namespace
}  // namespace rubato::wire
