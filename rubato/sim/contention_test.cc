#include "rubato/sim/contention.h"

#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "rubato/core/testing.h"
#include "rubato/sim/testing.h"

namespace rubato::sim {
namespace {

const std::string kTable =
    ",\"a,2,2\",\"a,8,4\",\"b,2,2\"\n"
    "\"a,2,2\",1,0.9,0.5\n"
    "\"a,8,4\",0.8,0.7,0.6\n"
    "\"b,2,2\",1,1,0.95\n";

const Allocation kFirst = gpus_on({{0, 0b1}, {1, 0b1}});
const Allocation kSecond = gpus_on({{1, 0b10}, {2, 0b1}});
const Allocation kSingle = gpus_on({{1, 0b1100}});

ReadContention must_parse(const std::string& text) {
  auto read = parse_contention(text, "file");
  EXPECT_TRUE(read.ok()) << read.error().message;
  return *read;
}

std::string problem(const std::string& text) {
  const auto read = parse_contention(text, "file");
  return read ? "" : read.error().message;
}

TEST(ContentionTable, GivesTheLowestEntryOverAllThatItMeets) {
  const auto table = must_parse(kTable);
  const std::vector<Tenant> others = {{"a", &kSecond}, {"b", &kSecond}, {"b", &kSingle}};
  EXPECT_EQ(table->kept({"a", &kFirst}, others), 0.5);
  EXPECT_EQ(table->kept({"b", &kFirst}, others), 0.95);
  EXPECT_EQ(table->kept({"a", &kSingle}, others), 1) << "inside a node";
  EXPECT_EQ(table->kept({"c", &kFirst}, others), 1) << "not measured";
  EXPECT_EQ(table->kept({"a", &kFirst}, {others.data() + 2, 1}), 1);
}

TEST(ContentionTable, TakesTheNearestSpreadThatWasMeasured) {
  const auto table = must_parse(kTable);
  const Allocation wide = gpus_on({{0, 0b11}, {1, 0b11}, {2, 0b11}});  // 6 GPUs on 3 nodes
  const Tenant b{"b", &kSecond};
  EXPECT_EQ(table->kept({"a", &wide}, {&b, 1}), 0.6);
}

TEST(ContentionTable, CanLeaveOutASpread) {
  const auto read = must_parse(kTable);
  const auto& table = dynamic_cast<const ContentionTable&>(*read);
  const ContentionTable less = table.without(8, 4);
  EXPECT_EQ(less.shapes().size(), 2U);
  EXPECT_EQ(less.entries(), (std::vector<std::vector<double>>{{1, 0.5}, {1, 0.95}}));
}

// Two jobs that each use the interface half of the time: a transfer has the whole link in half of
// the time and half of it otherwise, so it takes 1/0.75 as long.
const std::string kLinks = R"({"interface_bytes_s": 10, "switch_bytes_s": 20, "gpus_per_switch": 2,
    "models": {"m": {"step_s": 2, "bytes": 10}, "quiet": {"step_s": 1, "bytes": 0}}})";

TEST(LinkContention, SharesTheInterfaceOfANode) {
  const auto links = must_parse(kLinks);
  const Tenant other{"m", &kSecond}, silent{"quiet", &kSecond};
  EXPECT_DOUBLE_EQ(links->kept({"m", &kFirst}, {&other, 1}), 1 / (0.5 + 0.5 / 0.75));
  EXPECT_DOUBLE_EQ(links->kept({"m", &kFirst}, {&silent, 1}), 1);
  const std::vector<Tenant> three = {other, other};  // 1, 1/2 or 1/3 of the link
  EXPECT_DOUBLE_EQ(links->kept({"m", &kFirst}, three),
                   1 / (0.5 + 0.5 / (0.25 + 0.5 / 2 + 0.25 / 3)));
}

TEST(LinkContention, SharesTheSwitchesInsideANode) {
  const auto links = must_parse(kLinks);
  const Allocation across = gpus_on({{0, 0b0101}}), beside = gpus_on({{0, 0b1010}});
  const Allocation within = gpus_on({{0, 0b0011}});
  const Tenant other{"m", &beside}, local{"m", &within};
  EXPECT_DOUBLE_EQ(links->kept({"m", &across}, {&other, 1}), 1 / (0.75 + 0.25 / 0.875));
  EXPECT_EQ(links->kept({"m", &across}, {&local, 1}), 1) << "it stays inside its switch";
  EXPECT_EQ(links->kept({"m", &within}, {&other, 1}), 1);
}

TEST(ContentionFit, FindsTheTwoNumbersOfATableThatHasSuch) {
  const PairLoss truth({{"a", {1, 0.8}}, {"b", {0.5, 0.2}}});
  std::vector<MeasuredShape> shapes = {{"a", 2, 2}, {"a", 4, 2}, {"b", 2, 2}};
  std::vector<std::vector<double>> kept;
  for (const auto& row : shapes) {
    kept.emplace_back();
    for (const auto& column : shapes) {
      const Tenant other{column.model, &kSecond};
      kept.back().push_back(truth.kept({row.model, &kFirst}, {&other, 1}));
    }
  }
  const ContentionTable table(shapes, kept);
  const auto numbers = fit_pairs(table);
  EXPECT_NEAR(numbers.at("a").pressure, 0.8, 1e-6);
  EXPECT_NEAR(numbers.at("b").sensitivity, 0.5, 1e-6);
  EXPECT_LT(error_of(PairLoss(numbers), table).worst, 1e-6);
  EXPECT_GT(error_of(PairLoss(numbers), table).r_squared, 0.999);
  EXPECT_EQ(error_of(table, table).mean, 0);
}

TEST(ContentionFit, FindsTheLoadOfLinks) {
  const LinkContention truth({10, 1e9, 8}, {{"a", {1, 6}}, {"b", {1, 2}}});
  std::vector<MeasuredShape> shapes = {{"a", 2, 2}, {"b", 2, 2}};
  std::vector<std::vector<double>> kept;
  for (const auto& row : shapes) {
    kept.emplace_back();
    for (const auto& column : shapes) {
      const Tenant other{column.model, &kSecond};
      kept.back().push_back(truth.kept({row.model, &kFirst}, {&other, 1}));
    }
  }
  const auto uses = fit_links(ContentionTable(shapes, kept), 10);
  EXPECT_NEAR(uses.at("a").bytes, 6, 0.02);
  EXPECT_NEAR(uses.at("b").bytes, 2, 0.02);
}

TEST(ContentionFile, IsReadBackAsItWasWritten) {
  const PairLoss::Numbers numbers = {{"a", {1, 0.25}}, {"b, c", {0.5, 0}}};
  const auto pairs = must_parse(to_csv(numbers));
  EXPECT_EQ(dynamic_cast<const PairLoss&>(*pairs).numbers(), numbers);
  const auto links = must_parse(kLinks);
  const auto text = to_json_text(dynamic_cast<const LinkContention&>(*links));
  EXPECT_EQ(to_json_text(dynamic_cast<const LinkContention&>(*must_parse(text))), text);
}

TEST(ContentionFile, SaysWhatIsWrong) {
  EXPECT_EQ(problem(""), "file: the file is empty");
  EXPECT_EQ(problem(",\"a,2\"\n"), "file:1: column \"a,2\" is not \"model,GPUs,nodes\"");
  EXPECT_EQ(problem(",\"a,2,2\"\n\"a,2,2\",1.5\n"),
            "file:2: \"1.5\" is not a share of the speed, above 0 and at most 1");
  EXPECT_EQ(problem(",\"a,2,2\"\n"), "file: 0 rows for 1 columns: a table has one row per column");
  EXPECT_NE(problem(",\"a,2,2\"\n\"b,2,2\",1\n").find("order of the columns"), std::string::npos);
  EXPECT_NE(problem("model,pressure\n").find("sensitivity and pressure"), std::string::npos);
  EXPECT_EQ(problem("model,sensitivity,pressure\na,-1,0\n"),
            "file:2: sensitivity and pressure must be numbers from 0 to 1000");
  EXPECT_EQ(problem(R"({"interface_bytes_s": 0})"),
            "file: interface_bytes_s must be bytes a second, above 0");
}

// Two jobs of 3 GPUs on nodes of 2: they meet on the node in the middle. Alone each takes 100 s.
TEST(Contention, SlowsSimulatedJobsDownWhileTheyMeet) {
  Workload workload = workload_of({rigid_job(0, 3, 100), rigid_job(0, 3, 40)});
  for (std::size_t i = 0; i < 2; ++i) {
    workload.jobs[i] =
        with(workload.jobs[i], [&](JobSpec& spec) { spec.model = i == 0 ? "a" : "b"; });
  }
  SimulationOptions options;
  options.placement = Placement::pack;
  options.contention = std::make_shared<PairLoss>(PairLoss::Numbers{{"a", {1, 0}}, {"b", {0, 1}}});
  FunctionPolicy policy([](const Snapshot& snapshot) { return in_order(snapshot); });
  const auto result = simulate(workload, cluster_of("3x2"), policy, options);
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_EQ(result->recorder.jobs()[1].end, time_at(40)) << "it hurts, and does not suffer";
  EXPECT_EQ(result->recorder.jobs()[0].end, time_at(120)) << "half as fast for 40 s";
}

}  // namespace
}  // namespace rubato::sim
