#include "rubato/launch/share_messages.h"

#include <csignal>
#include <gtest/gtest.h>

#include "rubato/launch/shares.h"

namespace rubato::launch {
namespace {

const wire::JobKey kKey = wire::key_of_round("secret", "pearl", 0, 1);

ShareStart start_of(Uid uid) {
  ShareStart message{{1, 2, uid}, {}, kKey};
  message.start.uid = uid;
  message.start.command = {"./train", "--steps", "5"};
  message.start.environment = {"A=b", "C=d e"};
  message.start.directory = "/data/job";
  message.start.low_priority = true;
  message.start.inherits = true;
  message.start.world = 4;
  message.start.device = 1;
  return message;
}

TEST(ShareMessages, ComeBackAsTheyWere) {
  const std::vector<ToShare> to = {start_of(3),
                                   ShareSignal{{1, 2, 3}, SIGTERM},
                                   wire::EndsKept{2, {3, 4}},
                                   ShareSecret{"KEY", std::string("\xff\0a", 3)},
                                   ShareAskPort{3},
                                   ShareEnd{},
                                   ShareBeat{}};
  for (const ToShare& message : to) {
    const Json json = to_json(message);
    const auto again = parse_to_share(json);
    ASSERT_TRUE(again.ok()) << again.error().message;
    EXPECT_EQ(again->index(), message.index());
    EXPECT_EQ(to_json(*again), json);
  }
  const std::vector<FromShare> from = {
      ShareStatus{{7, "a", 2, {3}, {4, 5}}, {{4, {true, 9}}, {5, {false, 3}}}},
      ShareStatus{{7, "a", 2, {}, {}, "4711", "x"}, {}, true},
      ShareStarted{3, {100, 12345}},
      SharePort{3, "192.0.2.1", 7000},
      ShareTrouble{3, "there is no such program", false},
      ShareOutput{3, true, "a line"},
      ShareBeat{},
  };
  for (const FromShare& message : from) {
    const Json json = to_json(message);
    const auto again = parse_from_share(json);
    ASSERT_TRUE(again.ok()) << again.error().message;
    EXPECT_EQ(again->index(), message.index());
    EXPECT_EQ(to_json(*again), json);
  }
  const ShareConfig config{"tcp:192.0.2.1:7000", "pearl/0/share/a", "a", kKey.secret, ""};
  EXPECT_EQ(*parse_share_config(to_json(config)), config);
  ShareConfig ended;
  ended.name = "a";
  ended.ended = true;
  EXPECT_EQ(*parse_share_config(to_json(ended)), ended);
}

TEST(ShareMessages, SecretsMayHaveAnyBytes) {
  for (std::size_t size = 0; size < 8; ++size) {
    const std::string content = std::string("\0\xff=\n\x80zz", 7).substr(0, size);
    const auto again = parse_to_share(to_json(ToShare(ShareSecret{"KEY", content})));
    ASSERT_TRUE(again.ok()) << again.error().message;
    EXPECT_EQ(std::get<ShareSecret>(*again).content, content);
  }
  EXPECT_FALSE(parse_to_share({{"type", "secret"}, {"name", "KEY"}, {"content", "a"}}).ok());
}

TEST(ShareMessages, RefuseWhatIsNoMessage) {
  Json no_command = to_json(ToShare(start_of(3)));
  no_command["command"] = Json::array();
  Json bad_key = to_json(ToShare(start_of(3)));
  bad_key["key"]["secret"] = "short";
  const std::vector<Json> all = {
      Json::object(),
      Json(7),
      {{"type", "dance"}},
      no_command,
      bad_key,
      {{"type", "signal"}, {"round", 1}, {"epoch", 1}, {"uid", 1}, {"signal", 0}},
      {{"type", "share"}, {"connection", 1}},
      {{"type", "started"}, {"uid", 1}, {"process", 7}}};
  for (const Json& json : all) {
    EXPECT_FALSE(parse_to_share(json).ok()) << json;
    EXPECT_FALSE(parse_from_share(json).ok()) << json;
    EXPECT_FALSE(parse_share_config(json).ok()) << json;
  }
}

// --- the words of the command line ---

TEST(Hosts, AreNamesWithANumberOfWorkers) {
  const auto hosts = parse_hosts("a:4,me@b.example,[2001:db8::1]:2,[2001:db8::2]");
  ASSERT_TRUE(hosts.ok()) << hosts.error().message;
  EXPECT_EQ(*hosts,
            (std::vector<HostPlace>{
                {"a", 4}, {"me@b.example", 1}, {"[2001:db8::1]", 2}, {"[2001:db8::2]", 1}}));
}

TEST(Hosts, ThatCouldMeanSomethingElseAreRefused) {
  for (const char* text : {"", ",", "a,", "a:0", "a:x", "a:99999", "a,a:2", "-oProxyCommand=x",
                           "a b", "a;b", "$(x)", "a:1:2"}) {
    EXPECT_FALSE(parse_hosts(text).ok()) << text;
  }
  EXPECT_TRUE(check_remote_program("/opt/rubato-1.0/bin/rubato").ok());
  for (const char* text : {"", "-x", "a b", "a;b", "$HOME/rubato", "a'b", "a\"b", "~/rubato"}) {
    EXPECT_FALSE(check_remote_program(text).ok()) << text;
  }
}

TEST(RosterInMemory, KeepsVersionsInOrder) {
  RosterInMemory store;
  Roster roster;
  roster.epoch = 1;
  EXPECT_FALSE(store.create(2, roster));
  EXPECT_TRUE(store.create(1, roster));
  EXPECT_FALSE(store.create(1, roster));
  EXPECT_EQ(store.newest().number, 1);
  EXPECT_EQ(store.newest().roster, roster);
}

// The launcher counts workers, and a number may be left out: the worker was never started.
TEST(RosterMaster, StartsWorkersWithNumbersOfTheLauncher) {
  RosterInMemory store;
  RosterMaster master(store, store.newest());
  ASSERT_TRUE(master.share_said({1, "a", 0, {}, {}}));
  ASSERT_TRUE(master.add_worker("a", 2));
  EXPECT_EQ(master.add_worker("a"), std::optional<Uid>(3));
  EXPECT_EQ(master.roster().not_gone(), (std::vector<Uid>{2, 3}));
  EXPECT_FALSE(master.add_worker("b", 4));
}

TEST(RosterMaster, GivesARoundUpAndBeginsTheNextWhenAllAreGone) {
  RosterInMemory store;
  RosterMaster master(store, store.newest());
  ASSERT_TRUE(master.share_said({1, "a", 0, {}, {}}));
  ASSERT_TRUE(master.add_worker("a", 1));
  ASSERT_TRUE(master.give_up());
  EXPECT_TRUE(master.roster().ending);
  EXPECT_FALSE(master.add_worker("a", 2));
  EXPECT_TRUE(master.look_for_end());
  EXPECT_EQ(master.roster().round, 1);
  ASSERT_TRUE(master.share_said({1, "a", 0, {}, {1}}));
  EXPECT_TRUE(master.look_for_end());
  EXPECT_EQ(master.roster().round, 2);
  EXPECT_TRUE(master.add_worker("a", 2));
}

}  // namespace
}  // namespace rubato::launch
