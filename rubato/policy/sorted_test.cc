#include "rubato/policy/sorted.h"

#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "rubato/core/testing.h"
#include "rubato/policy/testing.h"

namespace rubato::policy {
namespace {

using testing::Draft;
using testing::make_policy;
using testing::World;

struct Schedule {
  std::string policy;
  std::vector<double> start_s, end_s;
};

void expect_schedules(const std::string& cluster, const std::vector<Draft>& jobs,
                      const std::vector<Schedule>& expected) {
  for (const auto& row : expected) {
    const auto policy = make_policy(row.policy);
    const auto fates = World(cluster).run(*policy, jobs);
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      EXPECT_EQ(fates[i].start, time_at(row.start_s[i])) << row.policy << " starts job " << i;
      EXPECT_EQ(fates[i].end, time_at(row.end_s[i])) << row.policy << " ends job " << i;
    }
  }
}

TEST(Sorted, WholeSchedules) {
  // 4 GPUs. Job 1 does not fit beside job 0; jobs 2 and 3 would.
  expect_schedules(
      "1x4",
      {{.gpus = 3, .work = 10},
       {.gpus = 2, .work = 5, .submit_s = 1},
       {.gpus = 1, .work = 4, .submit_s = 2},
       {.gpus = 1, .work = 1, .submit_s = 3}},
      {{"fifo", {0, 10, 10, 10}, {10, 15, 14, 11}},
       {"fifo-backfill", {0, 10, 2, 6}, {10, 15, 6, 7}},
       // At 1 s job 1 displaces job 0 (fewer GPUs), and with 2 and 3 fills the cluster.
       {"sjf", {0, 1, 2, 3}, {15, 6, 6, 4}},
       // At 1 s: 9 s of job 0 against 5 s of job 1.
       {"srtf", {0, 1, 2, 3}, {15, 6, 6, 4}},
       // At 1 s: 27 GPU-s against 10 GPU-s.
       {"srsf", {0, 1, 2, 3}, {15, 6, 6, 4}}});
  // srtf runs the wide short job first, srsf the narrow ones.
  expect_schedules("1x4", {{.gpus = 4, .work = 3}, {.gpus = 2, .work = 5}, {.gpus = 2, .work = 4}},
                   {{"srtf", {0, 3, 3}, {3, 8, 7}}, {"srsf", {5, 0, 0}, {8, 5, 4}}});
  // Restart costs come with the first start and with every return.
  expect_schedules(
      "1x1",
      {{.gpus = 1, .work = 10, .restart_s = 2},
       {.gpus = 1, .work = 1, .submit_s = 5, .restart_s = 1}},
      {{"fifo", {0, 12}, {12, 14}}, {"srtf", {0, 5}, {16, 7}}});  // 2+3 s, away 5..7, then 2+7 s
}

TEST(Sorted, FifoHeadOfLineBlocksAndBackfillDoesNot) {
  for (const bool blocks : {true, false}) {
    const auto policy = make_policy(blocks ? "fifo" : "fifo-backfill");
    World world("1x4");
    world.submit({.gpus = 3, .work = 100});
    world.submit({.gpus = 2, .work = 100});
    const JobId small = world.submit({.gpus = 1, .work = 100});
    EXPECT_EQ(world.decide(*policy), blocks ? "0x3" : "0x3 2x1");
    if (!blocks) world.finish(small);
    world.pass(1).finish(JobId(0));
    EXPECT_EQ(world.decide(*policy), blocks ? "1x2 2x1" : "1x2");
    // A running job is never preempted for an older one that waits.
    world.submit({.gpus = 4, .work = 1});
    world.submit({.gpus = 1, .work = 1});
    EXPECT_EQ(world.decide(*policy), blocks ? "1x2 2x1" : "1x2 4x1");
  }
}

TEST(Sorted, FifoReturnsAJobThrownOffToItsPlace) {
  for (const auto* name : {"fifo", "fifo-backfill"}) {
    const auto policy = make_policy(name);
    World world("1x4");
    world.submit({.gpus = 3, .work = 100});
    world.submit({.gpus = 1, .work = 100});
    world.submit({.gpus = 3, .work = 100});
    EXPECT_EQ(world.decide(*policy), "0x3 1x1");
    world.pass(1).throw_off(JobId(0));
    EXPECT_EQ(world.decide(*policy), "0x3 1x1") << "before job 2, which is younger";
    world.pass(1).throw_off(JobId(1));
    world.throw_off(JobId(0));
    EXPECT_EQ(world.decide(*policy), "0x3 1x1");
  }
}

TEST(Sorted, SjfTakesFewestGpusFirstAndPreempts) {
  const auto policy = make_policy("sjf");
  World world("1x4");
  world.submit({.gpus = 4, .work = 100});
  EXPECT_EQ(world.decide(*policy), "0x4");
  world.submit({.gpus = 2, .work = 100});
  EXPECT_EQ(world.decide(*policy), "1x2");
  world.submit({.gpus = 3, .work = 1});
  EXPECT_EQ(world.decide(*policy), "1x2");
  world.submit({.gpus = 2, .work = 100});  // the same size: behind job 1, before job 2
  world.submit({.gpus = 2, .work = 1});
  EXPECT_EQ(world.decide(*policy), "1x2 3x2");
  world.submit({.gpus = 1, .work = 1});
  EXPECT_EQ(world.decide(*policy), "1x2 5x1");
}

// The remaining time of a running job falls to that of a waiting job. "Ties keep the previous
// order" means that neither of them overtakes the other.
TEST(Sorted, TiesKeepThePreviousOrder) {
  {
    const auto policy = make_policy("srtf");
    World world("1x4");
    world.submit({.gpus = 3, .work = 8});
    world.submit({.gpus = 2, .work = 10});  // waits behind job 0
    EXPECT_EQ(world.decide(*policy), "0x3");
    world.submit({.gpus = 1, .work = 10});  // runs beside job 0 and comes down to 9, past job 1
    EXPECT_EQ(world.decide(*policy), "0x3 2x1");
    world.pass(1).submit({.gpus = 3, .work = 9});  // ties with job 2, which was there before
    EXPECT_EQ(world.decide(*policy), "0x3 2x1");
    world.finish(JobId(0));
    EXPECT_EQ(world.decide(*policy), "2x1 3x3") << "2 and 3 have 9 s, job 1 has 10";
  }
  {
    const auto policy = make_policy("srtf");
    World world("1x2");
    world.submit({.gpus = 1, .work = 20});
    world.submit({.gpus = 2, .work = 18});
    EXPECT_EQ(world.decide(*policy), "1x2");
    world.throw_off(JobId(1));
    world.submit({.gpus = 1, .work = 3});  // keeps job 1 off, so that job 0 may run
    EXPECT_EQ(world.decide(*policy), "0x1 2x1");
    world.pass(2);  // job 0 has 18 s left, as job 1, which stood before it
    world.finish(JobId(2));
    EXPECT_EQ(world.decide(*policy), "1x2") << "the waiting job was ahead and stays ahead";
  }
  {
    const auto policy = make_policy("srtf");
    World world("1x1");
    world.submit({.gpus = 1, .work = 10});
    EXPECT_EQ(world.decide(*policy), "0x1");
    world.pass(4).submit({.gpus = 1, .work = 6});
    EXPECT_EQ(world.decide(*policy), "0x1") << "a newcomer with the same time left waits";
    world.submit({.gpus = 1, .work = 5.999999});
    EXPECT_EQ(world.decide(*policy), "2x1") << "a microsecond less is less";
  }
  {
    const auto policy = make_policy("srsf");
    World world("1x4");
    world.submit({.gpus = 4, .work = 5});
    EXPECT_EQ(world.decide(*policy), "0x4");
    world.pass(1).submit({.gpus = 1, .work = 16});  // 4 x 4 s against 1 x 16 s
    EXPECT_EQ(world.decide(*policy), "0x4");
    world.submit({.gpus = 3, .work = 5});
    EXPECT_EQ(world.decide(*policy), "1x1 2x3") << "15 GPU-s first, then 16; job 0 does not fit";
  }
}

// A failure can cost work: a job's time left grows to that of a job after it.
TEST(Sorted, AJobThatLosesWorkToATieStaysAhead) {
  const auto policy = make_policy("srtf");
  World world("1x2");
  for (const double work : {5.0, 5.0, 10.0, 10.0}) world.submit({.gpus = 1, .work = work});
  EXPECT_EQ(world.decide(*policy), "0x1 1x1");
  for (const JobId id : {JobId(0), JobId(1)}) world.job(id).progress.work_left = 10;
  world.submit({.gpus = 2, .work = 50});
  EXPECT_EQ(world.decide(*policy), "0x1 1x1");
  world.job(JobId(1)).progress.work_left = 20;
  world.submit({.gpus = 2, .work = 60});
  EXPECT_EQ(world.decide(*policy), "0x1 2x1");
}

// Otherwise a badly placed job would be preempted, and would preempt its successor when it waits.
TEST(Sorted, ABadPlacementDoesNotChangeTheOrder) {
  const auto policy = make_policy("srtf");
  World world("1x1");
  world.submit({.gpus = 1, .work = 5});
  EXPECT_EQ(world.decide(*policy), "0x1");
  world.job(JobId(0)).progress.rate = 0.1;
  world.submit({.gpus = 1, .work = 20});
  EXPECT_EQ(world.decide(*policy), "0x1");
}

TEST(Sorted, RemainingTimeOfTheLongestJobsDoesNotOverflow) {
  World world("1x1");
  const auto policy = make_policy("srtf");
  world.submit({.gpus = 1, .work = 1e15});
  world.submit({.gpus = 1, .work = 1});
  EXPECT_GT(remaining_micros(world.job(JobId(0)), world.now()), 0);
  EXPECT_EQ(world.decide(*policy), "1x1");
}

TEST(Sorted, RefusesABrokenState) {
  for (const auto* text : {"{}", "[]", "null", R"({"last_stamp":1,"first_stamp":0,"running":3})",
                           R"({"last_stamp":1,"first_stamp":0,"running":[[1]],"waiting":[]})"}) {
    const auto loaded = make_policy("srtf")->load(parse_json(text, "test").value());
    ASSERT_FALSE(loaded.ok()) << text;
    EXPECT_NE(loaded.error().message.find("saved queue"), std::string::npos);
  }
}

// A job with GPUs from another policy, or from before it was hidden.
TEST(Sorted, AJobWithGpusThatItNeverSawIsAmongTheRunning) {
  for (const char* name : {"fifo", "fifo-backfill"}) {
    const auto policy = make_policy(name);
    Snapshot snapshot;
    snapshot.cluster = testing::cluster_of("1x8");
    for (const int gpus : {8, 4}) {
      JobView job = job_view(job_id(snapshot.jobs.size()), rigid_spec(gpus));
      job.speed = std::make_shared<ConstantSpeed>(1);
      snapshot.jobs.insert(std::move(job));
    }
    snapshot.jobs.find(job_id(1))->target = gpus_on({{0, 0b1111}});
    const auto decision = policy->decide(snapshot);
    ASSERT_TRUE(decision);
    ASSERT_EQ(decision->run.size(), 1U) << name;
    EXPECT_EQ(decision->run[0].job, job_id(1)) << name;
  }
}

TEST(Sorted, OwnersMayChangeWhatTheirJobsNeed) {
  for (const char* name : {"fifo", "fifo-backfill", "srtf", "tiresias-las"}) {
    const auto policy = make_policy(name);
    Snapshot snapshot;
    snapshot.cluster = testing::cluster_of("1x4");
    JobView job = job_view(job_id(0), rigid_spec(8));
    job.speed = std::make_shared<ConstantSpeed>(1);
    snapshot.jobs.insert(std::move(job));
    snapshot.changed = {job_id(0)};
    EXPECT_TRUE(policy->decide(snapshot)->run.empty()) << name;
    for (const int gpus : {2, 3}) {  // while it waits, and while it runs
      snapshot.changed_since = snapshot.as_of;
      snapshot.as_of = snapshot.as_of.next();
      snapshot.jobs.find(job_id(0))->spec = rigid_spec(gpus);
      const auto decision = policy->decide(snapshot);
      ASSERT_EQ(decision->run.size(), 1U) << name;
      EXPECT_EQ(gpus_of(decision->run[0].want), gpus) << name;
      snapshot.jobs.find(job_id(0))->target = gpus_on({{0, 0b11}});
    }
  }
}

}  // namespace
}  // namespace rubato::policy
