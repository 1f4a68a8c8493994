// Compares whole simulations with an independent reference. testing::World with naive policies
// shares no code with the loop, the simulator, the placement or the policies. Times must agree to
// the microsecond.
#include <filesystem>
#include <gtest/gtest.h>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rubato/base/testing.h"
#include "rubato/policy/testing.h"
#include "rubato/sim/generator.h"
#include "rubato/sim/simulation.h"

namespace rubato::sim {
namespace {

using testing::make_policy;
using testing::World;

const std::vector<double> kGoldenSamples = {60, 61, 200, 200, 900, 2000, 5000, 5000, 20000, 90000};

// Policy and reference.
std::vector<std::pair<std::string, std::unique_ptr<Policy>>> references() {
  std::vector<std::pair<std::string, std::unique_ptr<Policy>>> all;
  for (const auto* name : {"fifo", "fifo-backfill", "sjf", "srtf", "srsf", "edf:count=trace"})
    all.emplace_back(name, testing::naive_twin(name));
  using testing::NaiveTiresias;
  const std::vector<double> limits = {3250, 7200};
  all.emplace_back("tiresias-las", std::make_unique<NaiveTiresias>(limits, 0));
  all.emplace_back("tiresias-las:promote=2", std::make_unique<NaiveTiresias>(limits, 2));
  all.emplace_back("tiresias-gittins:samples=given",
                   std::make_unique<NaiveTiresias>(limits, 0, kGoldenSamples));
  return all;
}

void expect_same(const Workload& workload, const std::string& cluster, const std::string& name,
                 Policy& reference) {
  SCOPED_TRACE(name);
  std::vector<testing::Job> jobs;
  for (const auto& job : workload.jobs) jobs.push_back({job.submit, job.spec, job.speed, job.work});
  const auto expected = World(cluster).run_jobs(reference, jobs);

  const auto policy = make_policy(name, kGoldenSamples);
  const Cluster machines = testing::cluster_of(cluster);
  const auto result = simulate(workload, machines, *policy, {});
  ASSERT_TRUE(result.ok()) << result.error().message;
  double jct = 0, queued = 0, completed = 0;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    const JobRecord& record = result->recorder.jobs()[i];
    ASSERT_EQ(record.start, expected[i].start) << "job " << i;
    ASSERT_EQ(record.end, expected[i].end) << "job " << i;
    EXPECT_EQ(record.end.has_value(), record.rejected.empty());
    if (!record.end) continue;
    ++completed;
    jct += seconds(*expected[i].end - jobs[i].submit);
    queued += seconds(*expected[i].start - jobs[i].submit);
  }
  EXPECT_EQ(static_cast<double>(result->metrics.completed), completed);
  EXPECT_NEAR(*result->metrics.avg_jct_s, jct / completed, 1e-6);
  EXPECT_NEAR(*result->metrics.avg_queue_s, queued / completed, 1e-6);
}

Workload generated(std::uint64_t seed, const WorkloadOptions& options) {
  const GeneratorOptions shape{.jobs = 120,
                               .seed = seed,
                               .cluster_gpus = 8,
                               .load = 1.2,
                               .longest_s = 7200,
                               .gpu_mix = {{1, 4}, {2, 2}, {4, 2}, {8, 1}, {16, 0.5}},
                               .deadline_share = 0.7};
  return make_workload(generate(shape).value(), options).value();
}

TEST(Golden, GeneratedJobsAgreeWithTheReference) {
  for (const std::uint64_t seed : {1, 2, 3}) {
    for (const auto& [name, reference] : references())
      expect_same(generated(seed, {}), "2x4", name, *reference);
  }
}

TEST(Golden, RestartCostsAgreeWithTheReference) {
  for (const auto& [name, reference] : references())
    expect_same(generated(4, {.restart_cost_s = 12.5}), "2x4", name, *reference);
}

TEST(Golden, ElasticJobsAgreeWithTheReference) {
  for (const std::uint64_t seed : {5, 6}) {
    for (const double restart : {0.0, 10.0}) {
      const auto reference = testing::naive_twin("afs-l");
      expect_same(generated(seed, {.restart_cost_s = restart, .assign_curves = true}), "4x8",
                  "afs-l", *reference);
    }
  }
}

TEST(Golden, SixtyJobsOfTiresias) {
  const std::string path = shared_data() + "/tiresias/60_job.csv";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "no " << path;
  const auto workload = make_workload(read_trace(path, std::nullopt).value(), {}).value();
  ASSERT_EQ(workload.jobs.size(), 60U);
  std::map<std::string, double> jct;
  for (const auto& [name, reference] : references()) {
    expect_same(workload, "2x8", name, *reference);
    const Cluster cluster = testing::cluster_of("2x8");
    const auto policy = make_policy(name, kGoldenSamples);
    const auto result = simulate(workload, cluster, *policy, {});
    EXPECT_EQ(result->metrics.completed, 60U) << name;
    jct[name] = *result->metrics.avg_jct_s;
  }
  EXPECT_LT(jct["srtf"], jct["fifo"]) << "knowing lengths helps";
  EXPECT_LT(jct["srsf"], jct["fifo"]);
  EXPECT_LT(jct["fifo-backfill"], jct["fifo"]) << "and so does filling the gaps";
}

}  // namespace
}  // namespace rubato::sim
