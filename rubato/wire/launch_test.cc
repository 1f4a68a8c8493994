#include "rubato/wire/launch.h"

#include <gtest/gtest.h>

namespace rubato::wire {
namespace {

TEST(Launch, WorkersMessagesComeBackAsTheyWere) {
  const std::vector<FromWorker> messages = {
      Hello{7, "token", 123, "unix:/x"},
      Beat{9},
      Report{{{"step", 3}, {"loss", 0.5}}},
      Notice{"members", {{"uids", {1, 2}}, {"generation", MembershipGeneration{3, 1}}}},
      Report{{{"step", 4}}, 12},
      Notice{"state", Json::object(), 13},
      WorkerHello{2, 1, 7, 3, 4, true, {5, 6}, 99},
      WorkerHello{},
  };
  for (const FromWorker& message : messages) {
    const Json json = to_json(message);
    const auto again = parse_from_worker(json);
    ASSERT_TRUE(again.ok()) << again.error().message;
    EXPECT_EQ(again->index(), message.index());
    EXPECT_EQ(to_json(*again), json);
    EXPECT_FALSE(parse_from_launcher(json).ok());
  }
}

TEST(Launch, LaunchersMessagesComeBackAsTheyWere) {
  const std::vector<FromLauncher> messages = {
      Welcome{{{1, "unix:/a"}, {2, "unix:/b"}}, {4, {1, 2, 3}}, true},
      MembershipPlan{5, {1}},
      MembershipPlan{6, {}},
      Stop{},
      Throttle{0.25},
      RosterWord{2, 1, {4, {1, 2}}, {3}, 1, {{1, "tcp:[::1]:7"}}},
      RosterWord{},
      MasterBeat{17},
  };
  for (const FromLauncher& message : messages) {
    const Json json = to_json(message);
    const auto again = parse_from_launcher(json);
    ASSERT_TRUE(again.ok()) << again.error().message;
    EXPECT_EQ(again->index(), message.index());
    EXPECT_EQ(to_json(*again), json);
    EXPECT_FALSE(parse_from_worker(json).ok());
  }
}

TEST(Launch, UnknownFieldsAreIgnored) {
  EXPECT_TRUE(parse_from_worker({{"type", "beat"}, {"step", 1}, {"mood", "good"}}).ok());
  EXPECT_TRUE(parse_from_launcher({{"type", "stop"}, {"why", "news"}}).ok());
}

TEST(Launch, RefusesWhatIsNoMessage) {
  const std::vector<Json> all = {
      Json::object(),
      Json::array(),
      Json(7),
      {{"type", 7}},
      {{"type", "dance"}},
      {{"type", "hello"}, {"uid", "one"}},
      {{"type", "beat"}},
      {{"type", "notice"}, {"kind", "members"}},
      {{"type", "welcome"}, {"peers", {{{"uid", 1}}}}},
      {{"type", "plan"}, {"plan", {{"number", 1}}}},
      {{"type", "standing"}, {"uid", 1}},
      {{"type", "standing"}, {"generation", {1}}},
      {{"type", "roster"}, {"round", 1}},
      {{"type", "plan"}, {"plan", {{"number", 1}, {"workers", "all"}}}},
  };
  for (const Json& json : all) {
    EXPECT_FALSE(parse_from_worker(json).ok()) << json;
    EXPECT_FALSE(parse_from_launcher(json).ok()) << json;
  }
}

TEST(Launch, GenerationsAreOrderedByPlanThenRevision) {
  EXPECT_LT((MembershipGeneration{1, 9}), (MembershipGeneration{2, 0}));
  EXPECT_LT((MembershipGeneration{2, 0}), (MembershipGeneration{2, 1}));
  EXPECT_EQ(Json(MembershipGeneration{2, 1}).get<MembershipGeneration>(),
            (MembershipGeneration{2, 1}));
}

}  // namespace
}  // namespace rubato::wire
