#include "rubato/sim/recorder.h"

#include <gtest/gtest.h>
#include <optional>
#include <utility>
#include <vector>

#include "rubato/sim/testing.h"

namespace rubato::sim {
namespace {

class RecorderTest : public ::testing::Test {
 protected:
  // Jobs 0 and 1 are rigid, job 2 has a curve.
  Workload workload_ = workload_of(
      {rigid_job(0, 2, 10), rigid_job(0, 1, 10), elastic_job(0, 10, {{1, 1}, {2, 1.5}, {4, 2}})});
  Cluster cluster_ = cluster_of("2x4");
  Recorder recorder_{workload_, cluster_, {true, true}};
};

TEST_F(RecorderTest, KnowsNothingBeforeAnythingHappens) {
  const Metrics m = recorder_.metrics();
  EXPECT_EQ(m.jobs, 3U);
  EXPECT_EQ(m.completed, 0U);
  EXPECT_EQ(m.avg_jct_s, std::nullopt);
  EXPECT_EQ(m.makespan_s, std::nullopt);
  EXPECT_EQ(m.avg_queue_s, std::nullopt);
  EXPECT_EQ(m.gpu_busy, 0);
}

TEST_F(RecorderTest, ChangesAtOneInstantAreOneEntryOfTheHistory) {
  recorder_.submitted(time_at(0), job_id(2));
  recorder_.allocation(time_at(1), job_id(2), gpus_on({{0, 0b1111}}), 2);
  recorder_.allocation(time_at(5), job_id(2), gpus_on({{0, 0b0001}}), 1);
  recorder_.allocation(time_at(5), job_id(2), gpus_on({{0, 0b0011}}), 1.5);
  recorder_.allocation(time_at(7), job_id(2), gpus_on({{0, 0b0001}}), 1);
  recorder_.allocation(time_at(7), job_id(2), gpus_on({{0, 0b0101}}), 1.5);
  recorder_.finished(time_at(9), job_id(2));
  EXPECT_EQ(recorder_.jobs()[2].gpus,
            (std::vector<std::pair<Time, int>>{{time_at(1), 4}, {time_at(5), 2}, {time_at(9), 0}}))
      << "a move keeps the count";
  EXPECT_EQ(recorder_.jobs()[2].attained, GpuTime::from_gpu_seconds(4 * 4 + 4 * 2));
  EXPECT_DOUBLE_EQ(recorder_.metrics().cluster_efficiency, (4 * 2 + 4 * 1.5) / (8 * 9));
}

TEST_F(RecorderTest, PricesAreAveragedOverTheMakespan) {
  EXPECT_FALSE(recorder_.has_prices());
  recorder_.submitted(kStart, job_id(0));
  recorder_.priced(time_at(2), {0.5});
  recorder_.priced(time_at(4), {0.25});
  recorder_.finished(time_at(8), job_id(0));
  recorder_.priced(time_at(20), {100});
  const Metrics m = recorder_.metrics();
  ASSERT_EQ(m.types.size(), 1U);
  EXPECT_DOUBLE_EQ(*m.types[0].price, (2 * 0.5 + 4 * 0.25) / 8);
  EXPECT_DOUBLE_EQ(recorder_.series().mean(3, Recorder::price), 0.5);
}

TEST_F(RecorderTest, AdviceIsAveragedOverTheTimeItStandsForWhileThereAreJobs) {
  EXPECT_EQ(recorder_.metrics().utility, std::nullopt);
  recorder_.submitted(time_at(0), job_id(0));
  recorder_.advised(time_at(2), {0.5, 4});
  recorder_.advised(time_at(4), {0.8, 1});
  recorder_.finished(time_at(10), job_id(0));
  recorder_.advised(time_at(20), {0.1, 100});
  const Metrics m = recorder_.metrics();
  EXPECT_DOUBLE_EQ(*m.utility, (2 * 0.5 + 6 * 0.8) / 8);
  EXPECT_DOUBLE_EQ(*m.advised_nodes, (2 * 4 + 6 * 1) / 8.0);
}

TEST_F(RecorderTest, DrawsNeighbouringGpusAsOneRectangle) {
  recorder_.submitted(time_at(0), job_id(0));
  recorder_.allocation(time_at(0), job_id(0), gpus_on({{0, 0b1010}, {1, 0b1011}}), 1);
  recorder_.finished(time_at(2), job_id(0));
  std::vector<std::pair<int, int>> drawn;
  for (const auto& s : recorder_.stretches()) {
    drawn.emplace_back(s.lane, s.width);
    EXPECT_EQ(s.start, time_at(0));
    EXPECT_EQ(s.end, time_at(2));
  }
  EXPECT_EQ(drawn, (std::vector<std::pair<int, int>>{{1, 1}, {3, 3}, {7, 1}}))
      << "also across the border of two nodes";
}

TEST_F(RecorderTest, DrawsAFullNodeOfSixtyFour) {
  const Cluster cluster = cluster_of("2x64");
  Recorder recorder(workload_, cluster, {true, true});
  recorder.submitted(time_at(0), job_id(0));
  recorder.allocation(time_at(0), job_id(0),
                      gpus_on({{0, ~std::uint64_t{0}}, {1, std::uint64_t{3} << 62U}}), 1);
  recorder.finished(time_at(1), job_id(0));
  ASSERT_EQ(recorder.stretches().size(), 2U);
  EXPECT_EQ(recorder.stretches()[0].width, 64);
  EXPECT_EQ(recorder.stretches()[1].lane, 126);
}

TEST_F(RecorderTest, CountsWhatDecisionsChanged) {
  using Kind = Change::Kind;
  for (const Kind kind : {Kind::start, Kind::stop, Kind::stop, Kind::resize, Kind::resize,
                          Kind::resize, Kind::move}) {
    recorder_.changed({job_id(1), kind, Allocation()});
  }
  const Metrics m = recorder_.metrics();
  EXPECT_EQ(m.preemptions, 2U);
  EXPECT_EQ(m.resizes, 3U);
  EXPECT_EQ(m.migrations, 1U);
  EXPECT_EQ(recorder_.jobs()[1].preemptions, 2);
}

TEST_F(RecorderTest, ARejectionWithoutAReasonIsOneAllTheSame) {
  recorder_.submitted(time_at(0), job_id(0));
  recorder_.rejected(time_at(1), {job_id(0), "", std::nullopt}, true);
  EXPECT_EQ(recorder_.metrics().rejected, 1U);
}

TEST_F(RecorderTest, TheSeriesAreTheStepsThatHappened) {
  recorder_.submitted(time_at(0), job_id(0));
  recorder_.submitted(time_at(0), job_id(1));
  recorder_.allocation(time_at(0), job_id(0), gpus_on({{0, 0b11}}), 1);
  recorder_.allocation(time_at(2), job_id(1), gpus_on({{0, 0b100}}), 1);
  recorder_.finished(time_at(4), job_id(0));
  recorder_.finished(time_at(5), job_id(1));
  const auto& series = recorder_.series();
  ASSERT_EQ(series.size(), 5U);
  const double queue[] = {1, 1, 0, 0, 0}, busy[] = {2, 2, 3, 3, 1}, running[] = {1, 1, 2, 2, 1};
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_DOUBLE_EQ(series.mean(i, Recorder::queue), queue[i]);
    EXPECT_DOUBLE_EQ(series.mean(i, Recorder::running), running[i]);
    EXPECT_DOUBLE_EQ(series.mean(i, Recorder::busy), busy[i]);
    EXPECT_DOUBLE_EQ(series.mean(i, Recorder::efficiency), busy[i] / 8);
  }
}

TEST(Recorder, KnowsWhichDeadlinesAJobAloneWouldKeep) {
  const auto due = [](SimJob job, double deadline_s) {
    return with(std::move(job), [&](JobSpec& spec) { spec.deadline = time_at(deadline_s); });
  };
  const std::vector<CurvePoint> curve = {{1, 1}, {2, 2}, {4, 1.5}, {16, 8}};
  const Workload workload = workload_of({
      due(rigid_job(0, 2, 10, 1), 11),                                 // with its restart
      due(rigid_job(0, 2, 10, 1), 10.9),                               // just not
      due(rigid_job(0, 9, 10), 100),                                   // never fits
      due(elastic_job(5, 20, curve), 5 + 20.0 / (1.5 + 6.5 / 3)),      // on 8, between 4 and 16
      due(elastic_job(5, 20, curve), 5 + 20.0 / (1.5 + 6.5 / 3) - 1),  // 16 are not there
  });
  const Cluster cluster = cluster_of("2x4");
  const Metrics m = Recorder(workload, cluster, {}).metrics();
  EXPECT_EQ(m.deadlines_total, 5U);
  EXPECT_EQ(m.deadlines_feasible, 2U);
}

TEST(Recorder, CountsTheGpuTimeOfUsersAndThatForWhichAllOfThemWaited) {
  const auto of = [](SimJob job, const char* user, double weight) {
    return with(std::move(job), [&](JobSpec& spec) {
      spec.user = user;
      spec.weight = weight;
    });
  };
  const Workload workload =
      workload_of({of(rigid_job(0, 2, 10), "bob", 1), of(rigid_job(0, 1, 10), "ann", 3),
                   of(rigid_job(0, 1, 10), "bob", 2), of(rigid_job(0, 1, 10), "ann", 1)});
  const Cluster cluster = cluster_of("1x3");
  Recorder recorder(workload, cluster, {});
  for (unsigned job = 0; job < 4; ++job) recorder.submitted(time_at(0), job_id(job));
  recorder.allocation(time_at(1), job_id(0), gpus_on({{0, 0b011}}), 1);  // 2 and 1, 3 wait
  recorder.allocation(time_at(4), job_id(1), gpus_on({{0, 0b100}}), 1);  // 2 and 3 wait
  recorder.finished(time_at(6), job_id(0));
  recorder.allocation(time_at(6), job_id(3), gpus_on({{0, 0b001}}), 1);  // only bob waits
  recorder.finished(time_at(9), job_id(1));
  recorder.finished(time_at(10), job_id(3));
  const auto users = recorder.metrics().users;
  ASSERT_EQ(users.size(), 2U);
  EXPECT_EQ(users[0].name, "ann");
  EXPECT_EQ(users[0].jobs, 2U);
  EXPECT_EQ(users[0].weight, 3);
  EXPECT_DOUBLE_EQ(users[0].gpu_s, 5 + 4);
  EXPECT_DOUBLE_EQ(users[0].contended_gpu_s, 2);
  EXPECT_EQ(users[1].weight, 2);
  EXPECT_DOUBLE_EQ(users[1].gpu_s, 2 * 5);
  EXPECT_DOUBLE_EQ(users[1].contended_gpu_s, 2 * 5);
}

TEST(Percentile, IsLinearBetweenRanks) {
  std::vector<double> none;
  EXPECT_EQ(percentile(none, 0.5), std::nullopt);
  std::vector<double> one = {7};
  EXPECT_EQ(percentile(one, 0), 7);
  EXPECT_EQ(percentile(one, 0.99), 7);
  std::vector<double> values = {40, 10, 30, 20, 50};
  EXPECT_EQ(percentile(values, 0), 10);
  EXPECT_EQ(percentile(values, 0.5), 30);
  EXPECT_DOUBLE_EQ(*percentile(values, 0.9), 46);
  EXPECT_EQ(percentile(values, 1), 50);
}

}  // namespace
}  // namespace rubato::sim
