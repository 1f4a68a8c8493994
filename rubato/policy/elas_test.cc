#include "rubato/policy/elas.h"

#include <gtest/gtest.h>

#include "rubato/policy/testing.h"

namespace rubato::policy {
namespace {

using testing::make_policy;
using testing::World;

// Two jobs of which only one can run: one with 100 GPU-s of service and 90% done, one with 40 GPU-s
// and 10% done.
World two_jobs() {
  World world("1x1");
  for (const auto& [service, done] : {std::pair(100.0, 0.9), {40.0, 0.1}}) {
    const JobId id = world.submit({.gpus = 1, .work = 1000});
    world.job(id).attained_before = GpuTime::from_gpu_seconds(service);
    world.job(id).progress.work_left = 1000 * (1 - done);
  }
  return world;
}

TEST(Elas, PrefersWhatIsNearlyDone) {
  for (const auto* name : {"elas", "elas:form=product"}) {
    auto world = two_jobs();
    EXPECT_EQ(world.decide(*make_policy(name)), "0x1")
        << name << ": 10 before 36, or 11 before 360";
  }
  auto world = two_jobs();
  EXPECT_EQ(world.decide(*make_policy("tiresias-las:limits=60/200")), "1x1") << "the opposite";
}

TEST(Elas, BothFormsDifferOnLongJobs) {
  for (const bool product : {true, false}) {
    World world("1x1");
    for (const auto& [service, done] : {std::pair(200.0, 0.5), {60.0, 0.1}}) {
      const JobId id = world.submit({.gpus = 1, .work = 1000});
      world.job(id).attained_before = GpuTime::from_gpu_seconds(service);
      world.job(id).progress.work_left = 1000 * (1 - done);
    }
    // 100 against 54 by the product; 200 against 540 by what is left.
    EXPECT_EQ(world.decide(*make_policy(product ? "elas:form=product" : "elas")),
              product ? "1x1" : "0x1");
  }
}

TEST(Elas, ANewJobComesFirst) {
  const auto policy = make_policy("elas");
  World world("1x1");
  world.submit({.gpus = 1, .work = 100});
  EXPECT_EQ(world.decide(*policy), "0x1");
  world.pass(50).submit({.gpus = 1, .work = 1000});
  EXPECT_EQ(world.decide(*policy), "1x1") << "nothing is known of it yet";
  world.pass(10).submit({.gpus = 1, .work = 1});
  EXPECT_EQ(world.decide(*policy), "2x1");
  world.pass(1).finish(JobId(2));
  EXPECT_EQ(world.decide(*policy), "0x1") << "50 GPU-s left, against 990";
}

TEST(Elas, AJobOfUnknownLengthIsJudgedByItsService) {
  World world("1x1");
  const JobId id = world.submit({.gpus = 1, .work = 1000});
  world.job(id).progress.work_left = 100;
  EXPECT_DOUBLE_EQ(share_done(world.job(id), world.now()), 0.9);
  auto guessed = std::make_shared<JobSpec>(*world.job(id).spec);
  guessed->work_guessed = true;
  world.job(id).spec = guessed;
  EXPECT_EQ(share_done(world.job(id), world.now()), 0);
}

TEST(Elas, AsksAgainAfterARoundWhileJobsWait) {
  const auto policy = make_policy("elas:round=60");
  Snapshot snapshot;
  snapshot.cluster = testing::cluster_of("1x1");
  for (std::size_t i = 0; i < 2; ++i) {
    JobView job;
    job.id = JobId(static_cast<JobId::rep>(i));
    auto spec = std::make_shared<JobSpec>();
    job.spec = spec;
    job.speed = std::make_shared<ConstantSpeed>(1);
    job.work = job.progress.work_left = 10;
    snapshot.jobs.insert(std::move(job));
    const auto decision = policy->decide(snapshot);
    ASSERT_TRUE(decision.ok());
    EXPECT_EQ(decision->again_at.has_value(), i == 1);
    snapshot.changed = {JobId(1)};
    snapshot.changed_since = snapshot.as_of;
    snapshot.as_of = snapshot.as_of.next();
  }
}

}  // namespace
}  // namespace rubato::policy
