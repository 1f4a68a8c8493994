#include "rubato/sim/knowledge.h"

#include <gtest/gtest.h>
#include <memory>
#include <vector>

#include "rubato/base/random.h"
#include "rubato/model/convergence.h"
#include "rubato/policy/measuring.h"
#include "rubato/policy/testing.h"
#include "rubato/sim/simulation.h"
#include "rubato/sim/testing.h"

namespace rubato::sim {
namespace {

const std::vector<CurvePoint> kCurve = {{1, 1}, {2, 1.8}, {4, 3}, {8, 4}};
const KnowledgeOptions kMeasured{Knowing::measured, from_seconds(20), 1};

SimJob asking_for(int gpus, SimJob job) {
  return with(std::move(job), [&](JobSpec& spec) { spec.requested = gpus; });
}

TEST(Knowledge, AnOracleTellsTheTruthAndNothingMore) {
  const auto workload = workload_of({elastic_job(0, 100, kCurve)});
  Knowledge knowledge(workload, {}, false);
  EXPECT_EQ(knowledge.first_estimate(job_id(0)), workload.jobs[0].speed);
  knowledge.runs(job_id(0), 4, {100, kStart, 3});
  EXPECT_EQ(knowledge.next_fact(), std::nullopt);
}

TEST(Knowledge, FirstOverestimatesThenMeasures) {
  const auto workload = workload_of({asking_for(2, elastic_job(0, 1000, kCurve))});
  Knowledge knowledge(workload, kMeasured, false);
  const auto first = knowledge.first_estimate(job_id(0));
  EXPECT_DOUBLE_EQ(first->on(GpuType(), 2), 1.8) << "its owner knows";
  EXPECT_DOUBLE_EQ(first->on(GpuType(), 8), 7.2) << "truly 4";

  knowledge.runs(job_id(0), 8, {1000, time_at(30), 4});  // after 30 s of restart
  ASSERT_EQ(knowledge.next_fact(), time_at(50));
  std::vector<Event> facts;
  knowledge.collect(time_at(49), facts);
  EXPECT_TRUE(facts.empty());
  knowledge.collect(time_at(50), facts);
  ASSERT_EQ(facts.size(), 1U);
  const auto& estimated = std::get<Estimated>(facts[0]);
  EXPECT_DOUBLE_EQ(estimated.speed->on(GpuType(), 8), 4);
  EXPECT_DOUBLE_EQ(estimated.speed->on(GpuType(), 5), 1.8 + 2.2 / 2);
  EXPECT_EQ(estimated.losses, nullptr);

  knowledge.runs(job_id(0), 8, {900, time_at(60), 4});
  EXPECT_EQ(knowledge.next_fact(), std::nullopt) << "known already";
}

// A job that leaves a count before it is measured has learned nothing there.
TEST(Knowledge, ANewerResizeCancelsTheMeasurementUnderWay) {
  const auto workload = workload_of({elastic_job(0, 1000, kCurve)});
  Knowledge knowledge(workload, kMeasured, false);
  knowledge.runs(job_id(0), 8, {1000, time_at(0), 4});
  knowledge.runs(job_id(0), 4, {960, time_at(10), 3});
  ASSERT_EQ(knowledge.next_fact(), time_at(30));
  std::vector<Event> facts;
  knowledge.collect(time_at(30), facts);
  ASSERT_EQ(facts.size(), 1U);
  const auto counts = std::get<Estimated>(facts[0]).speed->measured();
  EXPECT_EQ(std::vector<int>(counts.begin(), counts.end()), (std::vector<int>{1, 4}));
  knowledge.runs(job_id(0), 2, {900, time_at(40), 1.8});
  knowledge.rests(job_id(0));
  EXPECT_EQ(knowledge.next_fact(), std::nullopt);
}

TEST(Knowledge, ShownLossesTellWhereTheJobEnds) {
  const auto workload = workload_of({elastic_job(0, 5000, kCurve), elastic_job(0, 300, kCurve)});
  for (std::size_t job = 0; job < 2; ++job) {
    const Work work = workload.jobs[job].work;
    Knowledge knowledge(workload, {}, true);
    knowledge.runs(job_id(job), 1, {work, kStart, 1});
    std::vector<Event> facts;
    for (double at = 1; at < work; at *= 1.1) knowledge.collect(time_at(at), facts);
    ASSERT_GT(facts.size(), 3U);
    const auto& last = *std::get<Estimated>(facts.back()).losses;
    EXPECT_LE(last.points.back().done, work);
    const auto& early = *std::get<Estimated>(facts.front()).losses;
    EXPECT_LE(early.points.back().done, 25) << "only what it had shown by then";
    const auto model = fit_losses(last);
    ASSERT_TRUE(model.has_value());
    EXPECT_NEAR(convergence(*model, last.epoch, last.threshold) / work, 1, 0.3);
  }
}

double avg_jct(const Workload& workload, Policy& policy, const KnowledgeOptions& knowledge) {
  SimulationOptions options;
  options.knowledge = knowledge;
  const auto result = simulate(workload, cluster_of("2x4"), policy, options);
  EXPECT_TRUE(result.ok()) << result.error().message;
  EXPECT_EQ(result->metrics.completed, workload.jobs.size());
  return result->metrics.avg_jct_s.value_or(0);
}

TEST(Knowledge, AJobIsMeasuredDownwardsFromWhereItStarts) {
  const auto workload = workload_of({elastic_job(0, 4000, kCurve, 5)});
  const auto policy = measure_first(testing::make_policy("afs-l"), kMeasured.measuring_time);
  SimulationOptions options;
  options.knowledge = kMeasured;
  options.record.history = true;
  const auto result = simulate(workload, cluster_of("2x4"), *policy, options);
  ASSERT_TRUE(result.ok()) << result.error().message;
  std::vector<int> counts;
  for (const auto& [at, gpus] : result->recorder.jobs()[0].gpus) counts.push_back(gpus);
  // Its owner knows the speed on one GPU.
  EXPECT_EQ(counts, (std::vector<int>{8, 4, 2, 8, 0}));
}

TEST(Knowledge, NotKnowingCosts) {
  Random random(9);
  std::vector<SimJob> jobs;
  double submit_s = 0;
  for (int i = 0; i < 60; ++i) {
    const bool scales = random.below(2) == 0;
    const std::vector<CurvePoint> poor = {{1, 1}, {2, 1.2}, {4, 1.3}, {8, 1.25}};
    const std::vector<CurvePoint> good = {{1, 1}, {2, 1.95}, {4, 3.8}, {8, 7}};
    jobs.push_back(elastic_job(submit_s, random.log_uniform(300, 20000), scales ? good : poor, 5));
    submit_s += random.exponential(500);
  }
  const Workload workload = workload_of(std::move(jobs));
  const double knowing = avg_jct(workload, *testing::make_policy("afs-l"), {});
  const auto wrapped = measure_first(testing::make_policy("afs-l"), kMeasured.measuring_time);
  const double measuring = avg_jct(workload, *wrapped, kMeasured);
  EXPECT_LT(knowing, measuring);
  EXPECT_LT(measuring, 1.3 * knowing);
}

}  // namespace
}  // namespace rubato::sim
