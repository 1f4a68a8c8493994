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
  daemon_.ask(kRoot, SetNode{NodeId(0), NodeState::draining});
  const auto events = published(kBob);
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].event, "node");
  const Json node = Json::parse(events[0].data);
  EXPECT_EQ(node, daemon_.ask(kBob, ShowNodes{}).body["nodes"][0]);
  EXPECT_EQ(node["state"], "draining");
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
  EXPECT_TRUE(published(kBob).empty());
  for (const Caller& caller : {kAda, kRoot}) {
    const auto events = published(caller);
    ASSERT_EQ(events.size(), 1U);
    EXPECT_EQ(events[0].event, "job");
    EXPECT_EQ(Json::parse(events[0].data)["id"], answer.body["id"]);
  }
}

}  // namespace
}  // namespace rubato::daemon
