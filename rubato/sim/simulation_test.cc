#include "rubato/sim/simulation.h"

#include <atomic>
#include <cmath>
#include <gtest/gtest.h>
#include <map>
#include <memory>
#include <optional>
#include <rapidcheck/gtest.h>
#include <string>
#include <utility>
#include <vector>

#include "rubato/base/random.h"
#include "rubato/policy/pollux.h"
#include "rubato/sim/report.h"
#include "rubato/sim/testing.h"
#include "rubato/sim/testing_profiles.h"

namespace rubato::sim {
namespace {

using PolicyRun = Run;  // Run is also a member of every test

// A simulation and all that it refers to.
struct Story {
  Story(const char* cluster, std::vector<SimJob> jobs, FunctionPolicy::Function function = in_order,
        SimulationOptions options = {})
      : cluster(cluster_of(cluster)),
        workload(workload_of(std::move(jobs))),
        policy(std::move(function)) {
    options.record = {true, true};
    result.emplace(simulate(workload, this->cluster, policy, options, &done));
    EXPECT_TRUE(result->ok()) << result->error().message;
  }
  Story(const Story&) = delete;
  Story& operator=(const Story&) = delete;

  const Metrics& metrics() const { return result->value().metrics; }
  const std::vector<JobRecord>& jobs() const { return result->value().recorder.jobs(); }
  double end(std::size_t job) const { return jobs()[job].end ? seconds(*jobs()[job].end) : -1; }
  double start(std::size_t job) const {
    return jobs()[job].start ? seconds(*jobs()[job].start) : -1;
  }

  Cluster cluster;
  Workload workload;
  FunctionPolicy policy;
  std::atomic<std::size_t> done = 0;
  std::optional<Result<SimulationResult>> result;
};

using Times = std::vector<double>;

SimulationOptions every(double interval_s) {
  SimulationOptions options;
  options.interval = from_seconds(interval_s);
  return options;
}
SimulationOptions placed(Placement placement) {
  SimulationOptions options;
  options.placement = placement;
  return options;
}
SimulationOptions failing(std::vector<NodeEvent> events) {
  SimulationOptions options;
  options.node_events = std::move(events);
  return options;
}
NodeEvent node_down(double s, std::size_t node) {
  return {time_at(s), node_id(node), NodeState::down};
}
NodeEvent node_up(double s, std::size_t node) { return {time_at(s), node_id(node), NodeState::up}; }

TEST(Simulation, RigidJobsInOrderByHand) {
  const Story story("1x4", {rigid_job(0, 4, 10), rigid_job(0, 2, 5), rigid_job(1, 4, 3)});
  EXPECT_EQ((Times{story.end(0), story.end(1), story.end(2)}), (Times{10, 15, 18}));
  EXPECT_EQ((Times{story.start(0), story.start(1), story.start(2)}), (Times{0, 10, 15}));
  const Metrics& m = story.metrics();
  EXPECT_EQ(m.jobs, 3U);
  EXPECT_EQ(m.completed, 3U);
  EXPECT_EQ(m.rejected, 0U);
  EXPECT_DOUBLE_EQ(*m.avg_jct_s, (10 + 15 + 17) / 3.0);
  EXPECT_DOUBLE_EQ(*m.p50_jct_s, 15);
  EXPECT_DOUBLE_EQ(*m.p90_jct_s, 16.6);
  EXPECT_DOUBLE_EQ(*m.p99_jct_s, 16.96);
  EXPECT_DOUBLE_EQ(*m.makespan_s, 18);
  EXPECT_DOUBLE_EQ(*m.avg_queue_s, (0 + 10 + 14) / 3.0);
  EXPECT_DOUBLE_EQ(*m.p99_queue_s, 10 + 0.98 * 4);
  EXPECT_DOUBLE_EQ(m.avg_queue_length, (10 + 14) / 18.0);
  EXPECT_DOUBLE_EQ(m.gpu_busy, (40 + 10 + 12) / (4 * 18.0));
  EXPECT_DOUBLE_EQ(m.cluster_efficiency, m.gpu_busy) << "rigid jobs use their GPUs fully";
  // Alone on 1/N of the cluster, N = 2.9, 2.6 and 40/17 active jobs in the mean.
  const double rho[] = {10 / (10 * 2.9), 15 / (5 * 2 * 2.6 / 4), 17 / (3 * 40 / 17.0)};
  EXPECT_DOUBLE_EQ(*m.ftf_mean, (rho[0] + rho[1] + rho[2]) / 3);
  EXPECT_DOUBLE_EQ(*m.ftf_max, rho[2]);
  EXPECT_EQ(m.preemptions + m.resizes + m.migrations + m.failures, 0U);
  EXPECT_EQ(story.policy.asked_at, (Times{0, 1, 10, 15, 18}));
  EXPECT_EQ(m.decisions, 5U);
  EXPECT_EQ(story.done, 3U);
}

// Curves that jobs have for the sake of other policies do not change it.
TEST(Simulation, FairnessOfARigidPolicyIsThatOfRigidJobs) {
  const auto elastic = [](double submit_s, double duration_s) {
    return with(elastic_job(submit_s, 1.5 * duration_s, {{1, 1}, {2, 1.5}, {4, 2}}),
                [](JobSpec& spec) { spec.requested = 2; });
  };
  const auto cluster = cluster_of("1x4");
  const auto rho = [&](std::vector<SimJob> jobs, bool rigid) {
    SimulationOptions options;
    options.record.rigid = rigid;
    FunctionPolicy policy(in_order);
    return *simulate(workload_of(std::move(jobs)), cluster, policy, options)->metrics.ftf_max;
  };
  const std::vector<SimJob> curved = {elastic(0, 10), elastic(0, 6), elastic(1, 8), elastic(2, 3)};
  const std::vector<SimJob> plain = {rigid_job(0, 2, 10), rigid_job(0, 2, 6), rigid_job(1, 2, 8),
                                     rigid_job(2, 2, 3)};
  EXPECT_DOUBLE_EQ(rho(curved, true), rho(plain, false));
  EXPECT_DOUBLE_EQ(rho(curved, true), rho(plain, true));
  EXPECT_GT(rho(curved, false), rho(curved, true))
      << "one GPU of its own would be more than a share";
}

TEST(Simulation, AllThatHappensAtOneInstantIsDecidedOnce) {
  std::vector<SimJob> jobs;
  for (int i = 0; i < 8; ++i) jobs.push_back(rigid_job(0, 1, 10));
  jobs.push_back(rigid_job(10, 8, 5));  // comes as the others end
  const Story story("1x8", std::move(jobs));
  EXPECT_EQ(story.policy.asked_at, (Times{0, 10, 15}));
  EXPECT_EQ(story.end(8), 15);
}

TEST(Simulation, TheRestartCostIsPaidAtTheFirstStart) {
  const Story story("1x4", {rigid_job(0, 1, 10, 2), rigid_job(3.5, 1, 0, 1.5)});
  EXPECT_EQ(story.end(0), 12);
  EXPECT_EQ(story.end(1), 5) << "also by a job that has nothing to do";
  EXPECT_EQ(story.start(0), 0);
}

TEST(Simulation, TheRestartCostIsPaidWheneverTheGpuSetChanges) {
  // A second job comes at 5 and leaves at 6; the first moves away for it, and stays.
  const auto move = [](const Snapshot& snapshot) {
    Decision decision;
    const bool first = snapshot.now < time_at(5);
    if (snapshot.jobs.empty()) return decision;
    decision.run = {grant_exact(0, gpus_on({{0, first ? 0b01U : 0b10U}}))};
    if (snapshot.jobs.size() > 1) decision.run.push_back(grant_exact(1, gpus_on({{0, 0b01}})));
    return decision;
  };
  const Story story("1x2", {rigid_job(0, 1, 10, 2), rigid_job(5, 1, 1)}, move);
  EXPECT_EQ(story.end(0), 5 + 2 + (10 - 3));
  EXPECT_EQ(story.end(1), 6);
  EXPECT_EQ(story.metrics().migrations, 1U);
  EXPECT_EQ(story.metrics().preemptions, 0U);
}

TEST(Simulation, AnElasticJobKeepsItsWorkThroughAResize) {
  const std::vector<CurvePoint> curve = {{1, 1}, {2, 1.5}, {4, 2}};
  // Alone on 4 GPUs (rate 2) until 3; two on 2 each (rate 1.5) until the second ends.
  const Story story("1x4", {elastic_job(0, 24, curve), elastic_job(3, 6, curve)}, equal_shares);
  EXPECT_EQ(story.end(1), 3 + 6 / 1.5);
  EXPECT_EQ(story.end(0), 7 + (24 - 3 * 2 - 4 * 1.5) / 2);
  EXPECT_EQ(story.metrics().resizes, 2U);
  const double busy = 4 * 13;
  EXPECT_DOUBLE_EQ(story.metrics().gpu_busy, busy / (4 * 13));
  EXPECT_DOUBLE_EQ(story.metrics().cluster_efficiency, (9 * 2 + 4 * 3.0) / (4 * 13));
  EXPECT_EQ(story.jobs()[0].gpus,
            (std::vector<std::pair<Time, int>>{
                {time_at(0), 4}, {time_at(3), 2}, {time_at(7), 4}, {time_at(13), 0}}));
  // Alone on 4/N GPUs: N is 1 + 4/13 for the first (4/N = 3.06, three by interpolation: 1.75), and
  // 2 for the second.
  EXPECT_DOUBLE_EQ(*story.metrics().ftf_mean, (13 / (24 / 1.75) + 4 / (6 / 1.5)) / 2);
}

TEST(Simulation, PlacementMattersOnlyWhereItIsAskedFor) {
  const std::vector<SimJob> jobs = {elastic_job(0, 10, {{1, 1}, {2, 2}}, 0, 1)};
  const auto both = [](const Snapshot& snapshot) {
    Decision decision;
    if (!snapshot.jobs.empty()) decision.run = {grant_count(0, 2)};
    return decision;
  };
  EXPECT_EQ(Story("2x2", jobs, both, placed(Placement::count)).end(0), 5);
  EXPECT_EQ(Story("2x2", jobs, both, placed(Placement::pack)).end(0), 5);
  EXPECT_EQ(Story("2x2", jobs, both, placed(Placement::spread)).end(0), 5 * 1.5);
  EXPECT_EQ(Story("2x1", jobs, both, placed(Placement::count)).end(0), 5) << "count ignores nodes";
  EXPECT_EQ(Story("2x1", jobs, both, placed(Placement::pack)).end(0), 5) << "it needs two nodes";
}

TEST(Simulation, AnIntervalDelaysDecisionsButNoCompletion) {
  const Story story(
      "1x4",
      {rigid_job(0, 4, 90), rigid_job(5, 1, 10), rigid_job(130, 1, 7.25), rigid_job(180, 1, 1)},
      in_order, every(60));
  EXPECT_EQ((Times{story.end(0), story.end(1), story.end(2), story.end(3)}),
            (Times{90, 130, 187.25, 181}));
  EXPECT_EQ(story.start(1), 120) << "its GPUs were free at 90";
  EXPECT_EQ(story.policy.asked_at, (Times{0, 60, 120, 180}))
      << "at first submission + k x interval, a job that comes then included";
}

TEST(Simulation, AQuietIntervalIsNotDecided) {
  const Story story("1x1", {rigid_job(0, 1, 1000), rigid_job(1000, 1, 1)}, in_order, every(60));
  EXPECT_EQ(story.policy.asked_at, (Times{0, 1020}));
  EXPECT_EQ(story.end(1), 1021);
}

TEST(Simulation, APolicyIsAskedAgainWhenItWishes) {
  const auto wakes = [](const Snapshot& snapshot) {
    Decision decision = in_order(snapshot);
    decision.again_at = snapshot.now + from_seconds(25);
    return decision;
  };
  EXPECT_EQ(Story("1x1", {rigid_job(0, 1, 60)}, wakes).policy.asked_at, (Times{0, 25, 50, 60}));
  EXPECT_EQ(Story("1x1", {rigid_job(0, 1, 60)}, wakes, every(20)).policy.asked_at,
            (Times{0, 40, 60}))
      << "at the next time allowed";
  const auto replaced = [&](const Snapshot& snapshot) {
    Decision decision = in_order(snapshot);
    if (snapshot.now == kStart) decision.again_at = time_at(25);
    return decision;
  };
  EXPECT_EQ(Story("1x2", {rigid_job(0, 1, 60), rigid_job(10, 1, 1)}, replaced).policy.asked_at,
            (Times{0, 10, 11, 60}))
      << "a later decision takes the wish back";
}

TEST(Simulation, JobsWithNothingToDoEndAsTheyStart) {
  const Story story(
      "1x2", {rigid_job(0, 2, 0), rigid_job(0, 2, 0), rigid_job(0, 2, 3), rigid_job(7, 1, 0)});
  EXPECT_EQ((Times{story.end(0), story.end(1), story.end(2), story.end(3)}), (Times{0, 0, 3, 7}));
  EXPECT_EQ(story.metrics().completed, 4U);
  EXPECT_DOUBLE_EQ(story.metrics().gpu_busy, 6 / 14.0);
  EXPECT_EQ(story.jobs()[0].attained, GpuTime());
  const Story only("1x2", {rigid_job(0, 2, 0)});
  EXPECT_EQ(only.end(0), 0);
  EXPECT_EQ(only.metrics().makespan_s, 0);
  EXPECT_EQ(only.metrics().gpu_busy, 0) << "no time, no use, and no division by it";
  EXPECT_EQ(only.metrics().ftf_mean, 1);
}

TEST(Simulation, WithAnIntervalAJobThatEndsAtOnceFreesItsGpusForTheNextDecision) {
  const Story story("1x1", {rigid_job(0, 1, 0), rigid_job(0, 1, 5)}, in_order, every(60));
  EXPECT_EQ(story.end(0), 0);
  EXPECT_EQ(story.end(1), 65);
}

TEST(Simulation, AJobThatNeverFitsIsRejectedAndTheRestRuns) {
  const Story story("2x4:a,1x4:b", {rigid_job(0, 9, 10), rigid_job(0, 8, 10), rigid_job(1, 99, 1)},
                    [](const Snapshot& snapshot) {
                      Decision decision;
                      for (const JobView& job : snapshot.jobs) {
                        decision.run.push_back({job.id, Count{GpuType(), job.spec->requested}});
                      }
                      return decision;
                    });
  EXPECT_EQ(story.jobs()[0].rejected, "needs 9 GPUs, and the cluster has 8 of one type");
  EXPECT_EQ(story.jobs()[2].rejected, "needs 99 GPUs, and the cluster has 8 of one type");
  EXPECT_EQ(story.end(1), 10);
  EXPECT_EQ(story.metrics().jobs, 3U);
  EXPECT_EQ(story.metrics().completed, 1U);
  EXPECT_EQ(story.metrics().rejected, 2U);
  EXPECT_EQ(story.metrics().avg_jct_s, 10) << "over those completed";
  EXPECT_EQ(story.done, 3U);
  const Story none("1x8", {rigid_job(0, 9, 10)});
  EXPECT_EQ(none.jobs()[0].rejected, "needs 9 GPUs, and the cluster has 8");
  EXPECT_EQ(none.metrics().avg_jct_s, std::nullopt);
  EXPECT_EQ(none.metrics().makespan_s, std::nullopt);
}

TEST(Simulation, DeadlinesAreMetByTheRealEndOnly) {
  const auto due = [](double s) { return [s](JobSpec& spec) { spec.deadline = time_at(s); }; };
  const Story story("1x1",
                    {with(rigid_job(0, 1, 10), due(10)), with(rigid_job(0, 1, 10), due(19.999999)),
                     with(rigid_job(0, 2, 1), due(1000)), rigid_job(0, 1, 1)});
  EXPECT_EQ(story.metrics().deadlines_total, 3U) << "with the one rejected";
  EXPECT_EQ(story.metrics().deadlines_met, 1U);
}

TEST(Simulation, APolicyMayRejectAJobThatNeverRan) {
  const auto picky = [](const Snapshot& snapshot) {
    Decision decision;
    for (const JobView& job : snapshot.jobs) {
      if (job.spec->requested > 1) {
        decision.reject.push_back({job.id, "too big", time_at(77)});
      } else {
        decision.run.push_back({job.id, Count{GpuType(), 1}});
      }
    }
    return decision;
  };
  const Story story("1x4", {rigid_job(0, 1, 10), rigid_job(0, 2, 10), rigid_job(4, 2, 10)}, picky);
  EXPECT_EQ(story.jobs()[1].rejected, "too big");
  EXPECT_EQ(story.jobs()[1].earliest, time_at(77));
  EXPECT_EQ(story.metrics().rejected, 2U);
  EXPECT_EQ(story.metrics().completed, 1U);
  EXPECT_EQ(story.done, 3U);
  EXPECT_EQ(story.metrics().avg_queue_length, 0) << "none of them waited";
}

TEST(Simulation, AFailedNodeStopsItsJobsUntilThereIsRoom) {
  const Story story("1x2", {rigid_job(0, 2, 10, 1)}, in_order,
                    failing({node_down(5, 0), node_up(20, 0)}));
  EXPECT_EQ(story.end(0), 20 + 1 + (10 - 4));
  EXPECT_EQ(story.metrics().failures, 1U);
  EXPECT_EQ(story.metrics().preemptions, 0U);
  EXPECT_EQ(story.jobs()[0].attained, GpuTime::from_gpu_seconds(2 * (5 + 7)));
  EXPECT_EQ(story.start(0), 0);
  const Story moves("2x2", {rigid_job(0, 2, 10, 1)}, in_order,
                    failing({node_down(5, 0), node_up(20, 0)}));
  EXPECT_EQ(moves.end(0), 5 + 1 + 6) << "another node takes it at once";
}

TEST(Simulation, ANodeMayFailAndReturnAtOneInstant) {
  const Story story("1x1", {rigid_job(0, 1, 10)}, in_order,
                    failing({node_down(4, 0), node_up(4, 0)}));
  EXPECT_EQ(story.end(0), 10);
  EXPECT_EQ(story.metrics().failures, 1U);
}

TEST(Simulation, AJobWhoseWorkIsDoneIsNotLostToAFailureAtItsEnd) {
  const Story story("1x1", {rigid_job(0, 1, 10, 3)}, in_order,
                    failing({node_down(13, 0), node_up(50, 0)}));
  EXPECT_EQ(story.end(0), 13);
  EXPECT_EQ(story.metrics().failures, 0U);
}

TEST(Simulation, AClusterThatNeverReturnsEndsTheStory) {
  const Story story("1x1", {rigid_job(0, 1, 3), rigid_job(0, 1, 10)}, in_order,
                    failing({node_down(5, 0)}));
  EXPECT_EQ(story.end(0), 3);
  EXPECT_EQ(story.end(1), -1);
  EXPECT_EQ(story.metrics().completed, 1U);
  EXPECT_LE(story.metrics().gpu_busy, 1);
}

TEST(Simulation, APolicyThatErrsEndsTheRunWithItsReason) {
  const auto run = [](FunctionPolicy::Function function) {
    const Workload workload = workload_of({rigid_job(2, 1, 10)});
    const Cluster cluster = cluster_of("1x4");
    FunctionPolicy policy(std::move(function));
    return simulate(workload, cluster, policy, {}).error().message;
  };
  EXPECT_EQ(run([](const Snapshot&) -> Result<Decision> { return Error{"no idea"}; }), "no idea");
  EXPECT_EQ(run([](const Snapshot&) {
              Decision decision;
              decision.run = {grant_count(0, 3)};
              return decision;
            }),
            "the policy's decision at 2 s cannot be carried out: job 0: grants 3 GPUs, which the "
            "job cannot use");
}

// Shrunk to a faster size with less than half a microsecond to go, a job ends between the two steps
// of a move.
TEST(Simulation, AJobThatEndsInTheMiddleOfAMoveEndsOnce) {
  const auto move = [](const Snapshot& snapshot) {
    Decision decision;
    const bool first = snapshot.now < time_at(10);
    decision.run = {grant_exact(0, gpus_on({{0, first ? 0b1001U : 0b0011U}}))};
    if (!first && snapshot.jobs.find(job_id(1)) != nullptr)
      decision.run.push_back(grant_exact(1, gpus_on({{0, 0b100}})));
    if (snapshot.jobs.find(job_id(0)) == nullptr) decision.run.erase(decision.run.begin());
    return decision;
  };
  const Story story("1x4", {elastic_job(0, 10.0000006, {{1, 4}, {2, 1}}), rigid_job(10, 1, 5)},
                    move);
  EXPECT_EQ(story.end(0), 10);
  EXPECT_EQ(story.end(1), 15);
  EXPECT_EQ(story.done, 2U);
  EXPECT_EQ(story.metrics().completed, 2U);
  EXPECT_EQ(story.metrics().failures, 0U);
  EXPECT_DOUBLE_EQ(story.metrics().avg_queue_length, 0);
  EXPECT_NEAR(*story.metrics().ftf_mean, (4 + 1) / 2.0, 1e-6)
      << "each was alone, the first on a size four times slower than its best";
}

TEST(Simulation, JobsOfAThousandYearsOverflowNothing) {
  std::vector<SimJob> jobs(3, rigid_job(0, 4000, kLongestSeconds));
  const Story story("1000x4", std::move(jobs));
  EXPECT_DOUBLE_EQ(story.end(2), 3 * kLongestSeconds);
  EXPECT_GT(story.jobs()[0].attained, GpuTime());
}

TEST(Simulation, ARunBeyondAllTimeIsRefused) {
  const Workload workload = workload_of(std::vector<SimJob>(400, rigid_job(0, 1, kLongestSeconds)));
  const Cluster cluster = cluster_of("1x1");
  FunctionPolicy policy(in_order);
  const auto result = simulate(workload, cluster, policy, {});
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().message,
            "the simulation has passed 100,000 years with 100 of 400 jobs done: give it fewer or "
            "shorter jobs, or more GPUs");
}

// ---- whole runs ----

std::vector<SimJob> random_jobs(Random& random, bool elastic) {
  std::vector<SimJob> jobs;
  double now = 0;
  for (int i = 0; i < 60; ++i) {
    now += i == 0 ? 0 : random.exponential(20);
    const double length = random.uniform() < 0.05 ? 0 : random.log_uniform(1, 500);
    const double restart = random.uniform() < 0.5 ? 0 : 3.3;
    jobs.push_back(
        elastic ? elastic_job(now, length, {{1, 1}, {2, 1.7}, {4, 2.9}, {8, 4}}, restart, 0.3)
                : rigid_job(now, 1 + static_cast<int>(random.below(9)), length, restart));
  }
  return jobs;
}

SimulationOptions random_options(Random& random) {
  SimulationOptions options = every(random.uniform() < 0.5 ? 0 : 30);
  options.placement = static_cast<Placement>(random.below(3));
  for (double at = 50; at < 2000; at += 200) {
    const std::size_t node = random.below(4);
    options.node_events.push_back(node_down(at, node));
    options.node_events.push_back(node_up(at + 80, node));
  }
  return options;
}

TEST(Simulation, AccountsAgreeAndTheSameRunGivesTheSameBytes) {
  std::size_t failures = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    const bool elastic = seed % 2 == 0;
    const auto tell = [&] {
      Random random(seed);
      auto jobs = random_jobs(random, elastic);
      return std::make_unique<Story>("3x4,1x2", std::move(jobs), elastic ? equal_shares : in_order,
                                     random_options(random));
    };
    const auto story = tell();
    const Metrics& m = story->metrics();
    ASSERT_EQ(m.completed, 60U);
    failures += m.failures;

    GpuTime attained;
    GpuTime drawn;
    std::vector<GpuTime> drawn_of(60);
    for (const auto& record : story->jobs()) attained += record.attained;
    for (const auto& s : story->result->value().recorder.stretches()) {
      drawn_of[s.job.index()] += GpuTime::of(s.width, s.end - s.start);
      drawn += GpuTime::of(s.width, s.end - s.start);
      ASSERT_TRUE(s.lane >= 0 && s.lane + s.width <= 14);
    }
    ASSERT_EQ(drawn, attained);
    ASSERT_NEAR(m.gpu_busy * 14 * *m.makespan_s, attained.gpu_seconds(),
                1e-6 * attained.gpu_seconds());
    double jct = 0;
    double last = 0;
    for (std::size_t i = 0; i < 60; ++i) {
      const JobRecord& record = story->jobs()[i];
      const SimJob& job = story->workload.jobs[i];
      ASSERT_EQ(drawn_of[i], record.attained);
      GpuTime history;
      for (std::size_t h = 0; h + 1 < record.gpus.size(); ++h) {
        history +=
            GpuTime::of(record.gpus[h].second, record.gpus[h + 1].first - record.gpus[h].first);
      }
      ASSERT_EQ(history, record.attained) << "job " << i;
      ASSERT_EQ(record.gpus.back().second, 0);
      ASSERT_GE(*record.start, job.submit);
      if (!elastic) {
        ASSERT_GE(seconds(*record.end - *record.start), job.work - 1e-6);
      }
      jct += seconds(*record.end - job.submit);
      last = std::max(last, seconds(*record.end));
    }
    ASSERT_NEAR(*m.avg_jct_s, jct / 60, 1e-6);
    ASSERT_EQ(*m.makespan_s, last);
    ASSERT_LE(m.gpu_busy, 1);
    ASSERT_LE(m.cluster_efficiency, m.gpu_busy + 1e-9) << "no curve here is better than linear";

    const auto csv = [](const Story& s) {
      std::vector<PolicyRun> runs;
      runs.push_back({"p", "", false, s.metrics(), s.result->value().recorder});
      return jobs_csv(s.workload, runs);
    };
    ASSERT_EQ(csv(*story), csv(*tell()));
  }
  EXPECT_GT(failures, 100U);
}

// No GPU of the timeline is drawn for two jobs at a time.
TEST(Simulation, TheTimelineNeverOverlaps) {
  Random random(5);
  auto jobs = random_jobs(random, true);
  const Story story("3x4,1x2", std::move(jobs), equal_shares, random_options(random));
  std::vector<std::vector<std::pair<Time, Time>>> lanes(14);
  for (const auto& s : story.result->value().recorder.stretches()) {
    for (int lane = s.lane; lane < s.lane + s.width; ++lane) {
      lanes[static_cast<std::size_t>(lane)].emplace_back(s.start, s.end);
    }
  }
  for (auto& lane : lanes) {
    std::sort(lane.begin(), lane.end());
    for (std::size_t i = 1; i < lane.size(); ++i) ASSERT_LE(lane[i - 1].second, lane[i].first);
  }
}

TEST(Simulation, APairSharesOneGpuToTheEnd) {
  const auto table = pair_table();
  const Workload workload = workload_of({typed_job(0, 100, table, 0), typed_job(0, 60, table, 1)});
  FunctionPolicy policy([](const Snapshot& snapshot) -> Result<Decision> {
    Decision decision;
    for (const JobView& job : snapshot.jobs) {
      if (decision.run.empty()) {
        decision.run.push_back({job.id, Count{GpuType(), 1}});
      } else {
        decision.run.push_back({job.id, Beside{decision.run.front().job}});
      }
    }
    return decision;
  });
  const auto result = simulate(workload, cluster_of("1x1"), policy, {});
  ASSERT_TRUE(result.ok()) << result.error().message;
  // 12.5 s together at 8 and 3 steps/s, then 22.5 steps alone at 4.
  EXPECT_DOUBLE_EQ(seconds(*result->recorder.jobs()[0].end), 12.5);
  EXPECT_DOUBLE_EQ(seconds(*result->recorder.jobs()[1].end), 12.5 + 22.5 / 4);
  EXPECT_DOUBLE_EQ(result->metrics.gpu_busy, 1) << "a GPU that two share is busy once";
  EXPECT_NEAR(result->metrics.cluster_efficiency, (12.5 * (0.8 + 0.75) + 5.625) / 18.125, 1e-9);
  EXPECT_EQ(result->metrics.preemptions + result->metrics.migrations, 0U);
}

// Others see what its agent fits, which is new at each epoch.
TEST(Simulation, AnOracleSeesTheTruthOfAJobWithAProfile) {
  for (const bool oracle : {false, true}) {
    const Workload workload = workload_of({profiled_job(10)});
    int seen = 0;
    FunctionPolicy policy([&](const Snapshot& snapshot) {
      Decision decision;
      for (const JobView& job : snapshot.jobs) {
        EXPECT_EQ(job.speed == workload.jobs[0].speed, oracle);
        ++seen;
        decision.run.push_back({job.id, Count{GpuType(), 1}});
      }
      decision.again_at = snapshot.now + from_seconds(20);
      return decision;
    });
    policy.oracle = oracle;
    const auto result = simulate(workload, cluster_of("1x4"), policy, {});
    ASSERT_TRUE(result.ok());
    EXPECT_DOUBLE_EQ(*result->metrics.avg_jct_s, 30 + 200 * 0.2);
    EXPECT_GE(seen, 4) << "through both epochs";
  }
}

// From the first submission to the last end, with what the jobs' agents fit on the way.
RC_GTEST_PROP(PolluxOnProfiles, NoNodeHasTooManyJobsNorTwoThatSpanSeveral, ()) {
  const auto seed = *rc::gen::arbitrary<std::uint64_t>();
  Random random(seed);
  std::vector<SimJob> jobs;
  double submit_s = 0;
  for (std::uint64_t left = 1 + random.below(10); left > 0; --left) {
    const bool tuned = random.below(3) > 0;
    jobs.push_back(profiled_job(tuned ? std::nullopt : std::optional(20), 5));
    jobs.back().submit = time_at(submit_s);
    submit_s += static_cast<double>(random.below(40));
  }
  const Workload workload = workload_of(std::move(jobs));
  Pollux pollux;
  pollux.config.interval = from_seconds(10);
  pollux.config.population = 8;
  pollux.config.generations = 8;
  pollux.config.seed = seed;
  const auto inner = erase(std::move(pollux));
  FunctionPolicy policy([&](const Snapshot& snapshot) {
    auto decision = inner->decide(snapshot);
    RC_ASSERT(validate(*decision, snapshot).ok());
    std::map<NodeId, int> wide;
    for (const auto& grant : decision->run) {
      const auto* spread = std::get_if<Spread>(&grant.want);
      if (spread == nullptr || spread->gpus.size() < 2) continue;
      for (const auto& [node, gpus] : spread->gpus) RC_ASSERT(++wide[node] == 1);
    }
    return decision;
  });
  const auto cluster = cluster_of(std::vector{"1x1", "2x2", "3x1", "4x2"}[random.below(4)]);
  const auto result = simulate(workload, cluster, policy, every(10));
  RC_ASSERT(result.ok());
  for (const auto& job : result->recorder.jobs()) RC_ASSERT(job.end.has_value());
}

}  // namespace
}  // namespace rubato::sim
