#include "rubato/model/contention.h"

#include <gtest/gtest.h>
#include <memory>
#include <vector>

#include "rubato/core/testing.h"
#include "rubato/model/curve.h"

namespace rubato::model {
namespace {

const Allocation kLeft = gpus_on({{0, 0b1}, {1, 0b1}});
const Allocation kRight = gpus_on({{1, 0b10}, {2, 0b1}});
const Allocation kInside = gpus_on({{1, 0b100}});

TEST(FixedLoss, IsForJobsThatBothUseTheNetwork) {
  const FixedLoss model(0.25);
  const std::vector<Tenant> both = {{"b", &kInside}, {"b", &kRight}};
  EXPECT_EQ(model.kept({"a", &kLeft}, both), 0.75);
  EXPECT_EQ(model.kept({"a", &kInside}, {both.data() + 1, 1}), 1);
  EXPECT_EQ(model.kept({"a", &kLeft}, {both.data(), 1}), 1);
}

TEST(PairLoss, CountsTheStrongestNeighbour) {
  const PairLoss model({{"moe", {1, 0.9}}, {"sage", {0.2, 0.1}}});
  const std::vector<Tenant> others = {{"sage", &kRight}, {"moe", &kRight}, {"new", &kRight}};
  EXPECT_DOUBLE_EQ(model.kept({"sage", &kLeft}, others), 1 / 1.18);
  EXPECT_DOUBLE_EQ(model.kept({"moe", &kLeft}, {others.data(), 1}), 1 / 1.1);
  EXPECT_EQ(model.kept({"new", &kLeft}, others), 1) << "it neither suffers";
  EXPECT_EQ(model.kept({"moe", &kLeft}, {others.data() + 2, 1}), 1) << "nor hurts";
  EXPECT_TRUE(model.knows("moe"));
  EXPECT_FALSE(model.knows("new"));
}

TEST(NodeTenants, ListsEachNeighbourOnce) {
  NodeTenants tenants(3);
  tenants.put(7, kLeft);
  tenants.put(2, gpus_on({{0, 0b10}, {1, 0b1000}}));
  tenants.put(4, kRight);
  EXPECT_EQ(tenants.neighbours(7, kLeft), (std::vector<std::size_t>{2, 4}));
  tenants.take(2, gpus_on({{0, 0b10}, {1, 0b1000}}));
  EXPECT_EQ(tenants.neighbours(7, kLeft), (std::vector<std::size_t>{4}));
  EXPECT_TRUE(tenants.on(node_id(2)) == std::vector<std::size_t>{4});
}

// Two jobs that meet on node 1 and report some speed of 1 alone.
Snapshot meeting(double first_rate, double second_rate) {
  Snapshot snapshot;
  snapshot.cluster = cluster_of("3x4");
  for (const auto& [id, gpus, rate] :
       {std::tuple(0, kLeft, first_rate), std::tuple(1, kRight, second_rate)}) {
    auto spec = rigid_spec(2);
    spec->model = id == 0 ? "a" : "b";
    JobView job = job_view(job_id(static_cast<std::size_t>(id)), spec);
    job.held = job.target = gpus;
    job.speed = std::make_shared<ConstantSpeed>(1);
    job.progress = {100, kStart, rate};
    snapshot.jobs.insert(std::move(job));
  }
  return snapshot;
}

TEST(SeenContention, LearnsFromTheSpeedsThatJobsReport) {
  SeenContention seen;
  const Tenant a{"a", &kLeft}, b{"b", &kRight};
  EXPECT_NEAR(seen.kept(a, {&b, 1}), 0.9, 1e-12) << "what it assumes of strangers";
  const Snapshot snapshot = meeting(0.5, 0.95);
  for (int i = 0; i < 50; ++i) seen.observe(snapshot);
  EXPECT_NEAR(seen.kept(a, {&b, 1}), 0.5, 0.01);
  EXPECT_NEAR(seen.kept(b, {&a, 1}), 0.95, 0.01);
}

TEST(SeenContention, DoesNotLearnFromJobsThatRestartOrStandStill) {
  SeenContention seen;
  Snapshot snapshot = meeting(0.5, 0);
  snapshot.jobs.find(job_id(0))->progress.at = kStart + from_seconds(1);
  seen.observe(snapshot);
  EXPECT_TRUE(seen.numbers().empty());
}

TEST(ReportedShare, IsTheReportedSpeedOverTheSpeedAlone) {
  const Snapshot snapshot = meeting(0.5, 2);
  EXPECT_EQ(reported_share(*snapshot.jobs.find(job_id(0)), snapshot.cluster, kStart), 0.5);
  EXPECT_EQ(reported_share(*snapshot.jobs.find(job_id(1)), snapshot.cluster, kStart), 1);
}

}  // namespace
}  // namespace rubato::model
