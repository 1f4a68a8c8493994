#include "rubato/node/progress_meter.h"

#include <gtest/gtest.h>

namespace rubato::node {
namespace {

// One step a tenth of a second, 32 samples of 1000 each.
wire::StepReport step(std::int64_t number, double applied_at) {
  return wire::read_step_report({{"step", number},
                                 {"epoch", (number - 1) * 32 / 1000},
                                 {"cursor", (number - 1) * 32 % 1000},
                                 {"samples", 32},
                                 {"epoch_samples", 1000},
                                 {"loss", 1.0 / static_cast<double>(number)},
                                 {"workers", 2},
                                 {"applied_at", applied_at}})
      .value();
}

void steps(ProgressMeter& meter, std::int64_t first, std::int64_t last, double from) {
  for (std::int64_t number = first; number <= last; ++number) {
    const double at = from + 0.1 * static_cast<double>(number - first);
    EXPECT_TRUE(meter.report(time_at(at), 0, step(number, at)));
  }
}

TEST(ProgressMeter, NothingIsToldAtFirst) {
  EXPECT_EQ(ProgressMeter().progress(time_at(5)), JobProgress());
}

TEST(ProgressMeter, TellsHowFarAndHowFast) {
  ProgressMeter meter;
  steps(meter, 1, 100, 10);
  const JobProgress progress = meter.progress(time_at(19.9));
  EXPECT_EQ(progress.step, 100);
  EXPECT_EQ(progress.samples, 3200);
  EXPECT_EQ(progress.epoch, 3.2);
  EXPECT_EQ(progress.loss, 0.01);
  EXPECT_EQ(progress.workers, 2);
  EXPECT_EQ(progress.batch, 32);
  EXPECT_NEAR(progress.step_rate, 10, 1e-6);
  EXPECT_NEAR(progress.rate, 320, 1e-6);
  // Silence slows it down.
  EXPECT_NEAR(meter.progress(time_at(19.95)).step_rate, 10, 1e-6) << "no step is overdue";
  EXPECT_LT(meter.progress(time_at(30)).step_rate, 4);
}

TEST(ProgressMeter, AProgramThatHasDoneItsLastStepIsNotSlow) {
  ProgressMeter meter;
  steps(meter, 1, 100, 10);
  meter.finished();
  EXPECT_NEAR(meter.progress(time_at(30)).step_rate, 10, 1e-6);
  EXPECT_TRUE(meter.report(time_at(31), 1, step(90, 31))) << "all have started again";
  EXPECT_TRUE(meter.report(time_at(32), 1, step(91, 32)));
  EXPECT_LT(meter.progress(time_at(50)).step_rate, 0.1);
}

TEST(ProgressMeter, WhatWasToldIsNotToldAgain) {
  ProgressMeter meter;
  steps(meter, 1, 10, 10);
  EXPECT_FALSE(meter.report(time_at(12), 0, step(10, 12)));
  EXPECT_FALSE(meter.report(time_at(12), 0, step(7, 12)));
  EXPECT_EQ(meter.progress(time_at(12)).step, 10);
  EXPECT_TRUE(meter.report(time_at(12), 1, step(7, 12))) << "all have started again";
  EXPECT_EQ(meter.progress(time_at(12)).step, 7);
}

// Not every step has every metric. One that has become infinite is not what it was before.
TEST(ProgressMeter, KeepsTheNewestOfEachMetric) {
  ProgressMeter meter;
  const auto tell = [&](int number, const Json& metrics) {
    const Json content = {{"step", number}, {"metrics", metrics}};
    EXPECT_TRUE(meter.report(time_at(number), 0, wire::read_step_report(content).value()));
    return meter.progress(time_at(number)).metrics;
  };
  using Metrics = std::map<std::string, double>;
  EXPECT_EQ(tell(1, {{"accuracy", 0.5}, {"loss", 2}}), (Metrics{{"accuracy", 0.5}, {"loss", 2}}));
  EXPECT_EQ(tell(2, {{"loss", 1}}), (Metrics{{"accuracy", 0.5}, {"loss", 1}}));
  EXPECT_EQ(tell(3, {{"loss", nullptr}, {"odd", "text"}}), (Metrics{{"accuracy", 0.5}}));
}

TEST(ProgressMeter, WithoutTheSizeOfAnEpochSamplesAreAddedUp) {
  ProgressMeter meter;
  for (int number = 1; number <= 3; ++number) {
    wire::StepReport report;
    report.step = number;
    report.epoch = 1;
    report.samples = 8;
    (void)meter.report(time_at(number), 0, report);
  }
  EXPECT_EQ(meter.progress(time_at(3)).samples, 24);
  EXPECT_EQ(meter.progress(time_at(3)).epoch, 1);
}

TEST(ProgressMeter, AnyContentIsBorne) {
  ProgressMeter meter;
  for (const Json& odd :
       {Json(), Json::array(), Json(3), Json{{"step", "x"}}, Json{{"step", -1}},
        Json{{"step", 1e300}},
        Json{{"step", 3}, {"samples", -5}, {"epoch", -1}, {"workers", 1e20}, {"loss", nullptr}}}) {
    if (const auto report = wire::read_step_report(odd)) (void)meter.report(time_at(1), 0, *report);
  }
  const JobProgress progress = meter.progress(time_at(2));
  EXPECT_EQ(progress.step, 3);
  EXPECT_EQ(progress.samples, 0);
  EXPECT_EQ(progress.loss, std::nullopt);
}

TEST(ProgressMeter, PassesOnWhatAProgramTellsOfItsBatch) {
  ProgressMeter meter;
  const JobTuning tuning{16, 512, 32, 0.25, 0.125};
  (void)meter.report(time_at(1), 0,
                     wire::read_step_report({{"step", 1}, {"tuning", to_json(tuning)}}).value());
  EXPECT_EQ(meter.progress(time_at(1)).tuning, tuning);
  (void)meter.report(time_at(2), 0,
                     wire::read_step_report({{"step", 2}, {"tuning", {{"initial", 16}}}}).value());
  EXPECT_EQ(meter.progress(time_at(2)).tuning, std::nullopt) << "half of it is nothing";
}

TEST(ProgressMeter, APauseIsWhatTheFirstStepTookLonger) {
  ProgressMeter meter;
  steps(meter, 1, 50, 10);  // the last at 14.9
  meter.resize_asked(time_at(14.9));
  meter.members_changed(51);
  steps(meter, 51, 60, 15.25);
  meter.members_changed(61);
  steps(meter, 61, 70, 16.3);  // 0.15 after the last
  meter.resize_settled(time_at(17));
  ASSERT_EQ(meter.pauses().size(), 1U);
  EXPECT_NEAR(meter.pauses()[0], 0.25 + 0.05, 1e-6);
  meter.resize_settled(time_at(18));
  EXPECT_EQ(meter.pauses().size(), 1U) << "none was asked for";
}

TEST(ProgressMeter, AStartOfAllAgainIsAPauseAltogether) {
  ProgressMeter meter;
  steps(meter, 1, 50, 10);  // the last at 14.9
  meter.resize_asked(time_at(15));
  (void)meter.report(time_at(18.9), 1, step(40, 18.9));
  meter.resize_settled(time_at(19));
  ASSERT_EQ(meter.pauses().size(), 1U);
  EXPECT_NEAR(meter.pauses()[0], 4, 1e-6);
}

TEST(ProgressMeter, WhoTellsNoStepsStandsStillAllTheWhile) {
  ProgressMeter meter;
  for (int i = 0; i < 20; ++i) {
    meter.resize_asked(time_at(10 * i));
    meter.resize_asked(time_at(10 * i + 1));
    meter.resize_settled(time_at(10 * i + 3));
  }
  EXPECT_EQ(meter.pauses(), std::vector<double>(kPausesKept, 3.0));
}

}  // namespace
}  // namespace rubato::node
