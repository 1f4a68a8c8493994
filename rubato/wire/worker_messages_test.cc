#include "rubato/wire/worker_messages.h"

#include <gtest/gtest.h>

namespace rubato::wire {
namespace {

TEST(WorkerMessages, AReportComesBackAsItWas) {
  StepReport report;
  report.step = 84;
  EXPECT_EQ(read_step_report(to_json(report)), report) << "all else may be left out";
  report.epoch = 3;
  report.cursor = 128;
  report.samples = 64;
  report.epoch_samples = 60'000;
  report.ends_epoch = true;
  report.loss = 0.25;
  report.workers = 4;
  report.leaves = 8;
  report.factor = 1.5;
  report.applied_at = 12.5;
  report.per_gpu = 16;
  report.accumulation = 1;
  report.tuning = JobTuning{16, 512, 32, 0.25, 0.125};
  report.noise = 900;
  report.skew = 0.7;
  report.learning_rate = 0.05;
  report.metrics = {{"accuracy", 0.5}, {"loss", std::nullopt}};
  EXPECT_EQ(read_step_report(to_json(report)), report);
}

TEST(WorkerMessages, WhatIsNotAsDescribedIsNotSaid) {
  for (const Json& none : {Json(), Json::array(), Json(3), Json{{"step", "x"}}, Json{{"step", -1}},
                           Json{{"step", 1e300}}, Json{{"loss", 1}}}) {
    EXPECT_EQ(read_step_report(none), std::nullopt) << none;
  }
  StepReport plain;
  plain.step = 3;
  EXPECT_EQ(read_step_report({{"step", 3},
                              {"samples", -5},
                              {"epoch", -1},
                              {"workers", 1e20},
                              {"per_gpu", 0},
                              {"ends_epoch", 1},
                              {"loss", nullptr},
                              {"tuning", {{"initial", 16}}},
                              {"mood", "good"}}),
            plain);
}

TEST(WorkerMessages, NoticesComeBackAsTheyWere) {
  const MembersNotice members{
      {1, 2, 4}, {{1, "working"}, {2, "leaving"}, {4, "joining"}}, 85, {0, 3, 1}};
  EXPECT_EQ(read_members(to_json(members)), members);
  EXPECT_EQ(members.working(), (std::set<Uid>{1}));
  EXPECT_EQ(read_straggler(to_json(StragglerNotice{3, 2.5})), (StragglerNotice{3, 2.5}));
  EXPECT_EQ(read_straggler({{"ratio", 2}}), std::nullopt);
}

TEST(WorkerMessages, AMemberWithoutARoleIsTakenToWork) {
  const auto members = read_members({{"uids", {1, "x", 2}}, {"generation", {3, 1}}});
  EXPECT_EQ(members.uids, (std::set<Uid>{1, 2}));
  EXPECT_EQ(members.working(), members.uids);
  EXPECT_EQ(members.age, (std::vector<std::int64_t>{0, 3, 1}));
  EXPECT_EQ(members.first, std::nullopt);
  EXPECT_EQ(read_members(Json(3)).age, std::vector<std::int64_t>{0});
}

}  // namespace
}  // namespace rubato::wire
