#include "rubato/node/agent_messages.h"

#include <gtest/gtest.h>

#include "rubato/core/testing.h"

namespace rubato::node {
namespace {

JobStatus a_status() {
  JobStatus status;
  status.job = job_id(3);
  status.generation = Generation(2);
  status.in_use = {"0.1", "1.0"};
  status.ended = JobEnd{JobEnd::How::failed, 7, "so"};
  return status;
}

JobLaunch a_launch() {
  JobLaunch launch;
  launch.job = job_id(3);
  launch.name = "pearl";
  launch.token = "secret";
  launch.generation = Generation(2);
  launch.slots = {"0.1"};
  launch.command = {"train"};
  launch.most = 2;
  return launch;
}

TEST(AgentMessages, AreReadAsTheyWereWritten) {
  const std::vector<FromAgent> from = {AgentHello{node_id(1), "t", {5, 6}, {a_status()}},
                                       a_status(), AgentBeat{}, AgentBeat{"its disk is full"},
                                       AgentSettled{}};
  for (const FromAgent& message : from) {
    const auto read = parse_from_agent(to_json(message));
    ASSERT_TRUE(read.ok()) << read.error().message;
    EXPECT_EQ(*read, message);
  }
  const std::vector<ToAgent> to = {AgentWelcome{},
                                   NodeTable{{{job_id(3), Generation(9)}}},
                                   LaunchJob{a_launch()},
                                   PlaceJob{job_id(3), Place{Generation(4), {"0.1"}, Batch{8, 1}}},
                                   HaltJob{job_id(3), StopJob{Generation(5)}},
                                   ForgetJob{job_id(3)},
                                   EngineBeat{},
                                   DismissAgent{}};
  for (const ToAgent& message : to) {
    const auto read = parse_to_agent(to_json(message));
    ASSERT_TRUE(read.ok()) << read.error().message;
    EXPECT_EQ(*read, message);
  }
}

TEST(AgentMessages, TheFirstAgentsDidNotSayTheirProtocol) {
  Json old = to_json(FromAgent(AgentHello{node_id(1), "t", {5, 6}, {}}));
  old.erase("protocol");
  EXPECT_EQ(std::get<AgentHello>(parse_from_agent(old).value()).protocol, 1);
  old["protocol"] = -1;
  EXPECT_EQ(parse_from_agent(old).error().message,
            "hello.protocol: must be a whole number from 0 to 1000000");
}

TEST(AgentMessages, AreRefusedWithASentence) {
  const auto from = [](const char* text) {
    const auto read = parse_from_agent(Json::parse(text));
    return read ? "read" : read.error().message;
  };
  const auto to = [](const char* text) {
    const auto read = parse_to_agent(Json::parse(text));
    return read ? "read" : read.error().message;
  };
  EXPECT_EQ(from(R"({"type":"hello","node":-1})"),
            "hello.node: must be a whole number from 0 to 4294967295");
  EXPECT_EQ(from(R"({"type":"hello","node":1,"token":3})"), "hello.token: must be text");
  EXPECT_EQ(from(R"({"type":"beat","more":1})"), "beat: has the unknown field \"more\"");
  EXPECT_EQ(from(R"({"type":"beat","trouble":1})"), "beat.trouble: must be text");
  EXPECT_EQ(from(R"({"type":"settled","more":1})"), "settled: has the unknown field \"more\"");
  EXPECT_EQ(from(R"([])"),
            "unknown message \"\"; the daemon and its agents must be of one version");
  EXPECT_EQ(to(R"({"type":"forget"})"), "forget: lacks the field \"job\"");
  EXPECT_EQ(to(R"({"type":"table","jobs":[{"job":1}]})"),
            "table.jobs[0]: lacks the field \"generation\"");
  EXPECT_NE(to(R"({"type":"table","jobs":[3]})"), "read");
  EXPECT_NE(to(R"({"type":"start","launch":{}})"), "read");
  EXPECT_NE(to(R"({"type":"place","job":1})"), "read");
  EXPECT_NE(to(R"({"type":"kill","job":1})"), "read");
}

}  // namespace
}  // namespace rubato::node
