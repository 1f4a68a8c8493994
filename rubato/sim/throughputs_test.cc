#include "rubato/sim/throughputs.h"

#include <gtest/gtest.h>
#include <utility>
#include <vector>

#include "rubato/core/testing.h"

namespace rubato::sim {
namespace {

constexpr std::string_view kFile = R"json({
  "k80": {"('LM (batch size 5)', 1)": {"null": 2, "('A3C', 1)": [1, 3]},
          "('A3C', 1)": {"null": 4, "('LM (batch size 5)', 1)": [3, 1]}},
  "v100": {"('LM (batch size 5)', 1)": {"null": 6, "('A3C', 1)": [0.0, 0.0]},
           "('LM (batch size 5)', 2)": {"null": 10},
           "('A3C', 1)": {"null": 4, "('LM (batch size 5)', 1)": [0.0, 0.0]}}})json";

TEST(Throughputs, AreReadForTheTypesOfTheCluster) {
  const auto book = parse_throughputs(kFile, "file", cluster_of("1x2:v100,1x4:k80"));
  ASSERT_TRUE(book.ok()) << book.error().message;
  const auto lm = book->find("LM", 5);
  const auto a3c = book->find("A3C", 0);
  ASSERT_TRUE(lm && a3c);
  EXPECT_EQ(lm->on(gpu_type(0), 1), 6);
  EXPECT_EQ(lm->on(gpu_type(0), 2), 10);
  EXPECT_EQ(lm->on(gpu_type(1), 1), 2);
  EXPECT_EQ(lm->on(gpu_type(1), 2), 0);
  EXPECT_EQ(lm->beside({gpu_type(1), 1, 0, 0}, *a3c), 1);
  EXPECT_EQ(a3c->beside({gpu_type(1), 1, 0, 0}, *lm), 3);
  EXPECT_EQ(lm->beside({gpu_type(0), 1, 0, 0}, *a3c), 0) << "tried, and it did not fit";
  EXPECT_EQ(book->find("LM", 10), nullptr);
}

TEST(Throughputs, EveryErrorIsOneSentence) {
  const std::vector<std::pair<std::string_view, std::string_view>> cases = {
      {"[]", "not an object"},
      {R"json({"p100": {}})json", "has no GPU type \"v100\"; it has \"p100\""},
      {R"json({"v100": 3})json", "\"v100\" is not an object of jobs"},
      {R"json({"v100": {"LM": {}}})json", "\"LM\" is not of the form"},
      {R"json({"v100": {"('LM', 0)": {}}})json", "is not of the form"},
      {R"json({"v100": {"('LM', 1)": 7}})json", "is not an object of rates"},
      {R"json({"v100": {"('LM', 1)": {"null": -1}}})json", "a rate that is not a number"},
      {R"json({"v100": {"('LM', 1)": {"('LM', 1)": [1]}}})json", "not a partner with two rates"},
      {R"json({"v100": {"('LM', 1)": {"LM": [1, 1]}}})json", "not a partner with two rates"},
  };
  for (const auto& [text, part] : cases) {
    const auto book = parse_throughputs(text, "file", cluster_of("1x1:v100"));
    ASSERT_FALSE(book.ok()) << text;
    EXPECT_NE(book.error().message.find(part), std::string::npos) << book.error().message;
    EXPECT_EQ(book.error().message.find("file: "), 0U);
  }
}

}  // namespace
}  // namespace rubato::sim
