#include "rubato/sim/batch_schedule.h"

#include <gtest/gtest.h>
#include <vector>

#include "rubato/sim/testing.h"
#include "rubato/sim/throughputs.h"

namespace rubato::sim {
namespace {

using From = std::vector<BatchFrom>;

TEST(BatchSchedule, AccordionTakesTheLargestBatchOutsideCriticalEpochs) {
  // 59,675 samples in steps of 10: 5,968 steps an epoch, 20 epochs. The first 30% are critical.
  const auto lm = batch_schedule(BatchChanges::accordion, "LM", 10, 1, 20 * 5968);
  EXPECT_EQ(lm.steps, 5968);
  EXPECT_EQ(lm.from, (From{{0, 10}, {10, 80}}));
  const auto longer = batch_schedule(BatchChanges::accordion, "LM", 10, 1, 100 * 5968);
  EXPECT_EQ(longer.from, (From{{0, 10}, {31, 80}}));
  // ResNet-50 has critical epochs again and again: 10 of 30.
  const auto resnet = batch_schedule(BatchChanges::accordion, "ResNet-50", 64, 1, 65 * 1563);
  EXPECT_EQ(resnet.from, (From{{0, 64}, {20, 128}, {30, 64}, {40, 128}, {60, 64}}));
}

TEST(BatchSchedule, GnsDoublesAtFixedEpochsUpToTheLargestBatch) {
  const int steps = (50'000 + 31) / 32;
  const auto schedule = batch_schedule(BatchChanges::gns, "ResNet-18", 32, 1, 60.0 * steps);
  EXPECT_EQ(schedule.from, (From{{0, 32}, {21, 64}, {31, 128}, {51, 256}}));
  const auto shorter = batch_schedule(BatchChanges::gns, "ResNet-18", 32, 1, 30.0 * steps);
  EXPECT_EQ(shorter.from, (From{{0, 32}, {21, 64}}));
  EXPECT_EQ(batch_schedule(BatchChanges::gns, "ResNet-18", 32, 8, 60.0 * steps).from.size(), 1U)
      << "nothing is published for 8 GPUs";
}

TEST(BatchSchedule, OthersKeepTheirBatch) {
  EXPECT_EQ(batch_schedule(BatchChanges::gns, "Transformer", 16, 1, 1e6).from, (From{{0, 16}}));
  EXPECT_EQ(batch_schedule(BatchChanges::none, "LM", 10, 1, 1e6).from, (From{{0, 10}}));
  EXPECT_EQ(batch_schedule(BatchChanges::accordion, "LM", 80, 1, 1e6).from, (From{{0, 80}}));
}

// A job of 40 steps in epochs of 10. It has the first batch for one epoch, then one of twice the
// size with half as many steps a second plus a bit: 2 x 6 = 12 instead of 10.
std::shared_ptr<const ThroughputTable> changing_table() {
  auto table = std::make_shared<ThroughputTable>(2, 1);
  table->set_alone(0, GpuType(), 1, 10);
  table->set_alone(1, GpuType(), 1, 6);
  table->set_beside(0, 0, GpuType(), 1, 4);
  table->set_beside(0, 1, GpuType(), 1, 5);
  table->set_beside(1, 0, GpuType(), 1, 3);
  table->set_beside(1, 1, GpuType(), 1, 2);
  return table;
}

SimJob changing_job(double submit_s, const std::shared_ptr<const ThroughputTable>& table) {
  auto phases = std::make_shared<BatchPhases>();
  phases->modes = {{std::make_shared<TypedSpeed>(table, 0), 1},
                   {std::make_shared<TypedSpeed>(table, 1), 2}};
  phases->phases = {{0, 0}, {10, 1}};
  phases->work = 40;
  phases->epoch = 10;
  SimJob job = typed_job(submit_s, 40, table, 0);
  job.phases = phases;
  return job;
}

TEST(BatchPhases, TheEngineGoesFromPhaseToPhase) {
  const Workload workload = workload_of({changing_job(0, changing_table())});
  const Cluster cluster = cluster_of("1x1");
  std::vector<double> seen;
  FunctionPolicy policy([&](const Snapshot& snapshot) -> Result<Decision> {
    Decision decision;
    for (const JobView& job : snapshot.jobs) {
      decision.run.push_back({job.id, Count{GpuType(), 1}, std::nullopt});
      seen.push_back(job.speed->on(GpuType(), 1));
      EXPECT_EQ(job.progress.left(snapshot.now), seconds(snapshot.now) == 1 ? 30 : 40);
    }
    return decision;
  });
  const auto result = simulate(workload, cluster, policy, {});
  ASSERT_TRUE(result.ok());
  // 10 steps at 10 a second, then 30 at 12.
  EXPECT_EQ(seconds(*result->recorder.jobs()[0].end), 1 + 30.0 / 12);
  EXPECT_EQ(seen, (std::vector<double>{10, 12})) << "policies are told the new speed";
}

TEST(BatchPhases, WhoSharesTheGpusIsSlowedByTheBatchOfTheOther) {
  const auto table = changing_table();
  const Workload workload = workload_of({changing_job(0, table), changing_job(0, table)});
  const Cluster cluster = cluster_of("1x1");
  FunctionPolicy policy([&](const Snapshot& snapshot) -> Result<Decision> {
    Decision decision;
    const JobView* host = nullptr;
    for (const JobView& job : snapshot.jobs) {
      const Want want = host == nullptr ? Want(Count{GpuType(), 1}) : Want(Beside{host->id});
      decision.run.push_back({job.id, want, std::nullopt});
      host = &job;
    }
    return decision;
  });
  const auto result = simulate(workload, cluster, policy, {});
  ASSERT_TRUE(result.ok());
  // Both change at the same time: 10 at 4 a second, 30 at 2 x 2.
  EXPECT_EQ(seconds(*result->recorder.jobs()[0].end), 10.0);
  EXPECT_EQ(seconds(*result->recorder.jobs()[1].end), 10.0);
}

}  // namespace
}  // namespace rubato::sim
