#include "rubato/sim/failures.h"

#include <gtest/gtest.h>
#include <string>
#include <vector>

namespace rubato::sim {
namespace {

using Events = std::vector<NodeEvent>;

Cluster cluster_of(int nodes) { return Cluster({{nodes, 8, GpuType(0)}}, {"gpu"}); }

TEST(Failures, ReadsAndSortsAFile) {
  const auto events =
      parse_failures("node,event,time_s\n1,up,9\n1,down,2.5\n0,down,9\n", "f.csv", cluster_of(2));
  ASSERT_TRUE(events.ok()) << events.error().message;
  EXPECT_EQ(*events, (Events{{time_at(2.5), NodeId(1), NodeState::down},
                             {time_at(9), NodeId(0), NodeState::down},
                             {time_at(9), NodeId(1), NodeState::up}}));
  EXPECT_TRUE(parse_failures("time_s,node,event\n", "f.csv", cluster_of(2))->empty());
}

TEST(Failures, RefusesBadFilesWithFileAndLine) {
  const std::string header = "time_s,node,event\n";
  struct Case {
    std::string text, message;
  };
  const std::vector<Case> cases = {
      {"", "f.csv: the file is empty; it needs at least the header time_s,node,event"},
      {"time_s,node\n", "f.csv:1: no column \"event\"; a failures file needs time_s,node,event"},
      {header + "1,0\n", "f.csv:2: 2 fields where the header has 3"},
      {header + "-1,0,up\n",
       "f.csv:2: time_s \"-1\" is not a number of seconds from 0 to 31557600000"},
      {header + "nan,0,up\n",
       "f.csv:2: time_s \"nan\" is not a number of seconds from 0 to 31557600000"},
      {header + "1,2,up\n",
       "f.csv:2: node \"2\" is not one of the cluster's 2 nodes, which are counted from 0"},
      {header + "1,0,broken\n", "f.csv:2: event \"broken\" is neither down nor up"},
  };
  for (const auto& each : cases) {
    const auto events = parse_failures(each.text, "f.csv", cluster_of(2));
    EXPECT_EQ(events.ok() ? "accepted" : events.error().message, each.message) << each.text;
  }
  EXPECT_FALSE(read_failures("/nonexistent/f.csv", cluster_of(2)).ok());
}

TEST(Failures, RandomOnesHaveTheirRate) {
  const auto horizon = from_seconds(86400.0 * 100);
  const auto events = random_failures(cluster_of(100), 0.5, 3600, horizon, 1);
  ASSERT_TRUE(events.ok());
  double down_s = 0;
  std::size_t failures = 0;
  std::vector<Time> since(100, kNever);
  for (const auto& event : *events) {
    auto& start = since[event.node.index()];
    if (event.state == NodeState::down) {
      EXPECT_EQ(start, kNever);  // down and up take turns
      EXPECT_LT(event.at, kStart + horizon);
      start = event.at;
      ++failures;
    } else {
      ASSERT_NE(start, kNever);
      down_s += seconds(event.at - start);
      start = kNever;
    }
  }
  EXPECT_EQ(events->size(), 2 * failures);
  EXPECT_NEAR(static_cast<double>(failures), 5000 / (1 + 0.5 / 24), 4 * 70);  // 4 sigma
  EXPECT_NEAR(down_s / static_cast<double>(failures), 3600, 4 * 3600 / 70.0);
}

TEST(Failures, RandomOnesDependOnSeedAndNodeOnly) {
  const auto horizon = from_seconds(86400.0 * 30);
  const auto few = random_failures(cluster_of(3), 1, 600, horizon, 5);
  EXPECT_EQ(*few, *random_failures(cluster_of(3), 1, 600, horizon, 5));
  EXPECT_NE(*few, *random_failures(cluster_of(3), 1, 600, horizon, 6));
  Events of_first_nodes = *random_failures(cluster_of(9), 1, 600, horizon, 5);
  std::erase_if(of_first_nodes, [](const NodeEvent& event) { return event.node >= NodeId(3); });
  EXPECT_EQ(*few, of_first_nodes);
}

TEST(Failures, RefusesRatesThatMakeNoSense) {
  const auto horizon = from_seconds(86400);
  EXPECT_TRUE(random_failures(cluster_of(2), 0, 600, horizon, 1)->empty());
  EXPECT_FALSE(random_failures(cluster_of(2), -1, 600, horizon, 1).ok());
  EXPECT_FALSE(random_failures(cluster_of(2), 1, -1, horizon, 1).ok());
  EXPECT_FALSE(random_failures(cluster_of(2), 1e12, 0, horizon, 1).ok());
}

}  // namespace
}  // namespace rubato::sim
