#include "rubato/wire/frame_server.h"

#include <functional>
#include <gtest/gtest.h>
#include <memory>
#include <vector>

namespace rubato::wire {
namespace {

using namespace std::chrono_literals;

// A server that keeps what it receives, and clients that talk to it.
class FrameServerTest : public testing::Test {
 protected:
  FrameServerTest()
      : server_(poller_, {.message =
                              [this](int key, const Json& message) {
                                heard_.push_back(message);
                                key_ = key;
                                if (on_message_) on_message_(key);
                              },
                          .dropped = [this](int key) { dropped_.push_back(key); },
                          .handled = [this] { ++handled_; }}) {
    listen();
  }

  void listen() {
    auto listener = listen_on("tcp:127.0.0.1:0");
    ASSERT_TRUE(listener.ok());
    address_ = address_of(*listener).value();
    server_.listen(std::move(*listener));
  }
  [[nodiscard]] FrameStream client() const {
    return FrameStream(std::move(connect_to(address_).value()));
  }
  // Without a limit, because ctest ends a test that hangs.
  void until(const std::function<bool()>& done) {
    while (!done()) poller_.wait(20ms);
  }

  Poller poller_;
  FrameServer server_;
  std::string address_;
  std::vector<Json> heard_;
  std::vector<int> dropped_;
  int handled_ = 0;
  int key_ = -1;
  std::function<void(int)> on_message_;
};

TEST_F(FrameServerTest, HearsAndAnswers) {
  FrameStream client = this->client();
  client.send({{"n", 1}});
  client.send({{"n", 2}});
  until([&] { return heard_.size() == 2; });
  EXPECT_EQ(heard_[1]["n"], 2);
  EXPECT_GT(handled_, 0);
  server_.send(key_, {{"answer", 42}});
  std::vector<Json> answers;
  until([&] {
    answers = client.receive();
    return !answers.empty();
  });
  EXPECT_EQ(answers.front()["answer"], 42);
  EXPECT_FALSE(server_.unsent(key_));
}

TEST_F(FrameServerTest, SaysWhenTheOtherSideIsGoneAfterItsLastWords) {
  {
    FrameStream client = this->client();
    client.send({{"n", 1}});
  }
  until([&] { return !dropped_.empty(); });
  EXPECT_EQ(heard_.size(), 1U);
  EXPECT_EQ(dropped_, std::vector<int>{key_});
  EXPECT_FALSE(server_.contains(key_));
  server_.send(key_, {{"n", 2}});
  server_.drop(key_);
  server_.read(key_);
  EXPECT_EQ(dropped_.size(), 1U) << "once";
}

TEST_F(FrameServerTest, AHandlerMayDropItsOwnConnection) {
  on_message_ = [this](int key) { server_.drop(key); };
  FrameStream client = this->client();
  client.send({{"n", 1}});
  client.send({{"n", 2}});
  until([&] { return !dropped_.empty(); });
  EXPECT_EQ(heard_.size(), 1U) << "nothing is heard from it any more";
  until([&] {
    [[maybe_unused]] const auto none = client.receive();
    return !client.open();
  });
}

TEST_F(FrameServerTest, KeepsItsConnectionsWhenItListensElsewhere) {
  FrameStream before = client();
  before.send({{"n", 1}});
  until([&] { return heard_.size() == 1; });
  const int first = key_;
  listen();
  FrameStream after = client();
  after.send({{"n", 2}});
  until([&] { return heard_.size() == 2; });
  EXPECT_NE(key_, first);
  before.send({{"n", 3}});
  until([&] { return heard_.size() == 3; });
  EXPECT_EQ(key_, first);
}

}  // namespace
}  // namespace rubato::wire
