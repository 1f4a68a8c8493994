#include "rubato/policy/tiresias.h"

#include <fstream>
#include <gtest/gtest.h>
#include <optional>
#include <string>
#include <vector>

#include "rubato/base/random.h"
#include "rubato/base/testing.h"
#include "rubato/policy/testing.h"

namespace rubato::policy {
namespace {

using testing::Draft;
using testing::gittins_rank;
using testing::make_policy;
using testing::World;

TEST(TiresiasLas, IsDemotedAtTheInstantItReachesTheLimit) {
  const auto policy = make_policy("tiresias-las");
  World world("1x4");
  world.submit({.gpus = 4, .work = 1e6});
  EXPECT_EQ(world.decide(*policy), "0x4");
  EXPECT_EQ(world.last().again_at, time_at(812.5)) << "3,250 GPU-seconds on 4 GPUs";
  world.pass(1).submit({.gpus = 4, .work = 1e6});
  EXPECT_EQ(world.decide(*policy), "0x4") << "the tail of the first queue";
  world.pass(811.499999);
  EXPECT_EQ(world.decide(*policy), "0x4") << "a microsecond before";
  world.pass(0.000001);
  EXPECT_EQ(world.decide(*policy), "1x4");
  EXPECT_EQ(world.last().again_at, time_at(1625));
  world.pass(812.5);
  EXPECT_EQ(world.decide(*policy), "0x4") << "both in the second queue, job 1 at its tail";
  EXPECT_EQ(world.last().again_at, time_at(1625 + (7200 - 3250) / 4.0));
  world.pass((7200 - 3250) / 4.0);
  EXPECT_EQ(world.decide(*policy), "1x4");
  world.pass((7200 - 3250) / 4.0);
  EXPECT_EQ(world.decide(*policy), "0x4") << "both in the last queue, in the order they came";
  EXPECT_EQ(world.last().again_at, std::nullopt);
}

// Two-dimensional: what counts is time x GPUs. Three jobs on two GPUs with one limit of 4
// GPU-seconds; arrivals 0, 0, 0.
TEST(TiresiasLas, WholeScheduleInTwoDimensions) {
  const auto policy = make_policy("tiresias-las:queues=2,limits=4");
  World world("1x2");
  const auto fates = world.run(*policy, {{.gpus = 2, .work = 6},    // demoted at 2 s
                                         {.gpus = 1, .work = 8},    // 2..6 in the first queue
                                         {.gpus = 1, .work = 3}});  // 2..5, never demoted
  // 0: runs 0..2. 1 and 2 run from 2. At 5 job 2 ends, at 6 job 1 is demoted to the tail, behind
  // job 0, which has 4 s left: 6..10; job 1 has done 4 of 8 and goes on from 10.
  EXPECT_EQ(fates[0].end, time_at(10));
  EXPECT_EQ(fates[1].end, time_at(14));
  EXPECT_EQ(fates[2].end, time_at(5));
}

TEST(TiresiasLas, RoundRobinAmongEqualJobs) {
  const auto policy = make_policy("tiresias-las:queues=3,limits=2/4");
  const auto fates = World("1x1").run(*policy, std::vector<Draft>(3, {.gpus = 1, .work = 5}));
  // Q0: 0..2, 2..4, 4..6; Q1: 6..8, 8..10, 10..12; then one after the other.
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(fates[i].start, time_at(2.0 * static_cast<double>(i)));
    EXPECT_EQ(fates[i].end, time_at(13.0 + static_cast<double>(i)));
  }
}

TEST(TiresiasLas, PendingJobsMoveBehindRunningOnesAndStayThere) {
  const auto policy = make_policy("tiresias-las");
  World world("1x4");
  world.submit({.gpus = 3, .work = 1e6});
  world.submit({.gpus = 2, .work = 1e6});
  world.submit({.gpus = 1, .work = 1e6});
  EXPECT_EQ(world.decide(*policy), "0x3 2x1") << "job 1 is skipped and moves behind job 2";
  world.submit({.gpus = 3, .work = 1e6});
  EXPECT_EQ(world.decide(*policy), "0x3 2x1");
  world.finish(JobId(0));
  EXPECT_EQ(world.decide(*policy), "1x2 2x1") << "2, 1, and job 3 does not fit";
  world.submit({.gpus = 1, .work = 1e6});
  EXPECT_EQ(world.decide(*policy), "1x2 2x1 4x1") << "2, 1, 4, and 3 behind them";
  world.finish(JobId(2));
  world.submit({.gpus = 1, .work = 1e6});
  EXPECT_EQ(world.decide(*policy), "1x2 4x1 5x1");
  world.finish(JobId(1));
  EXPECT_EQ(world.decide(*policy), "4x1 5x1") << "order 4, 5, 3: job 3 no longer comes first";
}

TEST(TiresiasLas, APreemptedJobLeadsThePending) {
  const auto policy = make_policy("tiresias-las:queues=2,limits=100");
  World world("1x2");
  world.submit({.gpus = 1, .work = 1e6});
  EXPECT_EQ(world.decide(*policy), "0x1");
  world.pass(90).submit({.gpus = 1, .work = 1e6});
  EXPECT_EQ(world.decide(*policy), "0x1 1x1");
  world.pass(10);  // job 0 falls to the second queue and runs on there
  EXPECT_EQ(world.decide(*policy), "0x1 1x1");
  world.pass(90);  // so does job 1
  EXPECT_EQ(world.decide(*policy), "0x1 1x1");
  const JobId wide = world.submit({.gpus = 2, .work = 1e6});
  EXPECT_EQ(world.decide(*policy), "2x2") << "the first queue goes before the second";
  world.pass(50);  // and falls behind the two it displaced
  EXPECT_EQ(world.decide(*policy), "0x1 1x1");
  world.finish(JobId(0));
  EXPECT_EQ(world.decide(*policy), "1x1");
  world.finish(JobId(1));
  EXPECT_EQ(world.decide(*policy), "2x2");
  world.throw_off(wide);
  EXPECT_EQ(world.decide(*policy), "2x2");
}

TEST(TiresiasLas, PromoteKnobForgivesAStarvedJob) {
  const auto policy = make_policy("tiresias-las:queues=2,limits=100,promote=2");
  World world("1x1");
  world.submit({.gpus = 1, .work = 1e6});
  world.submit({.gpus = 1, .work = 1e6});
  EXPECT_EQ(world.decide(*policy), "0x1");
  world.pass(100);  // job 0 has executed 100 s and starves after 200 s of waiting
  EXPECT_EQ(world.decide(*policy), "1x1");
  EXPECT_EQ(world.last().again_at, time_at(200));
  world.pass(50).submit({.gpus = 1, .work = 1e6});
  EXPECT_EQ(world.decide(*policy), "1x1");
  world.pass(50);  // job 1 falls behind job 0; job 2 is in the first queue
  EXPECT_EQ(world.decide(*policy), "2x1");
  EXPECT_EQ(world.last().again_at, time_at(300)) << "job 2's limit and job 0's promotion";
  world.pass(99.999999);
  EXPECT_EQ(world.decide(*policy), "2x1");
  world.pass(0.000001);
  EXPECT_EQ(world.decide(*policy), "0x1") << "alone in the first queue, and its service is 0";
  EXPECT_EQ(world.last().again_at, time_at(400)) << "its limit, or job 1 after 2 x 100 s: both 400";
  world.pass(100);
  EXPECT_EQ(world.decide(*policy), "1x1") << "job 1 was promoted, job 0 fell again";
  // Job 0 executed 100 s since its promotion, not 200: it starves at 400 + 200.
  world.pass(100);
  EXPECT_EQ(world.decide(*policy), "2x1") << "last queue: 2 waited there before 0 and 1";
  EXPECT_EQ(world.last().again_at, time_at(600));
  world.pass(100);
  EXPECT_EQ(world.decide(*policy), "0x1") << "promoted at 600; job 2 is not (it ran until now)";
}

TEST(TiresiasLas, AJobThatNeverRanIsNotPromoted) {
  const auto policy = make_policy("tiresias-las:promote=0.001");
  World world("1x1");
  world.submit({.gpus = 1, .work = 1e6});
  world.submit({.gpus = 1, .work = 1e6});
  world.submit({.gpus = 1, .work = 1e6});
  EXPECT_EQ(world.decide(*policy), "0x1");
  for (int i = 0; i < 10; ++i) {
    world.pass(100);
    EXPECT_EQ(world.decide(*policy), "0x1");
  }
  world.finish(JobId(0));
  EXPECT_EQ(world.decide(*policy), "1x1") << "still in order of submission";
}

// A failure takes a job's GPUs between two decisions (as with --interval): it waits since the
// failure.
TEST(TiresiasLas, AJobThrownOffStarvesSinceTheFault) {
  const auto policy = make_policy("tiresias-las:queues=2,limits=10,promote=2");
  World world("1x1");
  world.submit({.gpus = 1, .work = 1e6});
  EXPECT_EQ(world.decide(*policy), "0x1");
  world.pass(10);
  EXPECT_EQ(world.decide(*policy), "0x1");
  world.throw_off(JobId(0));  // at 10 s, with 10 s executed
  world.submit({.gpus = 1, .work = 1e6});
  world.pass(5);
  EXPECT_EQ(world.decide(*policy), "1x1");
  world.pass(5).submit({.gpus = 1, .work = 1e6});
  EXPECT_EQ(world.decide(*policy), "1x1");
  EXPECT_EQ(world.last().again_at, time_at(25));
  world.pass(5);
  EXPECT_EQ(world.decide(*policy), "2x1");
  EXPECT_EQ(world.last().again_at, time_at(30)) << "the fault and 2 x 10 s";
}

TEST(TiresiasLas, OneQueueHasNoLimits) {
  const auto policy = make_policy("tiresias-las:queues=1");
  World world("1x1");
  world.submit({.gpus = 1, .work = 1e6});
  world.submit({.gpus = 1, .work = 1});
  EXPECT_EQ(world.decide(*policy), "0x1");
  EXPECT_EQ(world.last().again_at, std::nullopt);
  world.pass(1e5);
  EXPECT_EQ(world.decide(*policy), "0x1");
}

TEST(GittinsTable, AgreesWithTheDefinition) {
  Random random(3);
  for (int round = 0; round < 200; ++round) {
    std::vector<double> samples;
    const auto count = random.below(40) + 1;
    for (std::uint64_t i = 0; i < count; ++i) {
      // Whole numbers repeat; the others lie less than 1 apart now and then.
      samples.push_back(round % 2 == 0 ? static_cast<double>(random.below(30))
                                       : random.log_uniform(0.5, 50));
    }
    const double quantum = random.log_uniform(1, 60);
    const GittinsTable table(samples, quantum);
    for (double age = 0; age < 55; age += 0.5) {
      ASSERT_NEAR(table.rank(age), gittins_rank(samples, quantum, age), 1e-12)
          << "round " << round << ", age " << age;
    }
    ASSERT_EQ(table.rank(1e9), 0);
  }
}

TEST(GittinsTable, KnownValues) {
  // Age 0: first sample 10, age 9, samples above {10, 10, 20, 100}, D = 15: three end by 24.
  const GittinsTable table({100, 10, 20, 10}, 15);
  EXPECT_DOUBLE_EQ(table.rank(0), (3.0 / 4) / ((10 + 10 + 20 + 15) / 4.0));
  EXPECT_DOUBLE_EQ(table.rank(9.999), table.rank(0));
  EXPECT_DOUBLE_EQ(table.rank(10), (1.0 / 2) / ((20 + 15) / 2.0));
  EXPECT_DOUBLE_EQ(table.rank(20), 1.0 / 100) << "P is not 0 in the sparse tail";
  EXPECT_EQ(table.rank(100), 0);
  EXPECT_EQ(GittinsTable().rank(0), 0);
}

TEST(GittinsTable, PublishedSamples) {
  std::ifstream file(shared_data() + "/tiresias/yarn-gput1000.csv");
  if (!file) GTEST_SKIP() << "no " << shared_data() << "/tiresias/yarn-gput1000.csv";
  std::string heading;
  std::getline(file, heading);
  std::vector<double> samples;
  for (double value = 0; file >> value;) samples.push_back(value);
  ASSERT_GE(samples.size(), 1000U);
  const GittinsTable table(samples, 3250);
  for (double age = 0; age < samples.back() + 10; age = age * 1.1 + 1)
    ASSERT_NEAR(table.rank(age), gittins_rank(samples, 3250, age), 1e-15) << age;
  EXPECT_GT(table.rank(samples.back() - 1), 0);
  EXPECT_EQ(table.rank(samples.back()), 0);
}

TEST(TiresiasGittins, HigherIndexFirstInsideAQueue) {
  // Most jobs end by 10 GPU-seconds, the others last 1,000. So an older job gets no GPU until it is
  // near the end of the long ones.
  const std::vector<double> samples = {8, 9, 10, 1000, 1001};
  const auto policy = make_policy("tiresias-gittins:queues=1,quantum=20,samples=given", samples);
  World world("1x1");
  world.submit({.gpus = 1, .work = 1e6});
  EXPECT_EQ(world.decide(*policy), "0x1");
  world.pass(5).submit({.gpus = 1, .work = 1e6});
  EXPECT_EQ(world.decide(*policy), "0x1") << "both have the rank of the first sample: tie by age";
  world.pass(3);  // above 8: fewer are left, and they end soon
  EXPECT_GT(gittins_rank(samples, 20, 0), gittins_rank(samples, 20, 8));
  EXPECT_EQ(world.decide(*policy), "1x1");
  world.pass(8);
  EXPECT_EQ(world.decide(*policy), "0x1") << "equal again, and job 0 is older";
  world.pass(2);  // at 10: the next sample is 1,000, whose rank is that of age 999
  EXPECT_EQ(gittins_rank(samples, 20, 10), 2.0 / 2001);
  EXPECT_EQ(world.decide(*policy), "1x1");
  world.pass(2);
  world.submit({.gpus = 1, .work = 1});
  EXPECT_EQ(world.decide(*policy), "2x1");
}

TEST(TiresiasGittins, QueuesGoBeforeTheIndex) {
  const std::vector<double> samples = {10, 1000, 1001};
  const auto policy =
      make_policy("tiresias-gittins:queues=2,limits=500,quantum=20,samples=given", samples);
  World world("1x1");
  world.submit({.gpus = 1, .work = 1e6});
  EXPECT_EQ(world.decide(*policy), "0x1");
  world.pass(500);
  world.submit({.gpus = 1, .work = 1e6});
  EXPECT_EQ(world.decide(*policy), "1x1");
  world.pass(10);  // the same index as job 0, but in the first queue
  EXPECT_EQ(world.decide(*policy), "1x1");
  EXPECT_EQ(world.last().again_at, time_at(1000));
  world.pass(490);
  EXPECT_EQ(world.decide(*policy), "0x1") << "second queue, same index: the older";
}

TEST(Tiresias, RefusesABrokenState) {
  for (const auto* text : {"{}", "3", R"({"queue":{}})"}) {
    EXPECT_FALSE(make_policy("tiresias-las")->load(parse_json(text, "test").value()).ok()) << text;
  }
}

}  // namespace
}  // namespace rubato::policy
