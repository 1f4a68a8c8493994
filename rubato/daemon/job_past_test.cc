#include "rubato/daemon/job_past.h"

#include <gtest/gtest.h>

namespace rubato::daemon {
namespace {

using std::chrono::seconds;

WallTime at(int second) { return WallTime(seconds(1'800'000'000 + second)); }

JobProgress progress(std::int64_t step, double rate, int workers = 2) {
  JobProgress progress;
  progress.step = step;
  progress.loss = 1.0 / (1.0 + static_cast<double>(step));
  progress.rate = rate;
  progress.workers = workers;
  progress.batch = 64;
  progress.learning_rate = 3e-5;
  return progress;
}

TEST(JobPast, HasReportsFromTheFirstToTheNewestHoweverMany) {
  JobPasts pasts;
  for (int i = 0; i < 100'000; ++i) pasts.report(JobId(1), at(5 * i), progress(i + 1, 100), true);
  const auto& reports = pasts.of(JobId(1))->reports;
  EXPECT_LE(reports.size(), JobPasts::kMostReports);
  EXPECT_GE(reports.size(), JobPasts::kMostReports / 4);
  EXPECT_EQ(reports.front().at, at(0));
  const Duration whole = reports.back().at - reports.front().at;
  EXPECT_GT(reports.back().step, 98'000);
  for (std::size_t i = 1; i < reports.size(); ++i)
    EXPECT_LE(reports[i].at - reports[i - 1].at, whole / 50) << i;
}

TEST(JobPast, SaysHowSpeedsVaryOnOneNumberOfGpus) {
  JobPasts pasts;
  for (int i = 0; i < 11; ++i) pasts.report(JobId(1), at(i), progress(i + 1, 95 + i), true);
  pasts.report(JobId(1), at(20), progress(20, 1), false);        // just resized
  pasts.report(JobId(1), at(21), progress(21, 9'000, 4), true);  // on more GPUs
  const auto spread = spread_of(*pasts.of(JobId(1)), 2);
  ASSERT_TRUE(spread);
  EXPECT_DOUBLE_EQ(spread->slow, 0.96);
  EXPECT_DOUBLE_EQ(spread->fast, 1.04);
  EXPECT_FALSE(spread_of(*pasts.of(JobId(1)), 4)) << "one speed says nothing";
}

TEST(JobPast, NotesAChangeOfAPlanOnlyIfItMatters) {
  JobPasts pasts;
  const auto plan = [&](int now, PromiseKind kind, int end) {
    pasts.promise(JobId(1), {at(now), kind, at(1000), at(end), "elasticflow"});
  };
  plan(0, PromiseKind::made, 900);
  plan(1, PromiseKind::changed, 905);
  plan(2, PromiseKind::changed, 950);
  plan(3, PromiseKind::dropped, 950);
  const auto& notes = pasts.of(JobId(1))->promises;
  ASSERT_EQ(notes.size(), 3U);
  EXPECT_EQ(notes[1].planned, at(950));
  EXPECT_EQ(notes[2].kind, PromiseKind::dropped);
  for (int i = 4; i < 400; ++i) plan(i, PromiseKind::changed, i % 2 == 0 ? 700 : 900);
  EXPECT_LE(notes.size(), JobPasts::kMostPromises);
  EXPECT_EQ(notes.front().kind, PromiseKind::made);
}

TEST(JobPast, ForgetsTheJobsThatEndedFirst) {
  JobPasts pasts;
  const int jobs = static_cast<int>(JobPasts::kMostOfEnded / JobPasts::kReportsOfEnded) * 2 + 50;
  for (int job = 1; job <= jobs; ++job) {
    for (int i = 0; i < 200; ++i) pasts.report(JobId(job), at(i), progress(i, 10), true);
    pasts.over(JobId(job));
  }
  EXPECT_EQ(pasts.of(JobId(1)), nullptr);
  ASSERT_NE(pasts.of(JobId(jobs)), nullptr);
  EXPECT_LE(pasts.of(JobId(jobs))->reports.size(), JobPasts::kReportsOfEnded);
  pasts.forget(JobId(jobs));
  EXPECT_EQ(pasts.of(JobId(jobs)), nullptr);
}

TEST(JobPast, IsTheSameAfterASnapshot) {
  JobPasts pasts;
  for (int job = 1; job <= 5; ++job) {
    for (int i = 0; i < 300; ++i) pasts.report(JobId(job), at(i), progress(i, 0.1 * i), i > 5);
    JobProgress little;
    little.samples = 1;
    pasts.report(JobId(job), at(400), little, false);
    pasts.promise(JobId(job), {at(2), PromiseKind::made, at(90), std::nullopt, "a \"policy\""});
    if (job % 2 == 0) pasts.over(JobId(job));
  }
  const Json saved = pasts.save();
  JobPasts again;
  ASSERT_TRUE(again.load(saved));
  EXPECT_EQ(again.save(), saved);
  for (int job = 1; job <= 5; ++job) {
    EXPECT_EQ(again.of(JobId(job))->reports, pasts.of(JobId(job))->reports);
    EXPECT_EQ(again.of(JobId(job))->promises, pasts.of(JobId(job))->promises);
    EXPECT_EQ(again.of(JobId(job))->apart, pasts.of(JobId(job))->apart);
  }
}

TEST(JobPast, RefusesANumberThatCannotBe) {
  JobPasts pasts;
  EXPECT_FALSE(pasts.load({{"numbers", "1 0 0 1 5 5 2"}, {"texts", Json::array()}}));
  EXPECT_FALSE(pasts.load({{"numbers", "1 0 0 0 1 5 99 1 0 0 0"}, {"texts", {"x"}}}));
  EXPECT_FALSE(pasts.load({{"texts", Json::array()}}));
}

}  // namespace
}  // namespace rubato::daemon
