// The readers on the public traces that they were written for, if these are available.
#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <gtest/gtest.h>
#include <numeric>
#include <string>
#include <vector>

#include "rubato/base/testing.h"
#include "rubato/policy/testing.h"
#include "rubato/sim/simulation.h"
#include "rubato/sim/workload.h"

namespace rubato::sim {
namespace {

const std::string kData = shared_data();

class PublicData : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::is_directory(kData)) {
      GTEST_SKIP() << "the public traces are not here: " << kData;
    }
  }
  static Trace read(const std::string& file) {
    auto trace = read_trace(kData + "/" + file, std::nullopt);
    EXPECT_TRUE(trace.ok()) << trace.error().message;
    return trace.ok() ? std::move(*trace) : Trace{};
  }
};

TEST_F(PublicData, EveryTraceIsRecognisedAndWhole) {
  struct Case {
    std::string file;
    TraceFormat format;
    std::size_t jobs;
  };
  std::vector<Case> cases = {
      {"philly/philly.csv", TraceFormat::philly, 82247},
      {"microsoft/cluster01.csv", TraceFormat::microsoft, 1595},
      {"microsoft/cluster02.csv", TraceFormat::microsoft, 5778},
      {"microsoft/cluster03.csv", TraceFormat::microsoft, 3011},
      {"microsoft/cluster04.csv", TraceFormat::microsoft, 15802},
      {"microsoft/cluster05.csv", TraceFormat::microsoft, 3629},
      {"microsoft/cluster07.csv", TraceFormat::microsoft, 12699},
      {"microsoft/cluster08.csv", TraceFormat::microsoft, 13047},
      {"microsoft/cluster09.csv", TraceFormat::microsoft, 11134},
      {"elasticflow/195job-a100.csv", TraceFormat::elasticflow, 195},
      {"elasticflow/195job-t4.csv", TraceFormat::elasticflow, 195},
      {"elasticflow/cluster05-deadlines.csv", TraceFormat::elasticflow, 3629},
      {"tiresias/60_job.csv", TraceFormat::tiresias, 60},
      {"gavel/96jobs.trace", TraceFormat::gavel, 96},
      {"gavel/100jobs-makespan.trace", TraceFormat::gavel, 100},
      {"shockwave/220jobs.trace", TraceFormat::shockwave, 220},
  };
  for (const char* number : {"1", "2", "3", "4", "5", "7", "8"}) {
    cases.push_back(
        {std::string("pollux/workloads/workload-") + number + ".csv", TraceFormat::pollux, 160});
  }
  for (const auto& each : cases) {
    const auto trace = read(each.file);
    EXPECT_EQ(trace.jobs.size(), each.jobs) << each.file;
    EXPECT_EQ(trace.format, each.format) << each.file;
    EXPECT_TRUE(make_workload(trace, {.assign_curves = true}).ok()) << each.file;
  }
}

TEST_F(PublicData, PhillyCountsFromItsEarliestRow) {
  const auto trace = read("philly/philly.csv");
  EXPECT_EQ(trace.jobs.front().submit_s, 0);
  EXPECT_EQ(trace.jobs.back().submit_s, 9408690);  // 2017-09-04 10:30:41 to 12-22 08:02:11
  const double gpu_seconds = std::accumulate(
      trace.jobs.begin(), trace.jobs.end(), 0.0,
      [](double sum, const TraceJob& job) { return sum + job.gpus * *job.duration_s; });
  EXPECT_NEAR(gpu_seconds / 3600, 978078.5, 0.1);
  const auto first_row = std::find_if(trace.jobs.begin(), trace.jobs.end(),
                                      [](const TraceJob& job) { return job.name == "0"; });
  ASSERT_NE(first_row, trace.jobs.end());
  EXPECT_EQ(first_row->submit_s, 3011474);  // 2017-10-09 07:01:55
  EXPECT_EQ(first_row->user, "11cb48");
}

TEST_F(PublicData, MeasuredCurvesCoverTheirTraces) {
  for (const auto& [file, directory] :
       std::vector<std::pair<std::string, std::string>>{{"195job-a100.csv", "curves-a100"},
                                                        {"cluster05-deadlines.csv", "curves-a100"},
                                                        {"195job-t4.csv", "curves-t4"}}) {
    auto book = read_curves(kData + "/elasticflow/" + directory);
    ASSERT_TRUE(book.ok()) << book.error().message;
    WorkloadOptions options;
    options.curves = std::move(*book);
    const auto workload = make_workload(read("elasticflow/" + file), options);
    ASSERT_TRUE(workload.ok());
    EXPECT_EQ(workload->warnings, std::vector<std::string>{}) << file;
    for (const auto& job : workload->jobs) EXPECT_FALSE(job.speed->measured().empty());
  }
}

// The figures of docs/results.md, judged by real completion: every admitted deadline is kept.
TEST_F(PublicData, ElasticFlowKeepsWhatItAdmits) {
  struct Case {
    std::string gpu, cluster;
    double interval_s;
    std::size_t at_least, feasible;
  };
  for (const auto& each : std::vector<Case>{{"t4", "16x4", 60, 142, 180},
                                            {"t4", "16x4", 0, 178, 180},
                                            {"a100", "16x8", 60, 178, 184},
                                            {"a100", "16x8", 0, 178, 184},
                                            {"t4", "4x4", 0, 88, 179},
                                            {"a100", "4x8", 0, 130, 184}}) {
    WorkloadOptions options;
    options.curves = read_curves(kData + "/elasticflow/curves-" + each.gpu).value();
    options.restart_cost_s = 2;
    const auto workload = make_workload(read("elasticflow/195job-" + each.gpu + ".csv"), options);
    ASSERT_TRUE(workload.ok());
    for (const Placement placement : {Placement::count, Placement::buddy}) {
      SimulationOptions settings;
      settings.interval = from_seconds(each.interval_s);
      settings.placement = placement;
      const auto result = simulate(*workload, parse_cluster(each.cluster).value(),
                                   *testing::make_policy("elasticflow"), settings);
      ASSERT_TRUE(result.ok()) << result.error().message;
      const Metrics& m = result->metrics;
      EXPECT_EQ(m.deadlines_met + m.rejected, 195U) << each.gpu << " " << each.cluster;
      EXPECT_EQ(m.deadlines_feasible, each.feasible) << each.gpu << " " << each.cluster;
      if (placement == Placement::count) {
        EXPECT_GE(m.deadlines_met, each.at_least) << each.gpu << " " << each.cluster;
      }
    }
  }
}

TEST_F(PublicData, CurvesLeaveOutInfeasibleCounts) {
  const auto a100 = read_curves(kData + "/elasticflow/curves-a100");
  ASSERT_TRUE(a100.ok());
  EXPECT_EQ(a100->models.size(), 7U);
  EXPECT_EQ(a100->find("deepspeech2", 32)->measured().back(), 32);      // last cell empty
  EXPECT_EQ(a100->find("resnet50_cifar10", 64)->measured().back(), 8);  // zeros behind
  const auto t4 = read_curves(kData + "/elasticflow/curves-t4");
  ASSERT_TRUE(t4.ok());
  EXPECT_EQ(t4->find("yolov3", 64)->measured().back(), 16);  // nan behind
}

}  // namespace
}  // namespace rubato::sim
