#include "rubato/daemon/what_if_world.h"

#include <gtest/gtest.h>
#include <utility>
#include <variant>
#include <vector>

#include "rubato/core/testing.h"

namespace rubato::daemon {
namespace {

constexpr JobId kJob(1);
constexpr Duration kSeldom = std::chrono::seconds(1);

// 10 steps a second on each GPU.
JobTruth truth_of(double steps) {
  JobTruth truth;
  truth.reports = JobTruth::Reports::steps;
  truth.amount = steps;
  truth.rates = {{1, 10.0}, {2, 20.0}};
  truth.trains = truth.runs = {{1, from_seconds(2)}};
  truth.grows = {{2, from_seconds(1)}};
  truth.pause = Duration(0);
  return truth;
}

// One job on one node of four GPUs.
class Machines {
 public:
  explicit Machines(JobTruth truth)
      : truth_(std::move(truth)),
        world(
            cluster_of("1x4"), [this](JobId) { return &truth_; }, kSeldom) {}

  void tell(const Command& command) { world.carry_out(now, std::vector{command}); }
  void pass(double seconds) {
    const Time end = now + from_seconds(seconds);
    while (world.next() <= end) {
      now = std::max(now, world.next());
      look();
      std::vector<Fact> some;
      world.collect(now, some);
      for (Fact& fact : some) facts.emplace_back(now, std::move(fact));
    }
    now = end;
  }
  void look() {
    for (JobStatus& status : world.reports(now)) statuses.emplace_back(now, std::move(status));
  }
  // When the facts of this kind came.
  template <typename Kind>
  [[nodiscard]] std::vector<Time> times() const {
    std::vector<Time> found;
    for (const auto& [at, fact] : facts) {
      if (std::holds_alternative<Kind>(fact)) found.push_back(at);
    }
    return found;
  }

 private:
  JobTruth truth_;

 public:
  WhatIfWorld world;
  Time now = kStart;
  std::vector<std::pair<Time, Fact>> facts;
  std::vector<std::pair<Time, JobStatus>> statuses;
};

using Times = std::vector<Time>;

TEST(WhatIfWorld, AProgramNeedsTimeToEndAfterItsLastStep) {
  JobTruth truth = truth_of(100);
  truth.ends = from_seconds(0.5);
  Machines machines(truth);
  machines.tell(Start{kJob, Generation(1), gpus_on({{0, 1}}), std::nullopt});
  machines.pass(60);
  EXPECT_EQ(machines.times<RunningFact>(), Times{time_at(2)});
  EXPECT_EQ(machines.times<Finished>(), Times{time_at(2 + 10 + 0.5)});
}

TEST(WhatIfWorld, AProgramThatEndsTakesNoCommand) {
  JobTruth truth = truth_of(100);
  truth.ends = from_seconds(0.5);
  Machines machines(truth);
  machines.tell(Start{kJob, Generation(1), gpus_on({{0, 1}}), std::nullopt});
  machines.pass(12.1);
  machines.tell(Resize{kJob, Generation(2), gpus_on({{0, 3}}), std::nullopt});
  machines.pass(0.1);
  machines.tell(Stop{kJob, Generation(3)});
  machines.pass(60);
  EXPECT_EQ(machines.times<Finished>(), Times{time_at(12.5)});
  EXPECT_EQ(machines.facts.size(), 2U);
}

TEST(WhatIfWorld, AJobThatHasNotTrainedStopsAtOnce) {
  JobTruth truth = truth_of(1000);
  truth.stops = from_seconds(0.8);
  truth.halts = from_seconds(0.1);
  Machines machines(truth);
  machines.tell(Start{kJob, Generation(1), gpus_on({{0, 1}}), std::nullopt});
  machines.pass(1);
  machines.tell(Stop{kJob, Generation(2)});
  machines.pass(9);
  machines.tell(Start{kJob, Generation(3), gpus_on({{0, 1}}), std::nullopt});
  machines.pass(10);
  machines.tell(Stop{kJob, Generation(4)});
  machines.pass(10);
  EXPECT_EQ(machines.times<ReleasedFact>(), (Times{time_at(1.1), time_at(20.8)}));
}

// A shrink of which is known when which worker left.
TEST(WhatIfWorld, WorkersLeaveOneAfterAnotherAsTheyReallyDid) {
  JobTruth truth = truth_of(1000);
  Episode shrink;
  shrink.told = CommandKind::shrink;
  shrink.gpus = 1;
  shrink.from = time_at(100);
  shrink.until = time_at(105);
  shrink.done = 80;
  shrink.done_until = 130;
  shrink.running = time_at(103);
  shrink.releases = {{time_at(100.5), gpus_on({{0, 0b0010}})},
                     {time_at(101), gpus_on({{0, 0b1000}})},
                     {time_at(103), gpus_on({{0, 0b0100}})}};
  truth.episodes = {shrink};
  Machines machines(truth);
  machines.tell(Start{kJob, Generation(1), gpus_on({{0, 0b1111}}), std::nullopt});
  machines.pass(4);
  machines.tell(Resize{kJob, Generation(2), gpus_on({{0, 0b0001}}), std::nullopt});
  machines.pass(5);
  std::vector<std::pair<Time, Allocation>> released;
  for (const auto& [at, fact] : machines.facts) {
    if (const auto* one = std::get_if<ReleasedFact>(&fact)) released.emplace_back(at, one->gpus);
  }
  ASSERT_EQ(released.size(), 3U);
  EXPECT_EQ(released[0], std::pair(time_at(4.5), gpus_on({{0, 0b0010}})));
  EXPECT_EQ(released[1], std::pair(time_at(5), gpus_on({{0, 0b1000}})));
  EXPECT_EQ(released[2], std::pair(time_at(7), gpus_on({{0, 0b0100}})));
}

TEST(WhatIfWorld, AJobReportsTheMeanSpeedOfTheLastFiveSeconds) {
  Machines machines(truth_of(1000));
  machines.tell(Start{kJob, Generation(1), gpus_on({{0, 1}}), std::nullopt});
  machines.pass(10);
  EXPECT_DOUBLE_EQ(machines.statuses.back().second.progress.step_rate, 10) << "without its start";
  machines.tell(Resize{kJob, Generation(2), gpus_on({{0, 3}}), std::nullopt});
  machines.pass(4);  // it has trained on two GPUs for three of the last five seconds
  machines.world.report_by(kJob, machines.now);
  machines.look();
  EXPECT_EQ(machines.statuses.back().second.progress.workers, 2);
  EXPECT_DOUBLE_EQ(machines.statuses.back().second.progress.step_rate, (2 * 10 + 3 * 20) / 5.0);
}

TEST(WhatIfWorld, AJobReportsNothingBeforeItReallyDid) {
  JobTruth truth = truth_of(1000);
  Episode start;
  start.gpus = 1;
  start.from = time_at(100);
  start.until = time_at(120);
  start.done_until = 150;
  start.running = time_at(102);
  start.reports = {{time_at(101), 0, 0, {}}, {time_at(106), 40, 10, {}}};
  truth.episodes = {start};
  Machines machines(truth);
  machines.tell(Start{kJob, Generation(1), gpus_on({{0, 1}}), std::nullopt});
  machines.pass(0.5);
  machines.look();
  EXPECT_TRUE(machines.statuses.empty());
  machines.pass(1);
  ASSERT_EQ(machines.statuses.size(), 1U);
  EXPECT_EQ(machines.statuses[0].first, time_at(1));
  EXPECT_EQ(machines.world.due(), std::vector{kJob});
  machines.look();
  EXPECT_EQ(machines.statuses.size(), 1U);
  EXPECT_TRUE(machines.world.due().empty());
}

}  // namespace
}  // namespace rubato::daemon
