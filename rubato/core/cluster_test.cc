#include "rubato/core/cluster.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <string>
#include <string_view>
#include <vector>

#include "rubato/base/random.h"
#include "rubato/core/testing.h"

namespace rubato::core {
namespace {

TEST(Cluster, ReadsGroupsOfNodes) {
  const Cluster cluster = cluster_of("2x8:v100, 3x4:k80,1x16:v100");
  ASSERT_EQ(cluster.nodes().size(), 6U);
  ASSERT_EQ(cluster.types(), 2);
  EXPECT_EQ(cluster.type_name(gpu_type(0)), "v100");
  EXPECT_EQ(cluster.type_name(gpu_type(1)), "k80");
  EXPECT_EQ(cluster.node(node_id(1)).gpus, 8);
  EXPECT_EQ(cluster.node(node_id(2)).gpus, 4);
  EXPECT_EQ(cluster.node(node_id(5)).type, gpu_type(0));
  EXPECT_EQ(cluster.installed(gpu_type(0)), 32);
  EXPECT_EQ(cluster.installed(gpu_type(1)), 12);
  EXPECT_EQ(cluster.installed(), 44);
  EXPECT_EQ(cluster.usable(), 44);
  EXPECT_EQ(cluster.largest_type(), 32);
  EXPECT_EQ(cluster.node_size(gpu_type(0)), 16);
  EXPECT_EQ(cluster.node_size(gpu_type(1)), 4);
  ASSERT_EQ(cluster.groups().size(), 3U);
  EXPECT_EQ(cluster.groups()[2].gpus_per_node, 16);
}

TEST(Cluster, AnUnnamedTypeIsGpu) {
  const Cluster cluster = cluster_of("1x1,1x2:gpu");
  EXPECT_EQ(cluster.types(), 1);
  EXPECT_EQ(cluster.type_name(gpu_type(0)), "gpu");
  EXPECT_EQ(cluster.installed(), 3);
}

TEST(Cluster, TakesTheLargestThatIsAllowed) {
  EXPECT_EQ(cluster_of("1x64").installed(), 64);
  EXPECT_EQ(cluster_of("156250x64").installed(), 10'000'000);
}

TEST(Cluster, RefusesNonsenseWithOneSentenceThatShowsTheRightForm) {
  struct Case {
    std::string text;
    std::string_view why;
  };
  std::string many_types = "1x1:t0";
  for (int i = 1; i <= 200; ++i) many_types += fmt::format(",1x1:t{}", i);
  for (const auto& [text, why] : std::vector<Case>{
           {"", "has no \"x\""},
           {"8", "has no \"x\""},
           {"16X8", "has no \"x\""},
           {"2x4,", "has no \"x\""},
           {",2x4", "has no \"x\""},
           {"0x8", "does not name two whole numbers above 0"},
           {"8x0", "does not name two whole numbers above 0"},
           {"-1x8", "does not name two whole numbers above 0"},
           {"+1x8", "does not name two whole numbers above 0"},
           {"1.5x8", "does not name two whole numbers above 0"},
           {"x8", "does not name two whole numbers above 0"},
           {"8x", "does not name two whole numbers above 0"},
           {"2x4x8", "does not name two whole numbers above 0"},
           {"2 x 4", "does not name two whole numbers above 0"},
           {"99999999999999999999x1", "does not name two whole numbers above 0"},
           {"1x65", "a node has at most 64 GPUs"},
           {"10000001x1", "more than 10000000 GPUs"},
           {"9223372036854775807x64", "more than 10000000 GPUs"},
           {"156250x64,1x1", "more than 10000000 GPUs"},
           {"2x4:", "is not a type name"},
           {"2x4:a b", "is not a type name"},
           {"2x4:a:b", "is not a type name"},
           {"2x4:\xc3\xa9", "is not a type name"},
           {"2x4:" + std::string(41, 'a'), "is not a type name"},
           {many_types, "more than 200 GPU types"},
       }) {
    const auto cluster = parse_cluster(text);
    ASSERT_FALSE(cluster.ok()) << text;
    EXPECT_NE(cluster.error().message.find(why), std::string::npos) << cluster.error().message;
    EXPECT_NE(cluster.error().message.find("for example 16x8"), std::string::npos);
    EXPECT_LT(cluster.error().message.size(), 400U) << "a long input is not repeated in full";
  }
}

TEST(Cluster, HasNodesWithNamesLabelsAndTypes) {
  Cluster cluster = cluster_of("2x4:a");
  EXPECT_EQ(cluster.name(node_id(1)), "node1");
  EXPECT_TRUE(cluster.labels(node_id(1)).empty());
  const Cluster before = cluster;
  EXPECT_EQ(cluster.add({"tux07", "b", 8, {{"rack", "3"}}}), node_id(2));
  EXPECT_EQ(cluster.add({"tux08", "a", 4}), node_id(3));
  EXPECT_EQ(before.nodes().size(), 2U);
  EXPECT_EQ(cluster.name(node_id(2)), "tux07");
  EXPECT_EQ(cluster.labels(node_id(2)).at("rack"), "3");
  EXPECT_EQ(cluster.type_name(cluster.node(node_id(2)).type), "b");
  EXPECT_EQ(cluster.node(node_id(3)).type, gpu_type(0));
  EXPECT_EQ(cluster.node_size(gpu_type(1)), 8);
  EXPECT_EQ(cluster.usable(), 20);
  EXPECT_EQ(cluster.groups().size(), 3U);
  EXPECT_EQ(cluster.find("tux08"), node_id(3));
  EXPECT_EQ(cluster.find("node1"), node_id(1));
  EXPECT_EQ(cluster.find("2"), node_id(2));
  for (const char* no : {"4", "-1", "tux", "node2", ""}) EXPECT_EQ(cluster.find(no), std::nullopt);
  cluster.add({"1", "a", 4});
  EXPECT_EQ(cluster.find("1"), node_id(4)) << "a name counts before a number";
  EXPECT_TRUE(cluster.can_add({"tux09", "a", 64}).ok());
  for (const NewNode& no : {NewNode{"tux07", "a", 4}, NewNode{"node0", "a", 4}, NewNode{"", "a", 4},
                            NewNode{std::string(256, 'x'), "a", 4}, NewNode{"x", "a b", 4},
                            NewNode{"x", "a", 0}, NewNode{"x", "a", 65}})
    EXPECT_FALSE(cluster.can_add(no).ok()) << no.name;
}

TEST(Cluster, GpusOfOthersComeAndGo) {
  Cluster cluster = cluster_of("2x4:a");
  cluster.set_reserved(node_id(0), 0b1100);
  EXPECT_EQ(cluster.usable(), 6);
  EXPECT_EQ(cluster.node(node_id(0)).usable(), 0b0011U);
  cluster.set_state(node_id(0), NodeState::down);
  cluster.set_reserved(node_id(0), 0b1000);
  EXPECT_EQ(cluster.usable(), 4);
  cluster.set_state(node_id(0), NodeState::up);
  EXPECT_EQ(cluster.usable(), 7);
  cluster.reserve(node_id(0), 0b0001);
  EXPECT_EQ(cluster.node(node_id(0)).usable(), 0b0110U);
  cluster.set_reserved(node_id(0), 0);
  EXPECT_EQ(cluster.usable(), 8);
}

TEST(Cluster, CountsAsUsableWhatIsUpAndOnlyThat) {
  Cluster cluster = cluster_of("3x4:a,2x8:b");
  std::vector<NodeState> states(5, NodeState::up);
  Random random(4);
  for (int step = 0; step < 500; ++step) {
    const std::size_t node = random.below(5);
    states[node] = static_cast<NodeState>(random.below(4));
    cluster.set_state(node_id(node), states[node]);
    int usable[2] = {};
    for (std::size_t i = 0; i < 5; ++i) {
      EXPECT_EQ(cluster.node(node_id(i)).state, states[i]);
      if (states[i] == NodeState::up) usable[i < 3 ? 0 : 1] += i < 3 ? 4 : 8;
    }
    ASSERT_EQ(cluster.usable(gpu_type(0)), usable[0]);
    ASSERT_EQ(cluster.usable(gpu_type(1)), usable[1]);
    ASSERT_EQ(cluster.usable(), usable[0] + usable[1]);
    ASSERT_EQ(cluster.installed(), 28) << "a node that is down is still there";
    ASSERT_EQ(cluster.largest_type(), 16);
  }
}

}  // namespace
}  // namespace rubato::core
