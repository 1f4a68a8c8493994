#include "rubato/http/change_feed.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <string>

#include "rubato/http/client.h"

namespace rubato::http {
namespace {

const Caller kAda{"ada", false};
const Caller kBo{"bo", false};
const Caller kAdmin{"eve", true};

News change(const std::string& user, std::uint32_t id, int value) {
  return {user, "job", id, Json{{"id", id}, {"value", value}}};
}

std::vector<ServerEvent> events_of(const ChangeFeed::Delivery& delivery) {
  std::vector<ServerEvent> events;
  EventReader reader;
  if (!delivery.bytes) return events;
  reader.take(*delivery.bytes, [&](const ServerEvent& event) {
    events.push_back(event);
    return true;
  });
  EXPECT_EQ(reader.buffered(), 0U) << "every event is whole";
  return events;
}

TEST(ChangeFeed, SendsTheNewestOfEachThingInOrder) {
  ChangeFeed feed({"e", 100, 10});
  feed.publish(change("ada", 1, 10));
  feed.publish(change("ada", 2, 20));
  feed.publish(change("ada", 1, 11));
  const auto delivery = feed.since(0, kAda);
  const auto events = events_of(delivery);
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[0].id, "e-2");
  EXPECT_EQ(events[0].data, R"({"id":2,"value":20})");
  EXPECT_EQ(events[1].id, "e-3");
  EXPECT_EQ(events[1].event, "job");
  EXPECT_EQ(events[1].data, R"({"id":1,"value":11})");
  EXPECT_EQ(delivery.position, 3U);
  EXPECT_EQ(feed.since(3, kAda).bytes, nullptr);
}

TEST(ChangeFeed, ShowsEachUserTheirOwn) {
  ChangeFeed feed({"e", 100, 10});
  feed.publish(change("ada", 1, 10));
  feed.publish({"", "policy", 0, Json{{"policy", "srtf"}}});
  EXPECT_EQ(events_of(feed.since(0, kAda)).size(), 2U);
  EXPECT_EQ(events_of(feed.since(0, kAdmin)).size(), 2U);
  const auto other = events_of(feed.since(0, kBo));
  ASSERT_EQ(other.size(), 1U);
  EXPECT_EQ(other[0].event, "policy");
}

TEST(ChangeFeed, AUserIsNotToldToResyncBecauseOthersAreBusy) {
  ChangeFeed feed({"e", 8, 10});
  feed.publish(change("bo", 1000, 1));
  feed.publish(change("bo", 1001, 1));
  feed.publish({"", "policy", 0, Json()});
  for (std::uint32_t i = 0; i < 6; ++i) feed.publish(change("ada", i, 0));
  EXPECT_EQ(feed.position_of("e-1", kBo), 1U) << "the first is forgotten, but was seen";
  EXPECT_EQ(feed.position_of("e-0", kBo), std::nullopt);
  for (std::uint32_t i = 0; i < 50; ++i) feed.publish(change("ada", i, 0));
  EXPECT_TRUE(feed.since(2, kBo).resync) << "everybody's policy is forgotten";
  EXPECT_EQ(feed.since(3, kBo).bytes, nullptr);
  EXPECT_EQ(feed.since(3, kBo).position, feed.newest());
  EXPECT_TRUE(feed.since(3, kAda).resync);
  EXPECT_TRUE(feed.since(3, kAdmin).resync);
}

TEST(ChangeFeed, TellsThoseWhoAreTooSlowToResync) {
  ChangeFeed feed({"e", 8, 4});
  for (std::uint32_t i = 0; i < 5; ++i) feed.publish(change("ada", i, 0));
  const auto many = feed.since(0, kAda);
  EXPECT_TRUE(many.resync) << "five things, and four at once";
  EXPECT_EQ(events_of(many).at(0).event, "resync");
  EXPECT_EQ(events_of(many).at(0).id, "e-5");
  for (int i = 0; i < 20; ++i) feed.publish(change("ada", 1, i));
  const auto one = feed.since(5, kAda);
  EXPECT_FALSE(one.resync) << "one thing, however often it changes";
  EXPECT_EQ(one.events, 1U);
  for (std::uint32_t i = 10; i < 30; ++i) feed.publish(change("ada", i, 0));
  EXPECT_TRUE(feed.since(25, kAda).resync) << "some are forgotten";
}

TEST(ChangeFeed, ResumesWhereNothingIsForgotten) {
  ChangeFeed feed({"e", 4, 4});
  for (std::uint32_t i = 0; i < 6; ++i) feed.publish(change("ada", i, 0));
  EXPECT_EQ(feed.position_of("e-6", kAda), 6U);
  EXPECT_EQ(feed.position_of("e-2", kAda), 2U);
  EXPECT_EQ(feed.position_of("e-1", kBo), 1U) << "none of those was bo's";
  for (const char* bad : {"e-1", "e-7", "f-5", "5", "e-", "e--1", "e-5x", ""}) {
    EXPECT_EQ(feed.position_of(bad, kAda), std::nullopt) << bad;
  }
}

TEST(ChangeFeed, WakesOnceForEachRound) {
  ChangeFeed feed;
  int woken = 0;
  feed.on_change([&] { ++woken; });
  feed.publish(change("ada", 1, 0));
  feed.publish(change("ada", 2, 0));
  EXPECT_EQ(woken, 1);
  feed.deliveries_begin();
  feed.publish(change("ada", 3, 0));
  EXPECT_EQ(woken, 2);
}

TEST(ChangeFeed, SharesWhatIsTheSame) {
  ChangeFeed feed;
  feed.publish(change("ada", 1, 0));
  SharedDeliveries deliveries(feed);
  EXPECT_EQ(deliveries.since(0, kAda).bytes, deliveries.since(0, kAda).bytes);
  EXPECT_EQ(deliveries.since(0, kAdmin).bytes, deliveries.since(0, {"other", true}).bytes);
  EXPECT_EQ(deliveries.since(0, kBo).bytes, nullptr);
}

TEST(ChangeFeed, NumbersThatAreNoTextDoNotBreakTheStream) {
  ChangeFeed feed;
  feed.publish({"ada", "job", 1, Json{{"name", "a\xff\nb"}}});
  EXPECT_EQ(events_of(feed.since(0, kAda)).size(), 1U);
}

// For any order of publications, deliveries and lost connections: unless a watcher was told to
// resync, it knows the newest value of everything of its own, and never anything of another user.
RC_GTEST_PROP(ChangeFeed, WatchersEndUpWithTheTruth, ()) {
  ChangeFeed feed({"e", 4, 3});
  std::map<std::uint32_t, int> truth;
  std::map<std::uint32_t, int> known;
  std::uint64_t position = 0;
  std::string last = "e-0";
  const auto serve = [&] {
    const auto delivery = feed.since(position, kAda);
    position = delivery.position;
    for (const auto& event : events_of(delivery)) {
      last = event.id;
      if (event.event == "resync") {
        known = truth;
        continue;
      }
      const auto body = Json::parse(event.data);
      RC_ASSERT(truth.count(body["id"].get<std::uint32_t>()) == 1);
      known[body["id"].get<std::uint32_t>()] = body["value"].get<int>();
    }
  };
  const auto steps = *rc::gen::container<std::vector<int>>(rc::gen::inRange(0, 12));
  int value = 0;
  for (const int step : steps) {
    ++value;
    if (step < 6) {
      const auto id = static_cast<std::uint32_t>(step);
      truth[id] = value;
      feed.publish(change("ada", id, value));
    } else if (step < 9) {
      feed.publish(change("bo", static_cast<std::uint32_t>(100 + step), value));
    } else if (step < 11) {
      serve();
    } else {
      const auto back = feed.position_of(last, kAda);
      if (!back) known = truth;
      position = back.value_or(feed.newest());
    }
  }
  serve();
  RC_ASSERT(known == truth);
}

}  // namespace
}  // namespace rubato::http
