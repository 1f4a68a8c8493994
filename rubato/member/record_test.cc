#include "rubato/member/record.h"

#include <gtest/gtest.h>
#include <limits>

namespace rubato::member {
namespace {

Record example() {
  return {{3, 2},
          4,
          17,
          {{2, Role::leaving, 0, 0}, {5, Role::working, 0, 0}, {7, Role::joining, 5, 17}}};
}

StepPlan example_plan() {
  StepPlan plan;
  plan.step = 17;
  plan.epoch = 2;
  plan.cursor = 640;
  plan.samples = 64;
  plan.leaves = 8;
  plan.adaptive = true;
  plan.passes = 4;
  plan.learning_rate_factor = 1.5;
  plan.used_mark = std::numeric_limits<std::uint64_t>::max();
  plan.checkpoint = plan.digest = plan.finish = plan.stopped = true;
  return plan;
}

template <typename T>
T again(const T& value) {
  return Json::parse(Json(value).dump()).template get<T>();
}

TEST(Record, FindsMembersAndTheLeader) {
  const Record record = example();
  EXPECT_EQ(record.leader(), 5);
  EXPECT_EQ(record.working(), std::vector<Uid>{5});
  ASSERT_NE(record.find(7), nullptr);
  EXPECT_EQ(record.find(7)->donor, 5);
  EXPECT_EQ(record.find(6), nullptr);
}

TEST(Record, ALaterRecoveryIsNewerWhateverThePlan) {
  Record older = example();
  Record newer = example();
  EXPECT_FALSE(newer.newer_than(older));
  newer.generation.revision++;
  EXPECT_TRUE(newer.newer_than(older));
  older.generation.plan++;
  EXPECT_FALSE(newer.newer_than(older));
  newer.recovery++;
  EXPECT_TRUE(newer.newer_than(older));
  EXPECT_FALSE(older.newer_than(newer));
}

TEST(Record, JsonLosesNothing) {
  EXPECT_EQ(again(example()), example());
  EXPECT_EQ(again(example_plan()), example_plan());
  const Level level{4, 17};
  EXPECT_EQ(again(level), level);
  const Report report{example(), 16, example_plan(), {3, 4}, example()};
  EXPECT_EQ(again(report).record, report.record);
  EXPECT_EQ(again(report).applied, 16);
  EXPECT_EQ(again(report).plan, report.plan);
  EXPECT_EQ(again(report).dead, report.dead);
  EXPECT_EQ(again(report).own, report.own);
  const Commit commit{example(), example_plan(), 16, 5, {2}, true};
  EXPECT_EQ(again(commit).record, commit.record);
  EXPECT_EQ(again(commit).plan, commit.plan);
  EXPECT_EQ(again(commit).applied, 16);
  EXPECT_EQ(again(commit).holder, 5);
  EXPECT_EQ(again(commit).behind, commit.behind);
  EXPECT_TRUE(again(commit).stranded);
}

TEST(Record, AWordCarriesItsProposal) {
  Word word;
  word.uid = 5;
  word.step = 16;
  word.ready = {7, 8};
  word.mark = std::numeric_limits<std::uint64_t>::max();
  word.leaf_sqr_norm = std::numeric_limits<double>::quiet_NaN();
  word.proposal = {{example(), example_plan()}};
  const Word read = again(word);
  EXPECT_EQ(read.uid, 5);
  EXPECT_EQ(read.ready, word.ready);
  EXPECT_EQ(read.mark, word.mark);
  EXPECT_EQ(read.leaf_sqr_norm, 0);
  ASSERT_EQ(read.proposal.size(), 1u);
  EXPECT_EQ(read.proposal[0].record, example());
  EXPECT_EQ(read.proposal[0].plan, example_plan());
}

TEST(Record, WhatIsNoRecordThrows) {
  for (const char* text : {"{}", "[]", "null", "7", R"({"generation":[1],"members":[]})",
                           R"({"generation":[1,2],"recovery":0,"first":1,"members":[{}]})",
                           R"({"generation":[1,2],"recovery":0,"first":1,"members":
                               [{"uid":1,"role":"boss","donor":0,"since":0}]})"}) {
    EXPECT_THROW((void)Json::parse(text).get<Record>(), Json::exception) << text;
  }
}

TEST(ForWorkers, KeepsTheSizeOfAPass) {
  StepPlan plan;
  plan.adaptive = true;
  plan.samples = 96;
  plan.leaves = 6;
  plan.passes = 2;
  plan.per_pass = 16;
  struct Case {
    int workers, passes, leaves;
  };
  for (const auto& [workers, passes, leaves] :
       {Case{1, 6, 6}, Case{2, 3, 6}, Case{3, 2, 6}, Case{4, 2, 8}, Case{6, 1, 6}, Case{7, 1, 7}}) {
    const StepPlan result = for_workers(plan, workers);
    EXPECT_EQ(result.passes, passes) << workers;
    EXPECT_EQ(result.leaves, leaves) << workers;
    EXPECT_EQ(result.samples, 96);
  }
  plan.adaptive = false;
  EXPECT_EQ(for_workers(plan, 5), plan);
}

}  // namespace
}  // namespace rubato::member
