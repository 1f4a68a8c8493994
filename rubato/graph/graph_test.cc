#include "rubato/graph/graph.h"

#include <gtest/gtest.h>

#include "rubato/graph/samples.h"

namespace rubato::graph {
namespace {

constexpr const char* kSmall = R"({"name": "small", "operators": [
  {"name": "a", "seconds": 1, "bytes": 10, "memory": 5},
  {"name": "b", "seconds": {"gpu": 2, "cpu": 8}, "inputs": ["a"], "group": "both"},
  {"name": "c", "seconds": 3, "inputs": [{"name": "a", "bytes": 4}, "b"], "group": "both"}]})";

TEST(Graph, ReadsAFileAndWritesItBack) {
  const auto graph = parse_graph(kSmall, "file");
  ASSERT_TRUE(graph.ok()) << graph.error().message;
  ASSERT_EQ(graph->operators.size(), 3U);
  EXPECT_EQ(graph->groups, (std::vector<std::string>{"a", "both"}));
  EXPECT_EQ(graph->operators[0].seconds_on("gpu"), 1);
  EXPECT_EQ(graph->operators[1].seconds_on("cpu"), 8);
  EXPECT_LT(graph->operators[1].seconds_on("tpu"), 0);
  EXPECT_EQ(graph->operators[1].inputs, (std::vector<Input>{{0, 10}}));
  EXPECT_EQ(graph->operators[2].inputs, (std::vector<Input>{{0, 4}, {1, 0}}));
  const auto again = parse_graph(to_text(*graph), "again");
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(*again, *graph);
}

TEST(Graph, SaysWhatIsWrong) {
  const auto wrong = [](const char* text) { return parse_graph(text, "g.json").error().message; };
  EXPECT_EQ(wrong(R"({"name": "x", "operators": []})"),
            "g.json.operators: must have 1 to 100000 operators");
  EXPECT_EQ(wrong(R"({"name": "x", "operators": [{"name": "a", "seconds": 1, "inputs": ["b"]}]})"),
            "g.json.operators[0].inputs[0]: is \"b\", which is no operator before this one");
  EXPECT_EQ(wrong(R"({"name": "x", "operators": [{"name": "a", "seconds": -1}]})"),
            "g.json.operators[0].seconds: must be a number from 0 to 1e+06");
  EXPECT_EQ(wrong(R"({"name": "x", "operators": [{"name": "a", "seconds": {}}]})"),
            "g.json.operators[0].seconds: must have the seconds on at least one type of device");
  EXPECT_NE(wrong(R"({"name": "x", "operators": [{"name": "a", "seconds": 1, "color": 2}]})")
                .find("color"),
            std::string::npos);
}

TEST(Graph, ReadsDevices) {
  const auto devices = parse_devices("gpu=2:16e9,cpu=1");
  ASSERT_TRUE(devices.ok()) << devices.error().message;
  ASSERT_EQ(devices->size(), 3U);
  EXPECT_EQ((*devices)[1].name, "gpu 1");
  EXPECT_EQ((*devices)[1].memory, 16e9);
  EXPECT_EQ((*devices)[2].type, "cpu");
  for (const char* wrong : {"", "gpu", "gpu=0", "gpu=65", "gpu=2:x", "gpu=2:-1", "gpu=1,gpu=1",
                            "gpu=40,cpu=40", "gpu=1:2:3", "=2"})
    EXPECT_FALSE(parse_devices(wrong).ok()) << wrong;
}

TEST(Graph, TheSamplesAreGraphsThatCanBeReadBack) {
  for (const auto& [name, what, make] : sample_graphs()) {
    const Graph graph = make();
    EXPECT_EQ(graph.name, name);
    const auto again = parse_graph(to_text(graph), "again");
    ASSERT_TRUE(again.ok()) << again.error().message;
    EXPECT_EQ(*again, graph);
    EXPECT_GT(graph.operators.size(), 200U);
  }
}

}  // namespace
}  // namespace rubato::graph
