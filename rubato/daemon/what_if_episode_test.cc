#include "rubato/daemon/what_if_episode.h"

#include <gtest/gtest.h>

#include "rubato/core/testing.h"

namespace rubato::daemon {
namespace {

Episode::Report report(double at, double done, double speed = 0) {
  Episode::Report one{time_at(at), done, speed, {}};
  one.progress.step = static_cast<std::int64_t>(done);
  return one;
}

constexpr Duration kAll = std::chrono::seconds(1);

// Starts at 10 s, trains from 12 s on, is resized at 20 s and completes at 33 s.
std::vector<Episode> example(Time begin = kStart) {
  EpisodeWriter writer;
  writer.told(time_at(10), CommandKind::start, 4);
  writer.report(report(12, 0), kAll);
  writer.running(time_at(13));
  writer.report(report(17, 50, 10), kAll);
  writer.told(time_at(20), CommandKind::shrink, 2);
  writer.released(time_at(20.5), gpus_on({{0, 0b0100}}));
  writer.released(time_at(21), gpus_on({{0, 0b1000}}));
  writer.running(time_at(21.5));
  writer.report(report(22, 100, 10), kAll);
  writer.report(report(27, 125, 5), kAll);
  writer.report(report(33, 155, 5), kAll);
  writer.ended(time_at(33), true);
  return writer.finish(begin);
}

TEST(Episode, IsWhatHappenedBetweenTwoCommands) {
  const auto all = example();
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].told, CommandKind::start);
  EXPECT_EQ(all[0].gpus, 4);
  EXPECT_EQ(all[0].running, time_at(13));
  EXPECT_TRUE(all[0].releases.empty());
  EXPECT_DOUBLE_EQ(all[0].done_until, 80);  // between the reports of 17 s and 22 s
  EXPECT_DOUBLE_EQ(all[1].done, 80);
  ASSERT_EQ(all[1].releases.size(), 2U);
  EXPECT_EQ(all[1].releases[0].at, time_at(20.5));
  EXPECT_EQ(all[1].releases[1].gpus, gpus_on({{0, 0b1000}}));
}

TEST(Episode, DoesNotKnowWhenTheJobCompleted) {
  const auto all = example();
  EXPECT_EQ(all[1].reports.size(), 2U);
  EXPECT_EQ(all[1].until, time_at(27));
  EXPECT_DOUBLE_EQ(all[1].done_until, 125);
}

// A command in the last seconds of a job: its last report before that is not the end of its
// training.
TEST(Episode, GoesOnUntilACommandThatComesAfterTheLastReport) {
  EpisodeWriter writer;
  writer.told(time_at(10), CommandKind::start, 2);
  writer.report(report(12, 0), kAll);
  writer.report(report(17, 50, 10), kAll);
  writer.told(time_at(20), CommandKind::shrink, 1);
  writer.report(report(21, 90, 10), kAll);
  writer.ended(time_at(21), true);
  const auto all = writer.finish(kStart);
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].until, time_at(17));
  EXPECT_EQ(all[0].time_of(90), from_seconds(11));
}

// A job that was told to grow after its last report, and ended before it grew.
TEST(Episode, HasTheSpeedOfTheEndIfNothingElseIsKnownAfterACommand) {
  EpisodeWriter writer;
  writer.told(time_at(10), CommandKind::start, 1);
  writer.report(report(17, 50, 24), kAll);
  writer.told(time_at(18), CommandKind::grow, 2);
  writer.report(report(22, 110, 15), kAll);
  writer.ended(time_at(22), true);
  const auto all = writer.finish(kStart);
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[1].told, CommandKind::grow);
  EXPECT_EQ(all[1].length(), Duration(0));
  EXPECT_DOUBLE_EQ(all[1].last_speed(), 15);
  EXPECT_EQ(all[1].time_of(45), from_seconds(3));
}

TEST(Episode, HasTheSpeedOfTheLastReportButNotItsTime) {
  EpisodeWriter writer;
  writer.told(time_at(10), CommandKind::start, 2);
  writer.report(report(12, 0), kAll);
  writer.report(report(17, 50, 10), kAll);
  writer.report(report(19, 90, 20), kAll);
  writer.ended(time_at(19), true);
  const Episode one = writer.finish(kStart).at(0);
  EXPECT_EQ(one.until, time_at(17));
  EXPECT_DOUBLE_EQ(one.last_speed(), 20);
}

TEST(Episode, WorkersThatRunTrainEvenIfNoReportHasSaidSo) {
  const auto last_speed = [](bool ran, int workers_at_end) {
    EpisodeWriter writer;
    writer.told(time_at(10), CommandKind::start, 2);
    Episode::Report first = report(17, 50, 10);
    first.progress.workers = 1;
    writer.report(first, kAll);
    if (ran) writer.running(time_at(17));
    Episode::Report end = report(21, 130, 20);
    end.progress.workers = workers_at_end;
    writer.report(end, kAll);
    writer.ended(time_at(21), true);
    return writer.finish(kStart).at(0).last_speed();
  };
  EXPECT_DOUBLE_EQ(last_speed(true, 2), 20);
  EXPECT_DOUBLE_EQ(last_speed(false, 2), 10) << "the second worker may have come late";
  EXPECT_DOUBLE_EQ(last_speed(false, 1), 20);
}

TEST(Episode, KnowsWhatFactsSayOfItsWork) {
  EpisodeWriter writer;
  writer.told(time_at(10), CommandKind::start, 2);
  writer.report(report(12, 0), kAll);
  writer.report(report(17, 50, 10), kAll);
  writer.did(time_at(18), 70);
  writer.report(report(19, 90, 10), kAll);
  writer.ended(time_at(19), true);
  const Episode one = writer.finish(kStart).at(0);
  EXPECT_EQ(one.until, time_at(18));
  EXPECT_DOUBLE_EQ(one.done_until, 70);
  EXPECT_EQ(one.time_of(90), from_seconds(10));
}

TEST(Episode, WorkGrowsInProportionAndThenAsFastAsItLastWas) {
  const Episode one = example()[1];
  EXPECT_DOUBLE_EQ(one.work_by(from_seconds(0)), 0);
  EXPECT_DOUBLE_EQ(one.work_by(from_seconds(1)), 10);
  EXPECT_DOUBLE_EQ(one.work_by(from_seconds(4.5)), 32.5);
  EXPECT_DOUBLE_EQ(one.work_by(from_seconds(7)), 45);
  EXPECT_DOUBLE_EQ(one.work_by(from_seconds(9)), 55);
  EXPECT_EQ(one.time_of(32.5), from_seconds(4.5));
  EXPECT_EQ(one.time_of(55), from_seconds(9));
}

TEST(Episode, OfAStopNothingIsKnownAfterItsEnd) {
  EpisodeWriter writer;
  writer.told(time_at(0), CommandKind::start, 1);
  writer.report(report(5, 10, 2), kAll);
  writer.told(time_at(6), CommandKind::stop, 0);
  writer.report(report(7, 13, 2), kAll);
  writer.released(time_at(7), gpus_on({{0, 1}}));
  writer.ended(time_at(7), false);
  const Episode stop = writer.finish(kStart).at(1);
  EXPECT_DOUBLE_EQ(stop.done_until, 13);
  EXPECT_DOUBLE_EQ(stop.work_by(from_seconds(60)), 1.5);
  EXPECT_FALSE(stop.time_of(2));
}

TEST(Episode, AJobThatStartsAgainHasWhatItHadDone) {
  EpisodeWriter writer;
  writer.told(time_at(0), CommandKind::start, 1);
  writer.report(report(5, 10, 2), kAll);
  writer.ended(time_at(6), false);
  writer.told(time_at(8), CommandKind::start, 1);
  writer.report(report(9, 0), kAll);
  writer.report(report(14, 16, 2), kAll);
  const Episode again = writer.finish(kStart).at(1);
  EXPECT_DOUBLE_EQ(again.done, 10);
  EXPECT_DOUBLE_EQ(again.work_by(from_seconds(6)), 6);
}

TEST(Episode, AProgramThatReportsAfterItsLastStepHasNotEnded) {
  EpisodeWriter writer;
  writer.told(time_at(0), CommandKind::start, 1);
  for (const double at : {5, 10, 15}) writer.report(report(at, 50), kAll);
  writer.report(report(18, 50), kAll);
  writer.ended(time_at(18), true);
  const Episode one = writer.finish(kStart).at(0);
  EXPECT_LT(one.work_by(from_seconds(14)), 50);
  EXPECT_EQ(one.time_of(50), from_seconds(15));
}

TEST(Episode, ReportsOfALongOneAreThinnedOut) {
  EpisodeWriter writer;
  writer.told(time_at(0), CommandKind::start, 1);
  for (int second = 1; second <= 120; ++second)
    writer.report(report(second, second, 1), std::chrono::seconds(10));
  const Episode one = writer.finish(kStart).at(0);
  EXPECT_EQ(one.reports.size(), 20U + 10U);
}

TEST(Record, FindsTheSameCommandAtAboutTheSamePoint) {
  const auto all = example();
  Record record(&all);
  EXPECT_EQ(record.next(CommandKind::start, 2, 0, 10), nullptr);
  EXPECT_EQ(record.next(CommandKind::shrink, 2, 50, 10), nullptr);
  EXPECT_EQ(record.next(CommandKind::start, 4, 5, 10), all.data());
  EXPECT_EQ(record.next(CommandKind::start, 4, 5, 10), nullptr) << "it is over";
  EXPECT_EQ(record.next(CommandKind::shrink, 2, 85, 10), &all[1]);
}

TEST(Record, FindsTheOneAtTheNearestPoint) {
  std::vector<Episode> all(3);
  for (const auto& [i, done] : {std::pair(0, 40), {1, 44}, {2, 52}}) {
    all[i].told = CommandKind::grow;
    all[i].gpus = 4;
    all[i].done = done;
  }
  Record record(&all);
  EXPECT_EQ(record.next(CommandKind::grow, 4, 45, 10), &all[1]);
  EXPECT_EQ(record.next(CommandKind::grow, 4, 45, 10), &all[2]);
  Record other(&all);
  EXPECT_EQ(other.next(CommandKind::grow, 4, 42, 10), all.data()) << "of two as near, the first";
}

TEST(Record, BeginsInTheMiddle) {
  const auto all = example(time_at(23));
  ASSERT_EQ(all.size(), 1U);
  Record record(&all);
  EXPECT_EQ(record.at(time_at(23)), all.data());
  EXPECT_EQ(Record().at(time_at(23)), nullptr);
}

}  // namespace
}  // namespace rubato::daemon
