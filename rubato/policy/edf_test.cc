#include "rubato/policy/edf.h"

#include <gtest/gtest.h>
#include <optional>
#include <string>
#include <vector>

#include "rubato/base/random.h"
#include "rubato/base/testing_seeds.h"
#include "rubato/policy/testing.h"

namespace rubato::policy {
namespace {

using testing::decide_once;
using testing::Draft;
using testing::make_policy;
using testing::World;

// Rises up to 4 GPUs and falls at 8; nothing was measured in between.
const std::vector<CurvePoint> kHill = {{1, 10}, {2, 18}, {4, 30}, {8, 24}};

TEST(Edf, EarliestDeadlineFirstAndPreemptive) {
  const auto policy = make_policy("edf");
  World world("1x4");
  world.submit({.gpus = 3, .work = 100});  // no deadline: last
  world.submit({.gpus = 1, .work = 100});
  EXPECT_EQ(world.decide(*policy), "0x3 1x1");
  world.submit({.gpus = 2, .work = 100, .deadline_s = 900});
  EXPECT_EQ(world.decide(*policy), "1x1 2x2") << "job 0 does not fit any more, job 1 does";
  world.submit({.gpus = 2, .work = 100, .deadline_s = 900});
  world.submit({.gpus = 3, .work = 100, .deadline_s = 899});
  EXPECT_EQ(world.decide(*policy), "1x1 4x3");
  world.pass(1).finish(JobId(4));
  EXPECT_EQ(world.decide(*policy), "2x2 3x2") << "equal deadlines in order of submission";
  world.throw_off(JobId(2));
  EXPECT_EQ(world.decide(*policy), "2x2 3x2");
}

TEST(Edf, SizesOfJobsWithACurve) {
  const Draft hill{.gpus = 3, .work = 1, .deadline_s = 10, .curve = kHill};
  EXPECT_EQ(decide_once("edf", "1x8", {hill}), "0x8");
  EXPECT_EQ(decide_once("edf:count=largest", "1x8", {hill}), "0x8");
  EXPECT_EQ(decide_once("edf:count=peak", "1x8", {hill}), "0x4");
  EXPECT_EQ(decide_once("edf:count=trace", "1x8", {hill}), "0x3");
  EXPECT_EQ(decide_once("edf", "1x7", {hill}), "0x4") << "the largest measured count that fits";
  EXPECT_EQ(decide_once("edf:count=peak", "1x3", {hill}), "0x2");
  EXPECT_EQ(decide_once("edf:count=trace", "1x2", {hill}), "");

  // Each job takes what the ones before leave: 4 of 7, then 2, then 1.
  const std::vector<Draft> three(3, hill);
  EXPECT_EQ(decide_once("edf", "1x7", three), "0x4 1x2 2x1");
  EXPECT_EQ(decide_once("edf:count=trace", "1x7", three), "0x3 1x3");

  // A rigid job keeps its own count.
  EXPECT_EQ(decide_once("edf", "1x8", {{.gpus = 5, .work = 1, .deadline_s = 1}, hill}), "0x5 1x2");
}

TEST(Edf, AsksForNoMoreThan64OrItsBatchSizeOrTheCluster) {
  Draft wide{.gpus = 1, .work = 1, .curve = {{1, 1}, {16, 10}, {64, 20}, {128, 30}}};
  EXPECT_EQ(decide_once("edf", "4x64", {wide}), "0x64");
  EXPECT_EQ(decide_once("edf:count=peak", "4x64", {wide}), "0x64");
  EXPECT_EQ(decide_once("edf", "1x63", {wide}), "0x16");
  wide.batch = 64;
  EXPECT_EQ(decide_once("edf", "4x64", {wide}), "0x64");
  wide.batch = 63;
  EXPECT_EQ(decide_once("edf", "4x64", {wide}), "0x16");
  wide.batch = 1;
  EXPECT_EQ(decide_once("edf", "4x64", {wide}), "0x1");
  wide.batch = 0;
  wide.allowed = {2, 16};
  EXPECT_EQ(decide_once("edf", "4x64", {wide}), "0x16") << "2 was not measured, 64 is not legal";
}

// If no measured count is within all limits, the job still has a smallest size and runs on it.
TEST(Edf, RunsOnItsLeastCountWhereNoneKeepsTheLimits) {
  const std::vector<CurvePoint> curve = {{1, 1}, {2, 2}, {4, 3}, {128, 9}};
  for (const auto* policy : {"edf", "edf:count=peak", "edf-admission"}) {
    const std::optional<double> due = 1000;
    EXPECT_EQ(decide_once(policy, "2x64",
                          {{.gpus = 3, .deadline_s = due, .curve = curve, .allowed = {3}}}),
              "0x3")
        << "no measured count is legal";
    EXPECT_EQ(
        decide_once(policy, "2x64",
                    {{.gpus = 128, .deadline_s = due, .curve = curve, .allowed = {100, 128}}}),
        "0x128")
        << "all legal counts are above 64";
    EXPECT_EQ(decide_once(
                  policy, "2x64",
                  {{.gpus = 2, .deadline_s = due, .batch = 1, .curve = curve, .allowed = {2, 4}}}),
              "0x2")
        << "all legal counts are above the batch size";
  }
}

TEST(Edf, Schedules) {
  // Two equal jobs of 48 on the hill: alone on 8 GPUs each would take 2 s, on 4 GPUs 1.6 s.
  const std::vector<Draft> jobs = {{.work = 48, .deadline_s = 5, .curve = kHill},
                                   {.work = 48, .submit_s = 1, .deadline_s = 4, .curve = kHill}};
  const auto ends = [&](const std::string& policy) {
    std::vector<double> ends;
    for (const auto& fate : World("1x8").run(*make_policy(policy), jobs))
      ends.push_back(seconds(*fate.end));
    return ends;
  };
  // 24 done in 1 s; job 1 takes all 8 for 2 s; then the other 24.
  EXPECT_EQ(ends("edf"), (std::vector<double>{4, 3}));
  // On 4 each, nobody waits.
  EXPECT_EQ(ends("edf:count=peak"), (std::vector<double>{1.6, 2.6}));
}

TEST(EdfAdmission, RefusesWhatWouldBreakADeadlineAndNamesTheEarliest) {
  const auto policy = make_policy("edf-admission");
  World world("1x1");
  world.submit({.gpus = 1, .work = 10, .deadline_s = 12});
  world.submit({.gpus = 1, .work = 3, .deadline_s = 5});   // would make job 0 late
  world.submit({.gpus = 1, .work = 2, .deadline_s = 2});   // just fits before it
  world.submit({.gpus = 1, .work = 4, .deadline_s = 15});  // needs until 16
  world.submit({.gpus = 1, .work = 1e6});                  // delays nobody
  world.submit({.gpus = 1, .work = 4, .deadline_s = 16});
  EXPECT_EQ(world.decide(*policy), "!1 2x1 !3");
  ASSERT_EQ(world.last().reject.size(), 2U);
  EXPECT_EQ(world.last().reject[0].earliest, time_at(13)) << "behind job 0";
  EXPECT_EQ(world.last().reject[1].earliest, time_at(16));
  for (const auto& reject : world.last().reject) EXPECT_FALSE(reject.reason.empty());
}

TEST(EdfAdmission, CountsTheRestartsItWillCause) {
  for (const double due : {13.0, 12.999999}) {
    const auto policy = make_policy("edf-admission");
    World world("1x1");
    world.submit({.gpus = 1, .work = 10, .deadline_s = due + 2, .restart_s = 2});
    EXPECT_EQ(world.decide(*policy), "0x1");
    world.pass(5);  // 3 s done
    world.submit({.gpus = 1, .work = 1, .deadline_s = 7, .restart_s = 0});
    // Job 1 until 6, then 2 s of restart and the other 7: 15 s.
    EXPECT_EQ(world.decide(*policy), due == 13 ? "1x1" : "0x1 !1");
    if (due != 13) {
      EXPECT_EQ(world.last().reject[0].earliest, time_at(due + 2))
          << "it would end at 13, but with a deadline before job 0's it goes before job 0";
    }
  }
}

// Two other jobs have the same deadline: a new job with this deadline comes after both.
TEST(EdfAdmission, StandsBehindAllThatAreDueAtTheSameTime) {
  const auto policy = make_policy("edf-admission");
  World world("1x1");
  world.submit({.gpus = 1, .work = 1, .deadline_s = 10});
  world.submit({.gpus = 1, .work = 7, .deadline_s = 10});
  EXPECT_EQ(world.decide(*policy), "0x1");
  world.submit({.gpus = 1, .work = 4, .deadline_s = 3});
  EXPECT_EQ(world.decide(*policy), "0x1 !2");
  EXPECT_EQ(world.last().reject[0].earliest, time_at(12));
}

// For random jobs on a busy cluster: the deadline that a refusal names is admitted at the same
// instant, and no deadline between the wish and that one is.
TEST(EdfAdmission, TheDeadlineNamedIsTheEarliestAdmitted) {
  Random random(7);
  int refused = 0;
  for (int round = 0; round < static_cast<int>(tries(400)); ++round) {
    const auto* name = round % 2 == 0 ? "edf-admission" : "edf-admission:count=peak";
    const auto policy = make_policy(name);
    World world("1x8");
    const auto draft = [&] {
      Draft job{.gpus = static_cast<int>(random.below(8)) + 1,
                .work = static_cast<double>(random.below(20)),
                .restart_s = static_cast<double>(random.below(3))};
      if (random.below(2) == 0) {
        job.curve = kHill;
        job.work *= 15;
      }
      // Few values, so that deadlines are often equal.
      job.deadline_s = seconds(world.now()) + 4.0 * static_cast<double>(random.below(10));
      return job;
    };
    for (int step = 0; step < 6; ++step) {
      for (int i = 0; i < 3; ++i) world.submit(draft());
      world.decide(*policy);
      world.pass(1);
    }
    // The same question with other deadlines, each for a copy of the present policy and world.
    const Draft asked = draft();
    const Json state = policy->save();
    const auto answer = [&](Time deadline) {
      World copy = world;
      const auto fresh = make_policy(name);
      EXPECT_TRUE(fresh->load(state).ok());
      Draft job = asked;
      job.deadline_s = seconds(deadline);
      const JobId id = copy.submit(job);
      EXPECT_EQ(copy.job(id).spec->deadline, deadline);
      copy.decide(*fresh);
      return copy.last().reject.empty() ? std::nullopt : copy.last().reject.front().earliest;
    };
    const Time wish = time_at(*asked.deadline_s);
    const auto earliest = answer(wish);
    if (!earliest) continue;
    ++refused;
    ASSERT_GT(*earliest, wish);
    ASSERT_EQ(answer(*earliest), std::nullopt) << "round " << round << ": it is admitted";
    ASSERT_EQ(answer(*earliest - Duration(1)), earliest) << "round " << round << ": not earlier";
    for (Time t = wish; t < *earliest; t += from_seconds(1)) {
      ASSERT_EQ(answer(t), earliest) << "round " << round << ": the same answer all the way";
    }
  }
  EXPECT_GT(refused, static_cast<int>(tries(100)));
}

// A failure has already made job 0 late. That is no reason to refuse a job that does not harm it.
TEST(EdfAdmission, WhoIsLateAnywayRefusesNobody) {
  const auto policy = make_policy("edf-admission");
  World world("1x2");
  world.submit({.gpus = 1, .work = 10, .deadline_s = 10});
  EXPECT_EQ(world.decide(*policy), "0x1");
  world.throw_off(JobId(0));
  world.pass(5);
  world.submit({.gpus = 1, .work = 10, .deadline_s = 100});
  EXPECT_EQ(world.decide(*policy), "0x1 1x1");
}

TEST(EdfAdmission, WhoGoesFirstIsBehindDeadlinesAndBeforeTheOthers) {
  const auto policy = make_policy("edf-admission");
  World world("1x8");
  world.submit({.work = 1e6, .curve = kHill});
  EXPECT_EQ(world.decide(*policy), "0x8");
  world.submit({.work = 10, .goes_first = true});
  EXPECT_EQ(world.decide(*policy), "0x4 1x1");
  const auto loaded = make_policy("edf-admission");
  ASSERT_TRUE(loaded->load(Json::parse(policy->save().dump())).ok());
  EXPECT_EQ(world.decide(*loaded), "0x4 1x1") << "it is saved, too";
  world.submit({.gpus = 8, .work = 1, .deadline_s = 100});
  EXPECT_EQ(world.decide(*loaded), "2x8");
}

TEST(EdfAdmission, WhoWasTakenInBeforeIsNeverRefused) {
  World world("1x8");
  world.submit({.gpus = 8, .work = 1e6});
  const JobId late = world.submit({.gpus = 8, .work = 10, .deadline_s = 5});
  const JobId in_time = world.submit({.gpus = 8, .work = 10, .deadline_s = 50});
  EXPECT_EQ(world.decide(*make_policy("fifo")), "0x8");
  const auto policy = make_policy("edf-admission");
  EXPECT_EQ(world.decide(*policy), "2x8") << "one cannot be in time: not refused, nor in the way";
  EXPECT_FALSE(policy->keeps_deadline(late));
  EXPECT_TRUE(policy->keeps_deadline(in_time));
  world.submit({.gpus = 8, .work = 10, .deadline_s = 15});
  world.submit({.gpus = 8, .work = 10, .deadline_s = 15});
  EXPECT_EQ(world.decide(*policy), "3x8 !4") << "beside those that are admitted";
}

}  // namespace
}  // namespace rubato::policy
