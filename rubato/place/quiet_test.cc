#include "rubato/place/quiet.h"

#include <gtest/gtest.h>
#include <utility>
#include <vector>

#include "rubato/core/testing.h"
#include "rubato/place/diff.h"

namespace rubato::place {
namespace {

// Targets on a small cluster, with the placement quiet.
struct Yard {
  explicit Yard(const char* text, QuietRule rule = {})
      : cluster(cluster_of(text)), free(cluster), differ(Placement::quiet, cluster, rule) {}

  void add(std::size_t job, const Allocation& gpus = {}) {
    JobView view = job_view(job_id(job), elastic_spec(1, 100));
    auto spec = std::make_shared<JobSpec>(*view.spec);
    spec->model = job % 2 == 0 ? "calm" : "loud";
    view.spec = spec;
    view.target = gpus;
    jobs.insert(std::move(view));
    for (const Slice& slice : gpus.slices()) free.take(slice);
    if (!gpus.empty()) targeted.push_back(job_id(job));
  }
  // What the jobs get.
  std::vector<Change> decide(const std::vector<Grant>& run,
                             const std::vector<JobId>& promised = {}) {
    Decision decision;
    decision.run = run;
    for (const JobId job : promised) decision.promise.push_back({job, kNever, {}, true});
    auto changes = differ.diff(decision, jobs, targeted, free);
    EXPECT_TRUE(changes.ok());
    return std::move(*changes);
  }

  Cluster cluster;
  FreeGpus free;
  Differ differ;
  JobTable jobs;
  std::vector<JobId> targeted;
};

TEST(Quiet, StartsWhereNobodyElseUsesTheNetwork) {
  Yard yard("4x4");
  yard.add(0, gpus_on({{0, 0b1111}, {1, 0b11}}));  // 6 GPUs
  yard.add(1);
  const auto changes = yard.decide({grant_count(0, 6), grant_count(1, 6)});
  ASSERT_EQ(changes.size(), 1U);
  // pack would take the two GPUs that are left on node 1.
  EXPECT_EQ(changes[0].target, gpus_on({{2, 0b1111}, {3, 0b11}}));
}

TEST(Quiet, LetsAJobWaitWhereItWouldDisturb) {
  Yard yard("3x4");
  yard.add(0, gpus_on({{0, 0b1111}, {1, 0b11}}));
  yard.add(1);
  EXPECT_TRUE(yard.decide({grant_count(0, 6), grant_count(1, 6)}).empty());
  EXPECT_EQ(yard.free.free_of(GpuType()), 6) << "nothing was taken";
}

TEST(Quiet, LetsAJobWaitForFewerNodes) {
  Yard yard("3x4");
  for (std::size_t i = 0; i < 3; ++i) yard.add(i, gpus_on({{i, 0b111}}));
  yard.add(3);
  EXPECT_TRUE(
      yard.decide({grant_count(0, 3), grant_count(1, 3), grant_count(2, 3), grant_count(3, 2)})
          .empty());
}

TEST(Quiet, DoesNotLetAJobGrowIntoTrouble) {
  Yard yard("2x4");
  yard.add(0, gpus_on({{0, 0b1111}}));
  yard.add(1, gpus_on({{1, 0b11}}));
  EXPECT_TRUE(yard.decide({grant_count(0, 4), grant_count(1, 2)}).empty());
  auto changes = yard.decide({grant_count(0, 4), grant_count(1, 4)});
  ASSERT_EQ(changes.size(), 1U);
  EXPECT_EQ(changes[0].kind, Change::Kind::resize);
  EXPECT_EQ(changes[0].target, gpus_on({{1, 0b1111}}));

  Yard crowded("3x4");
  crowded.add(0, gpus_on({{0, 0b1111}, {1, 0b1}}));
  crowded.add(1, gpus_on({{2, 0b1111}}));
  EXPECT_TRUE(crowded.decide({grant_count(0, 5), grant_count(1, 6)}).empty())
      << "the only free GPUs are beside job 0";
}

TEST(Quiet, AllowsAsMuchLossAsTheRuleSays) {
  const PairLoss known({{"calm", {1, 0.05}}, {"loud", {0.05, 0.2}}});  // 0.83 and 0.998 are kept
  for (const auto& [loss, starts] : {std::pair(0.1, false), std::pair(0.2, true)}) {
    Yard yard("3x4", {loss, &known});
    yard.add(0, gpus_on({{0, 0b1111}, {1, 0b11}}));
    yard.add(1);
    EXPECT_EQ(!yard.decide({grant_count(0, 6), grant_count(1, 6)}).empty(), starts) << loss;
  }
}

TEST(Quiet, NeverLetsAPromisedJobWait) {
  Yard yard("3x4");
  yard.add(0, gpus_on({{0, 0b1111}, {1, 0b11}}));
  yard.add(1);
  const auto changes = yard.decide({grant_count(0, 6), grant_count(1, 6)}, {job_id(1)});
  ASSERT_EQ(changes.size(), 1U);
  EXPECT_EQ(changes[0].target.gpus(), 6);
}

TEST(Quiet, NeverLetsAJobWaitThatIsAlone) {
  Yard yard("3x4");
  yard.free.set_up(node_id(0), false);
  yard.add(0, gpus_on({{1, 0b11}}));
  yard.add(1);
  // Job 0 stops, so job 1 would be alone.
  const auto changes = yard.decide({grant_count(1, 8)});
  ASSERT_EQ(changes.size(), 2U);
  EXPECT_EQ(changes[1].target.gpus(), 8);
}

}  // namespace
}  // namespace rubato::place
