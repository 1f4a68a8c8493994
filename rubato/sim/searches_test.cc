#include "rubato/sim/searches.h"

#include <gtest/gtest.h>

#include "rubato/policy/all.h"
#include "rubato/sim/contention.h"
#include "rubato/sim/generator.h"
#include "rubato/sim/testing.h"

namespace rubato::sim {
namespace {

Workload trials_of(int trials, double seconds, bool wait, int gpus = 1, double restart_s = 0) {
  std::vector<SimJob> jobs;
  for (int i = 0; i < trials; ++i) {
    jobs.push_back(rigid_job(0, gpus, seconds, restart_s));
    jobs.back().trial = SimTrial{0, {trials, 2, false}, 0.1, wait};
  }
  Workload workload = workload_of(std::move(jobs));
  workload.searches = 1;
  return workload;
}

SimulationResult run(const Workload& workload, const char* cluster, const char* policy,
                     SimulationOptions options = {}) {
  const auto made = parse_policies(policy)->front().make({});
  auto result = simulate(workload, cluster_of(cluster), **made, options);
  EXPECT_TRUE(result.ok()) << result.error().message;
  return std::move(*result);
}

// Four trials of 100 s on one GPU. Stage 1 takes 10 s of each, stage 2 another 10 s of two, and the
// best needs 80 s more.
TEST(Searches, StopTheWorstOnOneGpu) {
  const auto result = run(trials_of(4, 100, true), "1x1", "fifo");
  EXPECT_EQ(result.metrics.completed, 1U);
  EXPECT_EQ(result.metrics.searches->stopped, 3U);
  EXPECT_EQ(result.metrics.makespan_s, 140);
  EXPECT_EQ(result.metrics.searches->avg_s, 140);
  EXPECT_EQ(result.metrics.searches->avg_stage_s, (40 + 20) / 2.0);
  EXPECT_EQ(result.metrics.gpu_busy, 1);
  SimulationOptions ignoring;
  ignoring.searches_stop = false;
  const auto all = run(trials_of(4, 100, true), "1x1", "fifo", ignoring);
  EXPECT_EQ(all.metrics.completed, 4U);
  EXPECT_EQ(all.metrics.makespan_s, 400);
  EXPECT_EQ(all.metrics.searches->regret, 0);
}

TEST(Searches, ATrialThatDoesNotWaitGoesOnMeanwhile) {
  const auto result = run(trials_of(4, 100, false), "1x4", "fifo");
  EXPECT_EQ(result.metrics.makespan_s, 100);  // all run at once: the best never stops
  EXPECT_EQ(result.metrics.searches->stopped, 3U);
  EXPECT_EQ(result.metrics.searches->avg_stage_s, 10);
  const auto alone = run(trials_of(4, 100, false), "1x1", "fifo");
  EXPECT_GE(*alone.metrics.makespan_s, 140);
  EXPECT_LT(*alone.metrics.makespan_s, 400);
}

// The last trial of a stage may end in the instant in which the policy starts it.
TEST(Searches, NobodyWaitsForATrialThatEndsWhenItIsStarted) {
  Workload workload = trials_of(2, 100, true);
  workload.jobs[1].work = 0;
  const auto result = run(workload, "1x1", "fifo");
  const auto& first = result.recorder.jobs()[0];
  EXPECT_TRUE(first.end || first.stopped == time_at(10));
  EXPECT_EQ(result.metrics.completed + result.metrics.searches->stopped, 2U);
}

// The second comes when the first has finished its stage, and the policy rejects it at once.
// Nothing else happens.
TEST(Searches, NobodyWaitsForATrialThatIsRejected) {
  FunctionPolicy policy([](const Snapshot& snapshot) -> Result<Decision> {
    Decision decision;
    for (const JobView& job : snapshot.jobs) {
      if (job.id == JobId(1)) {
        decision.reject.push_back({job.id, "no", std::nullopt});
      } else if (!job.stays_away()) {
        decision.run.push_back({job.id, Count{GpuType(), 1}});
      }
    }
    return decision;
  });
  Workload workload = trials_of(2, 100, true);
  workload.jobs[1].submit = time_at(10);
  const auto result = simulate(workload, cluster_of("1x1"), policy, {});
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_EQ(result->metrics.rejected, 1U);
  EXPECT_EQ(result->metrics.completed, 1U);
  EXPECT_EQ(result->metrics.makespan_s, 100);
}

TEST(Searches, AWaitCostsARestart) {
  const auto result = run(trials_of(2, 100, true, 1, 5), "1x1", "fifo");
  // 5+10, 5+10, and the better one 90 s more; it restarts unless it ran last.
  EXPECT_TRUE(result.metrics.makespan_s == 120 || result.metrics.makespan_s == 125);
}

TEST(Searches, AreTheSameForTheSameSeed) {
  GeneratorOptions options;
  options.jobs = 200;
  options.cluster_gpus = 16;
  options.search_share = 0.6;
  options.gpu_mix = {{1, 3}, {2, 1}};
  const auto trace = generate(options);
  std::size_t trials = 0;
  for (const auto& job : trace->jobs) trials += job.search ? 1 : 0;
  EXPECT_GT(trials, 60U);
  EXPECT_LT(trials, 180U);
  const auto workload = make_workload(*trace, {});
  ASSERT_TRUE(workload.ok());
  EXPECT_EQ(workload->searches, (trials + 7) / 8);
  const auto first = run(*workload, "4x4", "srtf").metrics;
  const auto again = run(*workload, "4x4", "srtf").metrics;
  EXPECT_EQ(first.avg_jct_s, again.avg_jct_s);
  EXPECT_EQ(first.searches->avg_stage_s, again.searches->avg_stage_s);
  EXPECT_GT(first.searches->stopped, trials / 2);
  EXPECT_GE(*first.searches->regret, 0);
  EXPECT_LT(*first.searches->regret, 0.1);
}

// Two jobs on the same two nodes: with an order, the one that goes first loses nothing.
TEST(Searches, LinksHaveAnOrder) {
  const auto links = std::make_shared<LinkContention>(
      LinkContention::Links{1e9, 1e9, 4},
      LinkContention::Uses{{"heavy", {1, 0.8e9}}, {"light", {1, 0.2e9}}});
  std::vector<SimJob> jobs;
  for (const char* model : {"heavy", "light"})
    jobs.push_back(with(rigid_job(0, 2, 100), [&](JobSpec& spec) { spec.model = model; }));
  const Workload workload = workload_of(std::move(jobs));
  SimulationOptions options;
  options.placement = Placement::pack;
  options.contention = links;
  const auto ends = [&](LinkOrder order) {
    options.link_order = order;
    FunctionPolicy spread([](const Snapshot& snapshot) -> Result<Decision> {
      Decision decision;
      for (const JobView& job : snapshot.jobs)
        decision.run.push_back({job.id, Spread{{{NodeId(0), 1}, {NodeId(1), 1}}}, std::nullopt});
      return decision;
    });
    const auto result = simulate(workload, cluster_of("2x2"), spread, options);
    EXPECT_TRUE(result.ok());
    return std::pair(seconds(*result->recorder.jobs()[0].end),
                     seconds(*result->recorder.jobs()[1].end));
  };
  const auto [fair_heavy, fair_light] = ends(LinkOrder::fair);
  EXPECT_GT(fair_heavy, 100);
  EXPECT_GT(fair_light, 100);
  const auto [heavy, light] = ends(LinkOrder::intensity);
  EXPECT_EQ(light, 100);  // it computes much for what it sends
  EXPECT_GT(heavy, fair_heavy);
  const auto [last, first] = ends(LinkOrder::grouper);
  EXPECT_EQ(first, 100);  // it has less to send
  EXPECT_GT(last, fair_heavy);
}

}  // namespace
}  // namespace rubato::sim
