#include "rubato/policy/antman.h"

#include <gtest/gtest.h>
#include <memory>

#include "rubato/model/guest.h"
#include "rubato/model/typed_speed.h"
#include "rubato/policy/testing.h"

namespace rubato::policy {
namespace {

using testing::Draft;
using testing::make_policy;
using testing::World;

// Two rows: beside each other the first keeps `host` of its speed 1, the second `guest`.
std::shared_ptr<const ThroughputTable> table_of(double host, double guest, int gpus = 1) {
  auto table = std::make_shared<ThroughputTable>(2, 1);
  for (const std::size_t row : {0U, 1U}) table->set_alone(row, GpuType(), gpus, 1);
  table->set_beside(0, 1, GpuType(), gpus, host);
  table->set_beside(1, 0, GpuType(), gpus, guest);
  return table;
}

JobId submit(World& world, const Draft& draft, std::shared_ptr<const SpeedModel> speed) {
  auto job = draft.job();
  job.speed = std::move(speed);
  return world.submit_job(job);
}

TEST(Guest, GetsWhatTheAllowedLossOfItsHostPermits) {
  const auto table = table_of(0.8, 0.6);
  const GuestPair pair =
      guest_pair(TypedSpeed(table, 0), TypedSpeed(table, 1), {GpuType(), 1, 0, 0});
  EXPECT_DOUBLE_EQ(pair.share, 0.25);
  EXPECT_DOUBLE_EQ(pair.host, 0.95);
  EXPECT_DOUBLE_EQ(pair.guest, 0.15);
}

TEST(Guest, IsUnlimitedBesideAHostThatLosesLessThanAllowed) {
  EXPECT_EQ(guest_share(1), 1);
  EXPECT_EQ(guest_share(1.3), 1);
  EXPECT_EQ(guest_share(0.95), 1);
  EXPECT_DOUBLE_EQ(guest_share(0), 0.05) << "a host that it would stop";
}

TEST(Guest, PairsThatWereNotMeasuredDoNotShare) {
  const auto table = table_of(0.8, 0.6);
  const GuestPair pair =
      guest_pair(TypedSpeed(table, 1), TypedSpeed(table, 1), {GpuType(), 1, 0, 0});
  EXPECT_EQ(pair.guest, 0);
}

TEST(AntMan, GuaranteedJobsComeFirstAndOpportunisticOnesLeave) {
  const auto policy = make_policy("antman");
  World world("1x2");
  world.submit({.work = 100, .opportunistic = true});
  world.submit({.work = 100, .opportunistic = true});
  EXPECT_EQ(world.decide(*policy), "0x1 1x1");
  world.submit({.work = 100});
  EXPECT_EQ(world.decide(*policy), "0x1 2x1") << "the newest leaves";
  world.submit({.gpus = 2, .work = 100});
  EXPECT_EQ(world.decide(*policy), "0x1 2x1") << "a guaranteed job is never preempted";
}

TEST(AntMan, AGuaranteedJobAboveItsUsersQuotaWaits) {
  const auto policy = make_policy("antman");
  World world("1x4");
  world.submit({.gpus = 2, .work = 100, .quota = 2, .user = "ada"});
  world.submit({.work = 100, .quota = 2, .user = "ada"});
  world.submit({.work = 100, .user = "bob"});
  EXPECT_EQ(world.decide(*policy), "0x2 2x1") << "although a GPU is free";
  world.submit({.work = 100, .opportunistic = true, .quota = 2, .user = "ada"});
  EXPECT_EQ(world.decide(*policy), "0x2 2x1 3x1") << "an opportunistic one does not count";
  world.finish(JobId(0));
  EXPECT_EQ(world.decide(*policy), "1x1 2x1 3x1");
}

TEST(AntMan, AGuaranteedJobLargerThanTheWholeQuotaIsRefused) {
  const auto policy = make_policy("antman");
  World world("1x4");
  world.submit({.gpus = 2, .work = 100, .quota = 2, .user = "ada"});
  world.submit({.gpus = 3, .work = 100, .quota = 2, .user = "ada"});
  world.submit({.gpus = 3, .work = 100, .opportunistic = true, .quota = 2, .user = "ada"});
  world.submit({.gpus = 2, .work = 100, .quota = 2, .user = "ada"});
  EXPECT_EQ(world.decide(*policy), "0x2 !1");
  ASSERT_EQ(world.last().reject.size(), 1U);
  EXPECT_EQ(world.last().reject[0].reason,
            "needs 3 GPUs, and the guaranteed jobs of ada may have 2 together; submit it as "
            "opportunistic, or with fewer GPUs");
  world.finish(JobId(0));
  EXPECT_EQ(world.decide(*policy), "3x2") << "one that only had to wait for the others runs";
}

TEST(AntMan, AJobThatWasTakenInIsNotRefusedWhenTheQuotaShrinks) {
  const auto policy = make_policy("antman");
  World world("1x4");
  world.submit({.gpus = 3, .work = 100, .user = "bob"});
  world.submit({.gpus = 3, .work = 100, .quota = 3, .user = "ada"});
  EXPECT_EQ(world.decide(*policy), "0x3");
  world.submit({.work = 100, .quota = 2, .user = "ada"});
  EXPECT_EQ(world.decide(*policy), "0x3 2x1");
  world.finish(JobId(0));
  world.finish(JobId(2));
  world.submit({.work = 100, .quota = 4, .user = "ada"});
  EXPECT_EQ(world.decide(*policy), "1x3 3x1");
}

TEST(AntMan, TheNewestJobOfAUserCarriesTheQuota) {
  const auto policy = make_policy("antman");
  World world("1x4");
  world.submit({.gpus = 2, .work = 100, .quota = 2, .user = "ada"});
  world.submit({.work = 100, .quota = 3, .user = "ada"});
  EXPECT_EQ(world.decide(*policy), "0x2 1x1");
}

TEST(AntMan, AnOpportunisticJobBecomesTheGuestOfAHostThatLeavesMost) {
  const auto policy = make_policy("antman");
  World world("1x2");
  auto table = std::make_shared<ThroughputTable>(3, 1);
  for (const std::size_t row : {0U, 1U, 2U}) table->set_alone(row, GpuType(), 1, 1);
  for (const auto& [row, kept] : {std::pair(0U, 0.6), std::pair(1U, 0.9)}) {
    table->set_beside(row, 2, GpuType(), 1, kept);
    table->set_beside(2, row, GpuType(), 1, 0.8);
  }
  submit(world, {.work = 100}, std::make_shared<TypedSpeed>(table, 0));
  submit(world, {.work = 100}, std::make_shared<TypedSpeed>(table, 1));
  submit(world, {.work = 100, .opportunistic = true}, std::make_shared<TypedSpeed>(table, 2));
  AntMan::State state;
  const Decision decision = AntMan().decide(world.snapshot(), state);
  ASSERT_EQ(decision.run.size(), 3U);
  EXPECT_EQ(std::get<Beside>(decision.run[2].want).host, JobId(1));
  EXPECT_TRUE(validate(decision, world.snapshot()).ok());
  const Decision without = AntMan{{.guests = false}}.decide(world.snapshot(), state);
  EXPECT_EQ(without.run.size(), 2U);
  const Decision oldest = AntMan{{.fastest = false}}.decide(world.snapshot(), state);
  ASSERT_EQ(oldest.run.size(), 3U);
  EXPECT_EQ(std::get<Beside>(oldest.run[2].want).host, JobId(0));
}

TEST(AntMan, AHostHasOneGuest) {
  World world("1x1");
  const auto table = table_of(0.9, 0.9);
  submit(world, {.work = 100}, std::make_shared<TypedSpeed>(table, 0));
  for (int i = 0; i < 2; ++i)
    submit(world, {.work = 100, .opportunistic = true}, std::make_shared<TypedSpeed>(table, 1));
  AntMan::State state;
  EXPECT_EQ(AntMan().decide(world.snapshot(), state).run.size(), 2U);
}

TEST(AntMan, TwoGuaranteedOrTwoOpportunisticJobsNeverShare) {
  for (const bool opportunistic : {false, true}) {
    World world("1x1");
    const auto table = table_of(1, 1);
    for (const std::size_t row : {0U, 1U}) {
      submit(world, {.work = 100, .opportunistic = opportunistic},
             std::make_shared<TypedSpeed>(table, row));
    }
    AntMan::State state;
    EXPECT_EQ(AntMan().decide(world.snapshot(), state).run.size(), 1U);
  }
}

TEST(AntMan, OnALiveClusterPairsAreTried) {
  World world("1x1");
  for (const bool opportunistic : {false, true}) {
    auto job = Draft{.work = 100, .opportunistic = opportunistic}.job();
    auto spec = std::make_shared<JobSpec>(*job.spec);
    spec->tries_pairs = true;
    job.spec = spec;
    world.submit_job(job);
  }
  AntMan::State state;
  EXPECT_EQ(AntMan().decide(world.snapshot(), state).run.size(), 2U);
  world.job(JobId(0)).resized = world.now();
  EXPECT_EQ(AntMan().decide(world.snapshot(), state).run.size(), 1U)
      << "nobody on its node may know of the host";
}

}  // namespace
}  // namespace rubato::policy
