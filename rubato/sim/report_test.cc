#include "rubato/sim/report.h"

#include <gtest/gtest.h>
#include <string>
#include <utility>
#include <vector>

#include "rubato/base/text.h"
#include "rubato/sim/testing.h"

namespace rubato::sim {
namespace {

using PolicyRun = Run;  // Run is also a member of every test

class ReportTest : public ::testing::Test {
 protected:
  PolicyRun run(const std::string& name, FunctionPolicy::Function function) {
    FunctionPolicy policy(std::move(function));
    SimulationOptions options;
    options.record = {true, true};
    auto result = simulate(workload_, cluster_, policy, options);
    EXPECT_TRUE(result.ok()) << result.error().message;
    return {name, "a paper", false, result->metrics, std::move(result->recorder)};
  }

  Cluster cluster_ = cluster_of("2x2:v100,1x4:k80");
  Workload workload_ = [] {
    auto workload = workload_of({with(rigid_job(0, 2, 10.25),
                                      [](JobSpec& s) {
                                        s.name = "a,\"b\"";
                                        s.user = "ann";
                                        s.deadline = time_at(10.25);
                                      }),
                                 with(rigid_job(0.000001, 4, 5),
                                      [](JobSpec& s) {
                                        s.name = "plain";
                                        s.deadline = time_at(5);
                                      }),
                                 with(rigid_job(3, 9, 5), [](JobSpec& s) {
                                   s.name = "line\nbreak";
                                   s.deadline = time_at(9);
                                 })});
    workload.origin_s = 1500000000.5;
    workload.warnings = {"a warning"};
    return workload;
  }();
};

Decision fifo_on_type_0(const Snapshot& snapshot) {
  Decision decision;
  int room = snapshot.cluster.usable(GpuType());
  for (const JobView& job : snapshot.jobs) {
    if ((room -= job.spec->requested) < 0) break;
    decision.run.push_back({job.id, Count{GpuType(), job.spec->requested}});
  }
  return decision;
}

TEST_F(ReportTest, TheJobsFileIsExactAndQuoted) {
  std::vector<PolicyRun> runs;
  runs.push_back(run("p:x=1,y=2", fifo_on_type_0));
  EXPECT_EQ(jobs_csv(workload_, runs),
            "policy,job_id,submit_s,start_s,end_s,gpus,deadline_s,met,rejected,reason,earliest_"
            "deadline_s\n"
            "\"p:x=1,y=2\",\"a,\"\"b\"\"\",1500000000.5,1500000000.5,1500000010.75,"
            "1500000000.5:2;1500000010.75:0,1500000010.75,1,0,,\n"
            "\"p:x=1,y=2\",plain,1500000000.500001,1500000010.75,1500000015.75,"
            "1500000010.75:4;1500000015.75:0,1500000005.5,0,0,,\n"
            "\"p:x=1,y=2\",\"line\nbreak\",1500000003.5,,,,1500000009.5,0,1,"
            "\"needs 9 GPUs, and the cluster has 4 of one type\",\n");
}

TEST_F(ReportTest, TimesBeforeTheEpochOfTheTraceKeepTheirSign) {
  workload_.origin_s = -2.5;
  std::vector<PolicyRun> runs;
  runs.push_back(run("p", fifo_on_type_0));
  const std::string csv = jobs_csv(workload_, runs);
  EXPECT_NE(csv.find(",-2.5,-2.5,7.75,-2.5:2;7.75:0,"), std::string::npos) << csv;
  EXPECT_NE(csv.find("plain,-2.499999,"), std::string::npos) << csv;
}

TEST_F(ReportTest, TheJsonHasEveryFigureOfTheSpecification) {
  const PolicyRun one = run("p", fifo_on_type_0);
  const Json json = to_json("p", one.metrics);
  for (const char* key : {"policy",          "jobs",
                          "completed",       "rejected",
                          "avg_jct_s",       "p50_jct_s",
                          "p90_jct_s",       "p99_jct_s",
                          "makespan_s",      "avg_queue_s",
                          "p99_queue_s",     "avg_queue_length",
                          "gpu_busy",        "cluster_efficiency",
                          "utility",         "advised_nodes",
                          "deadlines_total", "deadlines_met",
                          "ftf_mean",        "ftf_p99",
                          "ftf_max",         "preemptions",
                          "resizes",         "migrations",
                          "events",          "decisions",
                          "decide_ms_p50",   "decide_ms_p99",
                          "wall_s",          "deadlines_feasible"}) {
    EXPECT_TRUE(json.contains(key)) << key;
  }
  EXPECT_EQ(json["jobs"], 3);
  EXPECT_EQ(json["completed"], 2);
  EXPECT_EQ(json["rejected"], 1);
  EXPECT_EQ(json["deadlines_total"], 3);
  EXPECT_EQ(json["deadlines_met"], 1);
  EXPECT_EQ(json["makespan_s"], 15.25);
  EXPECT_TRUE(to_json("p", Metrics{})["avg_jct_s"].is_null()) << "no jobs, no mean";
}

TEST_F(ReportTest, APriceSaysWhatANodeIsWorth) {
  Metrics m;
  m.completed = 5;
  m.makespan_s = 100;
  m.types = {{"v100", 4, 0.5, std::nullopt}, {"k80", 4, 0.5, 0.25}};
  const auto worths = worth_of_nodes(m, cluster_);
  ASSERT_EQ(worths.size(), 1U) << "a type without a price has no worth";
  EXPECT_EQ(worths[0].type, "k80");
  EXPECT_EQ(worths[0].gpus, 4);
  EXPECT_DOUBLE_EQ(worths[0].saves_s, 0.25 * 4 * 100 / 5);
  EXPECT_TRUE(worth_of_nodes(Metrics{}, cluster_).empty());
}

TEST_F(ReportTest, TheTableMarksTheBestOfEachColumn) {
  std::vector<PolicyRun> runs;
  runs.push_back(run("fast", fifo_on_type_0));
  runs.push_back(run("slow", fifo_on_type_0));
  runs[0].metrics.avg_jct_s = 60;
  runs[1].metrics.avg_jct_s = 120;
  runs[0].metrics.cluster_efficiency = 0.25;
  runs[1].metrics.cluster_efficiency = 0.5;
  runs[0].metrics.wall_s = runs[1].metrics.wall_s = 0.001;
  const std::string table = to_table(runs);
  const auto lines = split(table, '\n');
  ASSERT_EQ(lines.size(), 4U) << table;
  EXPECT_NE(lines[1].find(" 1m00s*"), std::string::npos) << table;
  EXPECT_EQ(lines[2].find("2m00s*"), std::string::npos) << table;
  EXPECT_NE(lines[2].find("50.0%*"), std::string::npos) << "higher is better here\n" << table;
  EXPECT_EQ(lines[1].find("25.0%*"), std::string::npos) << table;
  EXPECT_NE(lines[1].find("15.2s*"), std::string::npos) << "equals are both best\n" << table;
  EXPECT_NE(lines[2].find("15.2s*"), std::string::npos) << table;
  EXPECT_NE(lines[0].find("rejected"), std::string::npos);
  EXPECT_EQ(lines[0].find("preempted"), std::string::npos) << "nothing to say\n" << table;
  runs.pop_back();
  EXPECT_EQ(to_table(runs).find('*'), std::string::npos) << "alone, nothing is best";
}

TEST_F(ReportTest, TheReportsArraysAreParallel) {
  std::vector<PolicyRun> runs;
  runs.push_back(run("p", fifo_on_type_0));
  runs.push_back(run("q", fifo_on_type_0));
  const Json json =
      report_data(workload_, cluster_, runs, {"rubato 1", "2x2:v100,1x4:k80", {{"seed", "1"}}});
  EXPECT_EQ(json["version"], 1);
  EXPECT_EQ(json["title"], "test on 2x2:v100,1x4:k80");
  EXPECT_EQ(json["trace"]["jobs"], 3);
  EXPECT_EQ(json["cluster"]["gpus"], 8);
  EXPECT_EQ(json["cluster"]["groups"].size(), 2U);
  EXPECT_EQ(json["cluster"]["groups"][1]["type"], "k80");
  EXPECT_EQ(json["notes"][0], "a warning");
  EXPECT_EQ(json["settings"], Json::parse(R"([["seed","1"]])"));
  for (const auto& [name, column] : json["jobs"].items()) EXPECT_EQ(column.size(), 3U) << name;
  EXPECT_EQ(json["jobs"]["work_gpu_s"], Json::parse("[20.5,20.0,45.0]"));
  ASSERT_EQ(json["runs"].size(), 2U);
  for (const auto& one : json["runs"]) {
    for (const auto& [name, column] : one["jobs"].items()) {
      EXPECT_EQ(column.size(), name == "rejected" ? 1U : 3U) << name;
    }
    EXPECT_EQ(one["jobs"]["end_s"], Json::parse("[10.25,15.25,null]"));
    EXPECT_EQ(one["jobs"]["attained_gpu_s"], Json::parse("[20.5,20.0,0.0]"));
    EXPECT_TRUE(one["jobs"]["rejected"].contains("2"));
    const std::size_t buckets = one["series"]["queue"].size();
    EXPECT_EQ(buckets, 16U);
    for (const auto& [name, column] : one["series"].items()) {
      EXPECT_EQ(column.size(), name == "t_s" ? buckets + 1 : buckets) << name;
    }
    const Json& timeline = one["timeline"];
    EXPECT_EQ(timeline["total"], timeline["shown"]);
    for (const char* name : {"job", "lane", "width", "start_s", "end_s"}) {
      EXPECT_EQ(timeline[name].size(), timeline["total"]) << name;
    }
  }
}

TEST(HumanDuration, ReadsWell) {
  struct Case {
    double s;
    const char* text;
  };
  for (const auto& [s, text] :
       {Case{0, "0ms"}, Case{0.0123, "12ms"}, Case{0.9994, "999ms"}, Case{0.9996, "1.0s"},
        Case{59.94, "59.9s"}, Case{59.96, "1m00s"}, Case{95, "1m35s"}, Case{3599.4, "59m59s"},
        Case{3599.6, "1h00m"}, Case{8000, "2h13m"}, Case{48 * 3600 - 31, "47h59m"},
        Case{48 * 3600 - 1, "2.0d"}, Case{86400 * 3.26, "3.3d"}}) {
    EXPECT_EQ(human_duration(s), text) << s;
  }
}

}  // namespace
}  // namespace rubato::sim
