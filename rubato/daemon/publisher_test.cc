#include "rubato/daemon/publisher.h"

#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "rubato/daemon/testing_daemon.h"
#include "rubato/http/client.h"

namespace rubato::daemon {
namespace {

class PublisherTest : public testing::Test {
 protected:
  // What the caller is told of a publication, with all jobs said to have changed.
  std::vector<ServerEvent> published(const Caller& caller) {
    const auto before = feed_.newest();
    std::set<JobId> all;
    for (const auto& [id, job] : daemon_.core->state().jobs()) all.insert(id);
    publisher_.publish(*daemon_.core, all);
    std::vector<ServerEvent> events;
    const auto delivery = feed_.since(before, caller);
    if (!delivery.bytes) return events;
    EventReader().take(*delivery.bytes, [&](const ServerEvent& event) {
      events.push_back(event);
      return true;
    });
    return events;
  }

  TestDaemon daemon_;
  ChangeFeed feed_;
  Publisher publisher_{feed_};
};

TEST_F(PublisherTest, NodesAreToldAsTheyAreShownToThoseWhoMaySeeNoJobs) {
  daemon_.start();
  daemon_.submit(kAda, job_file("hers", 1e6, 2, 2));
  static_cast<void>(published(kBob));
  Json shown = daemon_.ask(kBob, ShowNodes{}).body["nodes"][0];
  daemon_.ask(kRoot, SetNode{NodeId(0), NodeState::draining});
  const auto events = published(kBob);
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[0].event, "node");
  EXPECT_EQ(events[1].event, "decision") << "her job is to move";
  const Json node = Json::parse(events[0].data);
  shown["state"] = "draining";
  shown["since"] = node["since"];
  EXPECT_EQ(node, shown);
  EXPECT_EQ(node["used"].size(), 2U);
  EXPECT_TRUE(published(kBob).empty()) << "nothing has changed";
}

TEST_F(PublisherTest, ThePolicyIsToldWhenItIsSwitched) {
  daemon_.start();
  const auto first = published(kBob);
  ASSERT_EQ(first.size(), 1U);
  EXPECT_EQ(first[0].event, "policy");
  EXPECT_EQ(first[0].data, R"({"policy":"fifo-backfill"})");
  EXPECT_EQ(daemon_.ask(kRoot, SwitchPolicy{"srtf"}).status, 200);
  const auto events = published(kBob);
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].event, "policy");
  EXPECT_EQ(events[0].data, R"({"policy":"srtf"})");
}

TEST_F(PublisherTest, JobsAreToldToTheirOwnersButNotTheRunsThatMeasureThem) {
  daemon_.options.policy = "elasticflow";
  daemon_.start();
  static_cast<void>(published(kRoot));
  JobFile job = job_file("unknown", 400, 1, 8);
  job.deadline_after = from_seconds(600);
  const Answer answer = daemon_.submit(kAda, job);
  EXPECT_EQ(answer.body["state"], "PROFILING");
  ASSERT_EQ(daemon_.core->state().jobs().size(), 2U) << "the job, and the run that measures it";
  const auto his = published(kBob);
  ASSERT_EQ(his.size(), 1U) << "only that GPUs were given to somebody";
  EXPECT_EQ(his[0].event, "decision");
  EXPECT_TRUE(Json::parse(his[0].data)["changes"][0]["job"].is_null());
  for (const Caller& caller : {kAda, kRoot}) {
    const auto events = published(caller);
    ASSERT_EQ(events.size(), 1U);
    EXPECT_EQ(events[0].event, "job");
    EXPECT_EQ(Json::parse(events[0].data)["id"], answer.body["id"]);
  }
}

TEST_F(PublisherTest, ADecisionIsToldToEverybodyAndShowsOnlyTheirOwnJobs) {
  daemon_.start();
  static_cast<void>(published(kBob));
  daemon_.submit(kAda, job_file("hers", 1e6, 2, 2));
  const auto before = feed_.newest();
  publisher_.publish(*daemon_.core, {});
  const auto told = [&](const Caller& caller) {
    Json body;
    const auto delivery = feed_.since(before, caller);
    EXPECT_TRUE(delivery.bytes);
    EventReader().take(*delivery.bytes, [&](const ServerEvent& event) {
      if (event.event == "decision") body = Json::parse(event.data);
      return true;
    });
    return body;
  };
  const Json listed = daemon_.ask(kAda, ShowDecisions{}).body["decisions"][0];
  EXPECT_EQ(told(kAda), listed);
  EXPECT_EQ(told(kAda)["changes"][0]["job"], 1);
  EXPECT_EQ(told(kRoot)["changes"][0]["job"], 1);
  EXPECT_TRUE(told(kBob)["changes"][0]["job"].is_null());
  EXPECT_TRUE(told(kBob)["changes"][0]["reason"].is_null());
  EXPECT_EQ(told(kBob)["changes"][0]["to"], 2);
}

}  // namespace
}  // namespace rubato::daemon
