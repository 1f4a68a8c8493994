// The connections of workers that span hosts, in one process: each worker has its own Links, and
// the test is their master. Connections are broken under them.
#include "rubato/member/links.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <functional>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <span>
#include <sys/socket.h>
#include <sys/stat.h>

#include "rubato/wire/frame_server.h"

namespace rubato::member {
namespace {

wire::JobKey links_key(const std::string& secret = "secret") {
  return wire::key_of_round(secret, "pearl", 0, 1);
}

class LinksTest : public testing::Test {
 protected:
  struct Node {
    std::unique_ptr<Links> links;
    std::vector<std::string> events;
    bool welcomed = false;
    int by_network = 0;  // data connections
  };
  static bool by_network(int fd) {
    sockaddr_storage address{};
    socklen_t size = sizeof(address);
    EXPECT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size), 0);
    return address.ss_family != AF_UNIX;
  }
  // What the master knows of a worker.
  struct Known {
    std::string address;
    int connection = -1;
    int hellos = 0;
    std::vector<std::int64_t> numbers;
    std::vector<wire::Peer> peers;
  };

  void SetUp() override {
    auto listener = wire::listen_on("tcp:127.0.0.1:0");
    ASSERT_TRUE(listener.ok());
    address_ = *wire::address_of(*listener);
    master_.listen(std::move(*listener), wire::find_worker_key(links_key()));
  }

  Node& start(Uid uid, const wire::JobKey& key = links_key()) {
    Node& node = nodes_[uid];
    Place place;
    place.launcher = address_;
    place.uid = uid;
    place.key = key;
    place.directory = directory_;
    Links::Hooks hooks;
    hooks.roster = [&node](const wire::RosterWord& word) {
      node.welcomed = true;
      node.links->dial(word.peers);
    };
    hooks.standing = [uid](std::int64_t connection) {
      wire::WorkerHello hello;
      hello.connection = connection;
      hello.uid = uid;
      return hello;
    };
    hooks.difference = [](const Identity&) { return std::string(); };
    const auto note = [&node](const char* what) {
      return [&node, what](Uid peer) { node.events.push_back(fmt::format("{} {}", what, peer)); };
    };
    hooks.connected = note("connected");
    hooks.lost = note("lost");
    hooks.dead = note("dead");
    hooks.message = [&node](Uid peer, const Json& message) {
      node.events.push_back(fmt::format("{} says {}", peer, message.at("type").get<std::string>()));
    };
    hooks.data = [&node](Uid peer, std::int64_t recovery, const wire::Link& link) {
      node.by_network += by_network(link.fd());
      node.events.push_back(fmt::format("data {} of {}", peer, recovery));
    };
    hooks.refused = [](const std::string&) {};
    hooks.stop = [] {};
    hooks.throttle = [](double) {};
    hooks.orphaned = [] {};
    node.links = std::make_unique<Links>(poller_, place, Identity{"build", Json::object()}, hooks);
    EXPECT_TRUE(node.links->start().ok());
    return node;
  }

  // No test depends on this time. It ends a test that would hang.
  void until(const std::function<bool()>& condition) {
    const auto patience = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    while (!condition()) {
      ASSERT_LT(std::chrono::steady_clock::now(), patience) << "waited for ever";
      turn();
    }
  }
  void turn() {
    poller_.wait(std::chrono::milliseconds(5));
    for (auto& [uid, node] : nodes_) node.links->tick(std::chrono::steady_clock::now(), 0);
  }
  static long count(const Node& node, const std::string& event) {
    return std::count(node.events.begin(), node.events.end(), event);
  }

  // Breaks every connection of this process to the port of that address.
  static void break_connections_to(const std::string& address) {
    const auto port = static_cast<std::uint16_t>(std::stoi(address.substr(address.rfind(':') + 1)));
    for (int fd = 0; fd < 1024; ++fd) {
      sockaddr_in peer{};
      socklen_t size = sizeof(peer);
      if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) == 0 &&
          peer.sin_family == AF_INET && ntohs(peer.sin_port) == port) {
        shutdown(fd, SHUT_RDWR);
      }
    }
  }

  void hear(int key, const Json& json) {
    const auto message = wire::parse_from_worker(json);
    ASSERT_TRUE(message.ok()) << message.error().message;
    const Uid uid = wire::worker_of(links_key(), master_.peer(key)).value_or(0);
    ASSERT_NE(uid, 0);
    Known& known = known_[uid];
    if (const auto* hello = std::get_if<wire::Hello>(&*message)) {
      if (known.hellos++ == 0) {
        for (const auto& [other, entry] : known_) {
          if (other != uid) known.peers.push_back({other, entry.address});
        }
      }
      known.address = hello->address;
      known.connection = key;
      master_.send(key, wire::to_json(wire::FromLauncher(
                            wire::RosterWord{1, 1, {1, {1, 2}}, {}, 1, known.peers})));
    }
    std::int64_t number = 0;
    if (const auto* report = std::get_if<wire::Report>(&*message)) number = report->number;
    if (const auto* notice = std::get_if<wire::Notice>(&*message)) number = notice->number;
    if (number == 0) return;
    if (known.numbers.empty() || number > known.numbers.back()) known.numbers.push_back(number);
    if (confirms_) {
      master_.send(key, wire::to_json(wire::FromLauncher(wire::MasterBeat{number})));
    }
  }

  wire::Poller poller_;
  std::string address_;
  bool confirms_ = true;
  wire::FrameServer master_{poller_,
                            {.message = [this](int key, const Json& json) { hear(key, json); },
                             .dropped = [](int) {},
                             .handled = [] {}}};
  std::string directory_;  // of the nodes that start from now on
  std::map<Uid, Known> known_;
  std::map<Uid, Node> nodes_;
};

TEST_F(LinksTest, PeersMeetAndABrokenConnectionIsMadeAgain) {
  Node& one = start(1);
  until([&] { return one.welcomed; });
  Node& two = start(2);
  until([&] { return count(one, "connected 2") == 1 && count(two, "connected 1") == 1; });
  EXPECT_TRUE(two.links->dials(1));
  EXPECT_FALSE(one.links->dials(2));
  break_connections_to(known_[1].address);
  until([&] { return count(one, "connected 2") == 2 && count(two, "connected 1") == 2; });
  EXPECT_EQ(count(one, "lost 2"), 1);
  EXPECT_EQ(count(two, "lost 1"), 1);
  EXPECT_EQ(count(one, "dead 2") + count(two, "dead 1"), 0);
  one.links->send(2, {{"type", "ready"}});
  until([&] { return count(two, "1 says ready") == 1; });
}

TEST_F(LinksTest, AForgottenPeerIsNotHeardAgain) {
  Node& one = start(1);
  until([&] { return one.welcomed; });
  Node& two = start(2);
  until([&] { return count(two, "connected 1") == 1; });
  one.links->forget(2);
  until([&] { return count(two, "lost 1") == 1; });
  for (int i = 0; i < 100; ++i) turn();  // it dials again, in vain
  EXPECT_EQ(count(two, "connected 1"), 1);
  EXPECT_TRUE(one.links->peers().empty());
}

TEST_F(LinksTest, WhatTheMasterHasNotConfirmedIsSentAgain) {
  Node& one = start(1);
  until([&] { return one.welcomed; });
  confirms_ = false;
  one.links->report({{"step", 1}});
  until([&] { return known_[1].numbers.size() == 1; });
  break_connections_to(address_);
  one.links->notice("state", Json::object());
  until([&] { return known_[1].hellos == 2; });
  until([&] { return known_[1].numbers == std::vector<std::int64_t>{1, 2}; });
}

TEST_F(LinksTest, AWorkerWithAnotherKeyMeetsNobody) {
  Node& one = start(1);
  until([&] { return one.welcomed; });
  Node& stranger = start(2, links_key("another secret"));
  Node& late = start(3, wire::key_of_round("secret", "pearl", 0, 2));
  stranger.links->dial({{1, known_[1].address}});
  late.links->dial({{1, known_[1].address}});
  for (int i = 0; i < 200; ++i) turn();
  EXPECT_FALSE(stranger.welcomed);
  EXPECT_FALSE(late.welcomed);
  EXPECT_TRUE(one.events.empty());
  EXPECT_TRUE(stranger.events.empty());
  EXPECT_EQ(known_.size(), 1U);
}

TEST_F(LinksTest, WorkersOfOneHostDoNotUseTheNetwork) {
  std::string directory = testing::TempDir() + "/links-XXXXXX";
  ASSERT_NE(mkdtemp(directory.data()), nullptr);
  directory_ = directory;
  Node& one = start(1);
  until([&] { return one.welcomed; });
  Node& two = start(2);
  until([&] { return count(one, "connected 2") == 1 && count(two, "connected 1") == 1; });
  const auto exchange_data = [&] {
    const long before = count(one, "data 2 of 5");
    Links::Dialled dialled = two.links->dial_data(1, 5);
    EXPECT_TRUE(dialled.link.open());
    const auto greeting = std::as_bytes(std::span(dialled.greeting));
    std::size_t sent = 0;
    until([&] {
      if (sent < greeting.size()) sent += dialled.link.write(greeting.subspan(sent)).bytes;
      return count(one, "data 2 of 5") > before;
    });
  };
  exchange_data();
  EXPECT_EQ(one.by_network, 0);
  // Somebody else could enter the directory: a third worker does not use it.
  ASSERT_EQ(chmod(directory.c_str(), 0755), 0);
  Node& three = start(3);
  until([&] { return count(three, "connected 1") == 1 && count(three, "connected 2") == 1; });
  Links::Dialled dialled = three.links->dial_data(1, 5);
  EXPECT_TRUE(by_network(dialled.link.fd()));
  nodes_.clear();
  std::filesystem::remove_all(directory);
}

}  // namespace
}  // namespace rubato::member
