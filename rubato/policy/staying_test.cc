#include "rubato/policy/staying.h"

#include <gtest/gtest.h>
#include <utility>
#include <variant>

#include "rubato/core/testing.h"

namespace rubato::policy {
namespace {

// Nodes 0 and 1 with 4 GPUs each. Job 0 waits, job 1 runs on GPUs 0 and 1 of node 0 and may not be
// preempted, job 2 runs on the others of node 0.
Snapshot scene() {
  Snapshot snapshot;
  snapshot.cluster = cluster_of("2x4");
  snapshot.now = time_at(5);
  snapshot.as_of = Sequence(9);
  snapshot.changed_since = Sequence(8);
  snapshot.changed = {job_id(0)};
  snapshot.jobs.insert(job_view(job_id(0), rigid_spec(4)));
  auto bound = rigid_spec(2);
  bound->preemptible = false;
  JobView stays = job_view(job_id(1), std::move(bound));
  stays.target = stays.held = gpus_on({{0, 0b0011}});
  stays.batch = Batch{8, 1};
  snapshot.jobs.insert(std::move(stays));
  JobView runs = job_view(job_id(2), rigid_spec(2));
  runs.target = runs.held = gpus_on({{0, 0b1100}});
  snapshot.jobs.insert(std::move(runs));
  return snapshot;
}

TEST(Staying, ShowsTheOtherJobsOnTheOtherGpus) {
  const Snapshot snapshot = scene();
  Staying staying;
  const Snapshot& rest = staying.rest_of(snapshot, true);
  EXPECT_EQ(rest.jobs.size(), 2U);
  EXPECT_EQ(rest.jobs.find(job_id(1)), nullptr);
  EXPECT_EQ(rest.jobs.find(job_id(2))->target, gpus_on({{0, 0b1100}}));
  EXPECT_EQ(rest.cluster.usable(), 6);
  EXPECT_EQ(rest.cluster.installed(), 8);
  EXPECT_EQ(rest.cluster.node(node_id(0)).usable(), 0b1100U);
  EXPECT_EQ(rest.now, snapshot.now);
  EXPECT_EQ(rest.as_of, snapshot.as_of);
  EXPECT_NE(rest.changed_since, snapshot.changed_since) << "it has to look at everything";

  Decision decision;
  decision.run = {grant_count(0, 4), grant_count(2, 2)};
  staying.add_to(decision);
  ASSERT_EQ(decision.run.size(), 3U);
  EXPECT_EQ(decision.run[2].job, job_id(1));
  EXPECT_EQ(std::get<Exact>(decision.run[2].want).gpus, gpus_on({{0, 0b0011}}));
  EXPECT_EQ(decision.run[2].batch, (Batch{8, 1}));
  EXPECT_TRUE(validate(decision, snapshot).ok());
}

TEST(Staying, LooksAtEverythingOnceMoreWhenNobodyStaysAnyMore) {
  Snapshot snapshot = scene();
  Staying staying;
  EXPECT_NE(&staying.rest_of(snapshot, true), &snapshot);
  JobView& job = *snapshot.jobs.find(job_id(1));
  job.target = job.held = Allocation();  // a failure
  const Snapshot& after = staying.rest_of(snapshot, true);
  EXPECT_EQ(after.jobs.size(), 3U);
  EXPECT_EQ(after.cluster.usable(), 8);
  EXPECT_NE(after.changed_since, snapshot.changed_since);
  EXPECT_EQ(&staying.rest_of(snapshot, true), &snapshot) << "and then it is the snapshot itself";
  Decision decision;
  staying.add_to(decision);
  EXPECT_TRUE(decision.run.empty());
}

TEST(Staying, WhoSharesItsGpusStaysWithTheOther) {
  Snapshot snapshot = scene();
  JobView& other = *snapshot.jobs.find(job_id(2));
  other.target = other.held = gpus_on({{0, 0b0011}});
  other.shares_with = job_id(1);
  snapshot.jobs.find(job_id(1))->shares_with = job_id(2);
  Staying staying;
  EXPECT_EQ(staying.rest_of(snapshot, true).jobs.size(), 1U);
  EXPECT_EQ(staying.rest_of(snapshot, true).cluster.usable(), 6);
  Decision decision;
  staying.add_to(decision);
  ASSERT_EQ(decision.run.size(), 2U);
  EXPECT_EQ(std::get<Beside>(decision.run[1].want).host, job_id(1));
  EXPECT_TRUE(validate(decision, snapshot).ok());
}

TEST(Staying, OnANodeThatLeavesItTakesNothingFromTheOthers) {
  Snapshot snapshot = scene();
  snapshot.cluster.set_state(node_id(0), NodeState::draining);
  Staying staying;
  EXPECT_EQ(staying.rest_of(snapshot, true).cluster.usable(), 4);
  EXPECT_EQ(usable_part(snapshot.jobs.find(job_id(1))->target, snapshot.cluster), 0);
  Decision decision;
  decision.run = {grant_count(0, 4)};
  staying.add_to(decision);
  EXPECT_TRUE(validate(decision, snapshot).ok());
}

TEST(Staying, WhoIsHeldByItsOwnerIsNotSeen) {
  Snapshot snapshot = scene();
  snapshot.jobs.find(job_id(0))->on_hold = true;
  snapshot.away = 1;
  Staying staying;
  const Snapshot& rest = staying.rest_of(snapshot, false);
  EXPECT_EQ(rest.jobs.size(), 2U);
  EXPECT_EQ(rest.cluster.usable(), 8) << "it has no GPUs";
  Decision decision;
  staying.add_to(decision);
  EXPECT_TRUE(decision.run.empty());
}

TEST(Staying, OnANodeOfWhichNothingIsKnownAJobKeepsWhatItHas) {
  Snapshot snapshot = scene();
  JobView& wide = *snapshot.jobs.find(job_id(2));
  wide.target = wide.held = gpus_on({{0, 0b1100}, {1, 0b0001}});
  snapshot.cluster.set_state(node_id(0), NodeState::unknown);
  Staying staying;
  const Snapshot& rest = staying.rest_of(snapshot, false);
  EXPECT_EQ(rest.jobs.size(), 1U) << "jobs 1 and 2 are there";
  EXPECT_EQ(rest.cluster.usable(), 3);
  Decision decision;
  staying.add_to(decision);
  ASSERT_EQ(decision.run.size(), 2U);
  EXPECT_TRUE(validate(decision, snapshot).ok());
}

}  // namespace
}  // namespace rubato::policy
