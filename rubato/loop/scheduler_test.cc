#include "rubato/loop/scheduler.h"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "rubato/base/random.h"
#include "rubato/base/testing_seeds.h"
#include "rubato/core/testing.h"

namespace rubato::loop {
namespace {

Submitted submitted(std::size_t job, std::shared_ptr<const JobSpec> spec) {
  return {job_id(job), std::move(spec), nullptr, 100};
}

std::shared_ptr<JobSpec> unpreemptible(std::shared_ptr<JobSpec> spec) {
  spec->preemptible = false;
  return spec;
}

std::string text_of(const Allocation& gpus) {
  std::string out;
  for (const auto& slice : gpus.slices()) {
    out += fmt::format("{}{}:{:b}", out.empty() ? "" : " ", slice.node.value(), slice.mask);
  }
  return out;
}

// "start 0 gen 1 on 0:11".
std::string text_of(const Command& command) {
  struct Visitor {
    std::string operator()(const Start& c) const {
      return line("start", c.job, c.generation, text_of(c.gpus));
    }
    std::string operator()(const Resize& c) const {
      return line("resize", c.job, c.generation, text_of(c.gpus));
    }
    std::string operator()(const Stop& c) const { return line("stop", c.job, c.generation, ""); }
    static std::string line(const char* what, JobId job, Generation generation,
                            const std::string& gpus) {
      return fmt::format("{} {} gen {}{}{}", what, job.value(), generation.value(),
                         gpus.empty() ? "" : " on ", gpus);
    }
  };
  return std::visit(Visitor(), command);
}

using Lines = std::vector<std::string>;

struct ConstantSpeed final : SpeedModel {
  [[nodiscard]] WorkRate rate(const Shape& /*shape*/) const override { return 1; }
};

// A scheduler whose reactions are read as lines.
struct Loop {
  explicit Loop(const char* cluster, Placement placement = Placement::count)
      : scheduler(cluster_of(cluster), placement) {}

  Lines on(double s, Event event) {
    reaction.clear();
    scheduler.on(time_at(s), std::move(event), reaction);
    Lines lines;
    for (const auto& command : reaction.commands) lines.push_back(text_of(command));
    return lines;
  }
  Lines decide(double s, std::vector<Grant> run) {
    Decision decision;
    decision.as_of = scheduler.ask(time_at(s)).as_of;
    decision.run = std::move(run);
    return on(s, Decided{std::move(decision)});
  }
  const JobView& job(std::size_t id) const { return *scheduler.snapshot().jobs.find(job_id(id)); }
  bool gone(std::size_t id) const { return scheduler.snapshot().jobs.find(job_id(id)) == nullptr; }

  // Facts about the job's present generation, as an engine would report them.
  Lines released(double s, std::size_t id, const Allocation& gpus, bool stopped = false) {
    return on(s, Released{job_id(id), job(id).generation, gpus, {}, stopped});
  }
  Lines running(double s, std::size_t id) {
    return on(s, Running{job_id(id), job(id).generation, {}});
  }
  Lines finished(double s, std::size_t id) {
    return on(s, Finished{job_id(id), job(id).generation});
  }
  Lines failed(double s, std::size_t id) {
    return on(s, Failed{job_id(id), job(id).generation, {}});
  }

  Scheduler scheduler;
  Reaction reaction;
};

TEST(Scheduler, StartsStopsAndResizes) {
  Loop loop("1x4");
  EXPECT_EQ(loop.on(0, submitted(0, elastic_spec(1, 4))), Lines{});
  EXPECT_TRUE(loop.scheduler.decision_due());
  EXPECT_EQ(loop.decide(0, {grant_count(0, 2)}), Lines{"start 0 gen 1 on 0:11"});
  EXPECT_FALSE(loop.scheduler.decision_due());
  EXPECT_EQ(loop.job(0).phase, Phase::starting);
  loop.running(0, 0);
  EXPECT_EQ(loop.job(0).phase, Phase::running);
  EXPECT_EQ(loop.job(0).first_start, time_at(0));
  EXPECT_EQ(loop.decide(1, {grant_count(0, 4)}), Lines{"resize 0 gen 2 on 0:1111"});
  EXPECT_EQ(loop.job(0).phase, Phase::resizing);
  EXPECT_EQ(loop.decide(2, {grant_count(0, 1)}), Lines{"resize 0 gen 3 on 0:1"});
  EXPECT_EQ(loop.job(0).held.gpus(), 4) << "used until released";
  EXPECT_EQ(loop.job(0).release_due, 3);
  EXPECT_EQ(loop.released(3, 0, gpus_on({{0, 0b0110}})), Lines{}) << "a part";
  EXPECT_EQ(loop.released(4, 0, gpus_on({{0, 0b1000}})), Lines{});
  EXPECT_EQ(loop.job(0).held, gpus_on({{0, 0b1}}));
  EXPECT_EQ(loop.decide(5, {}), Lines{"stop 0 gen 4"});
  loop.released(5, 0, gpus_on({{0, 0b1}}), true);
  EXPECT_EQ(loop.job(0).phase, Phase::pending);
  EXPECT_EQ(loop.decide(6, {grant_count(0, 1)}), Lines{"start 0 gen 5 on 0:1"});
  EXPECT_EQ(loop.job(0).restarts, 1);
  EXPECT_EQ(loop.job(0).first_start, time_at(0));
  loop.finished(7, 0);
  EXPECT_TRUE(loop.gone(0));
  EXPECT_EQ(loop.scheduler.state().free.free_of(GpuType()), 4);
}

TEST(Scheduler, ABatchGoesOutWithTheGpusOrAlone) {
  Loop loop("1x4");
  loop.on(0, submitted(0, elastic_spec(1, 4)));
  const auto grant = [](int gpus, std::optional<Batch> batch) {
    Grant g = grant_count(0, gpus);
    g.batch = batch;
    return std::vector<Grant>{g};
  };
  const auto told = [&] {
    return std::visit(
        [](const auto& command) -> std::optional<Batch> {
          if constexpr (requires { command.batch; }) return command.batch;
          return std::nullopt;
        },
        loop.reaction.commands.at(0));
  };
  EXPECT_EQ(loop.decide(0, grant(2, Batch{32, 1})), Lines{"start 0 gen 1 on 0:11"});
  EXPECT_EQ(told(), (Batch{32, 1}));
  EXPECT_EQ(loop.decide(1, grant(2, Batch{32, 1})), Lines{}) << "nothing new";
  EXPECT_EQ(loop.decide(2, grant(2, Batch{64, 0})), Lines{"resize 0 gen 2 on 0:11"});
  EXPECT_EQ(told(), (Batch{64, 0}));
  EXPECT_TRUE(loop.reaction.changes.empty()) << "no GPU moved";
  EXPECT_EQ(loop.decide(3, grant(3, Batch{16, 0})), Lines{"resize 0 gen 3 on 0:111"});
  EXPECT_EQ(loop.decide(4, grant(3, std::nullopt)), Lines{"resize 0 gen 4 on 0:111"});
  EXPECT_EQ(told(), std::nullopt) << "back to the owner's";
  EXPECT_EQ(loop.decide(5, grant(2, Batch{8, 0})), Lines{"resize 0 gen 5 on 0:11"});
  EXPECT_EQ(told(), (Batch{8, 0}));
  loop.released(5, 0, gpus_on({{0, 0b100}}));
  EXPECT_EQ(loop.decide(6, grant(2, Batch{0, 0})), Lines{});
  EXPECT_NE(loop.reaction.refused, "") << "no samples";
}

TEST(Scheduler, AStartWaitsUntilTheGpusAreReleased) {
  Loop loop("1x2");
  loop.on(0, submitted(0, rigid_spec(2)));
  loop.on(0, submitted(1, rigid_spec(2)));
  loop.decide(0, {grant_count(0, 2)});
  EXPECT_EQ(loop.decide(1, {grant_count(1, 2)}), Lines{"stop 0 gen 2"});
  EXPECT_EQ(loop.job(1).phase, Phase::pending);
  EXPECT_FALSE(loop.job(1).has_run());
  EXPECT_EQ(loop.released(2, 0, gpus_on({{0, 0b01}})), Lines{}) << "one of two is not enough";
  EXPECT_EQ(loop.released(3, 0, gpus_on({{0, 0b10}}), true), Lines{"start 1 gen 1 on 0:11"});
  EXPECT_EQ(loop.job(1).first_start, time_at(3));
}

TEST(Scheduler, FinishedAndFailedFreeGpusForThoseWhoWait) {
  for (const bool fails : {false, true}) {
    Loop loop("1x2");
    loop.on(0, submitted(0, rigid_spec(2)));
    loop.on(0, submitted(1, rigid_spec(2)));
    loop.decide(0, {grant_count(0, 2)});
    loop.decide(1, {grant_count(1, 2)});
    EXPECT_EQ(fails ? loop.failed(2, 0) : loop.finished(2, 0), Lines{"start 1 gen 1 on 0:11"});
  }
}

TEST(Scheduler, TwoJobsSwapGpusWithoutADeadlock) {
  Loop loop("1x2");
  loop.on(0, submitted(0, rigid_spec(1)));
  loop.on(0, submitted(1, rigid_spec(1)));
  loop.decide(0, {grant_exact(0, gpus_on({{0, 0b01}})), grant_exact(1, gpus_on({{0, 0b10}}))});
  EXPECT_EQ(
      loop.decide(1, {grant_exact(0, gpus_on({{0, 0b10}})), grant_exact(1, gpus_on({{0, 0b01}}))}),
      (Lines{"stop 0 gen 2", "stop 1 gen 2"}));
  EXPECT_EQ(loop.released(2, 0, gpus_on({{0, 0b01}}), true), Lines{}) << "1 still has to let go";
  EXPECT_EQ(loop.released(3, 1, gpus_on({{0, 0b10}}), true),
            (Lines{"start 1 gen 3 on 0:1", "start 0 gen 3 on 0:10"}));
}

TEST(Scheduler, AMovePartlyOntoAnothersGpusGivesUpFirst) {
  Loop loop("1x3");
  loop.on(0, submitted(0, rigid_spec(2)));
  loop.on(0, submitted(1, rigid_spec(1)));
  loop.decide(0, {grant_exact(0, gpus_on({{0, 0b011}})), grant_exact(1, gpus_on({{0, 0b100}}))});
  EXPECT_EQ(loop.decide(
                1, {grant_exact(0, gpus_on({{0, 0b110}})), grant_exact(1, gpus_on({{0, 0b001}}))}),
            (Lines{"resize 0 gen 2 on 0:10", "stop 1 gen 2"}));
  EXPECT_EQ(loop.released(2, 1, gpus_on({{0, 0b100}}), true), Lines{});
  EXPECT_EQ(loop.released(2, 0, gpus_on({{0, 0b001}})),
            (Lines{"resize 0 gen 3 on 0:110", "start 1 gen 3 on 0:1"}));
}

TEST(Scheduler, ADecisionSupersedesOneThatIsStillUnderWay) {
  Loop loop("1x4");
  loop.on(0, submitted(0, elastic_spec(1, 4)));
  loop.on(0, submitted(1, elastic_spec(1, 4)));
  loop.decide(0, {grant_count(0, 4)});
  EXPECT_EQ(loop.decide(1, {grant_count(0, 2), grant_count(1, 2)}),
            Lines{"resize 0 gen 2 on 0:11"});
  EXPECT_EQ(loop.decide(2, {grant_count(0, 4)}), Lines{}) << "what was told to be released will be";
  EXPECT_EQ(loop.released(3, 0, gpus_on({{0, 0b1100}})), Lines{"resize 0 gen 3 on 0:1111"});
  EXPECT_FALSE(loop.job(1).has_run());
  EXPECT_EQ(loop.decide(4, {grant_count(0, 2), grant_count(1, 2)}),
            Lines{"resize 0 gen 4 on 0:11"});
  EXPECT_EQ(loop.decide(5, {grant_count(1, 4)}), Lines{}) << "first the releases under way";
  EXPECT_EQ(loop.released(6, 0, gpus_on({{0, 0b1100}})), Lines{"stop 0 gen 5"});
  EXPECT_EQ(loop.released(7, 0, gpus_on({{0, 0b0011}}), true), Lines{"start 1 gen 1 on 0:1111"});
}

TEST(Scheduler, StaleAndRepeatedFactsChangeNothing) {
  Loop loop("1x4");
  loop.on(0, submitted(0, elastic_spec(1, 4)));
  loop.decide(0, {grant_count(0, 4)});
  loop.decide(1, {grant_count(0, 1)});
  const Released shrunk{job_id(0), Generation(2), gpus_on({{0, 0b1110}}), {}, false};
  for (const Event& stale : std::vector<Event>{
           Released{job_id(0), Generation(1), gpus_on({{0, 0b1110}}), {}, false},
           Running{job_id(0), Generation(1), {}}, Failed{job_id(0), Generation(1), {}},
           Failed{job_id(9), Generation(1), {}}, Finished{job_id(9), Generation(1)},
           Released{job_id(9), Generation(1), gpus_on({{0, 1}}), {}, true}}) {
    EXPECT_EQ(loop.on(2, stale), Lines{});
    EXPECT_EQ(loop.job(0).held.gpus(), 4);
    EXPECT_EQ(loop.job(0).release_due, 3);
    EXPECT_EQ(loop.job(0).phase, Phase::resizing);
  }
  loop.on(3, Released{job_id(0), Generation(2), gpus_on({{0, 0b0010}}), {}, false});
  loop.on(3, Released{job_id(0), Generation(2), gpus_on({{0, 0b0010}}), {}, false});
  EXPECT_EQ(loop.job(0).release_due, 2) << "told twice is released once";
  EXPECT_EQ(loop.on(3, shrunk), Lines{});
  EXPECT_EQ(loop.job(0).release_due, 0);
  EXPECT_EQ(loop.on(4, shrunk), Lines{});
  EXPECT_EQ(loop.job(0).held, gpus_on({{0, 0b1}}));
  EXPECT_EQ(loop.job(0).release_due, 0);
}

// The engine reported this before it received the newer generation.
TEST(Scheduler, AJobThatFinishedIsFinishedWhateverItWasToldMeanwhile) {
  Loop loop("1x4");
  loop.on(0, submitted(0, elastic_spec(1, 4)));
  loop.on(0, submitted(1, rigid_spec(2)));
  loop.decide(0, {grant_count(0, 4)});
  EXPECT_EQ(loop.decide(1, {grant_count(0, 2), grant_count(1, 2)}),
            Lines{"resize 0 gen 2 on 0:11"});
  EXPECT_EQ(loop.on(2, Finished{job_id(0), Generation(1)}), Lines{"start 1 gen 1 on 0:1100"});
  EXPECT_TRUE(loop.gone(0));
}

TEST(Scheduler, StoppedMeansThatNothingIsHeldAnyMore) {
  Loop loop("1x2");
  loop.on(0, submitted(0, rigid_spec(2)));
  loop.on(0, submitted(1, rigid_spec(2)));
  loop.decide(0, {grant_count(0, 2)});
  loop.decide(1, {grant_count(1, 2)});
  // The job had failed when the Stop arrived, so there was nothing to release.
  EXPECT_EQ(loop.released(2, 0, Allocation(), true), Lines{"start 1 gen 1 on 0:11"});
  EXPECT_TRUE(loop.job(0).held.empty());
  EXPECT_EQ(loop.job(0).release_due, 0);
}

TEST(Scheduler, ARunningJobThatIsNotPreemptibleKeepsItsGpus) {
  Loop loop("2x2");
  loop.on(0, submitted(0, unpreemptible(rigid_spec(2))));
  loop.on(0, submitted(1, rigid_spec(2)));
  loop.decide(0, {grant_count(0, 2)});
  EXPECT_EQ(loop.decide(1, {grant_count(1, 2)}), Lines{"start 1 gen 1 on 1:11"});
  EXPECT_EQ(loop.job(0).target, gpus_on({{0, 0b11}}));
  EXPECT_EQ(loop.decide(2, {}), Lines{"stop 1 gen 2"});
  EXPECT_EQ(loop.job(0).target, gpus_on({{0, 0b11}})) << "also the next time";
  loop.finished(3, 0);
  EXPECT_EQ(loop.scheduler.snapshot().jobs.unpreemptible(), 0);
}

TEST(Scheduler, AnUnpreemptibleJobOnALeavingNodeDoesNotStopTheWorld) {
  Loop loop("2x2");
  loop.on(0, submitted(0, unpreemptible(rigid_spec(2))));
  loop.decide(0, {grant_count(0, 2)});
  loop.on(1, NodeChanged{node_id(0), NodeState::draining});
  loop.on(1, submitted(1, rigid_spec(2)));
  EXPECT_EQ(loop.decide(1, {grant_count(1, 2)}), Lines{"start 1 gen 1 on 1:11"})
      << loop.reaction.refused;
  EXPECT_EQ(loop.job(0).target, gpus_on({{0, 0b11}}));
}

TEST(Scheduler, AnUnpreemptibleJobThatOnlyWaitsMayBeLeftOut) {
  Loop loop("1x2");
  loop.on(0, submitted(0, rigid_spec(2)));
  loop.on(0, submitted(1, unpreemptible(rigid_spec(2))));
  loop.decide(0, {grant_count(0, 2)});
  loop.decide(1, {grant_count(1, 2)});  // waits for 0 to let go
  loop.decide(2, {grant_count(0, 2)});
  EXPECT_EQ(loop.reaction.refused, "");
  EXPECT_TRUE(loop.job(1).target.empty());
  EXPECT_EQ(loop.released(3, 0, gpus_on({{0, 0b11}}), true), Lines{"start 0 gen 3 on 0:11"});
}

TEST(Scheduler, ARejectionThatWasNotCarriedOutIsToldAgain) {
  Loop loop("1x4");
  loop.on(0, submitted(0, rigid_spec(2)));
  loop.on(0, submitted(1, rigid_spec(2)));
  Decision decision;
  decision.as_of = loop.scheduler.ask(time_at(0)).as_of;
  decision.run = {grant_count(0, 2)};
  decision.reject = {{job_id(1), "", std::nullopt}};
  loop.on(1, NodeChanged{node_id(0), NodeState::down});
  loop.on(2, Decided{decision});
  EXPECT_NE(loop.reaction.refused, "") << "no GPUs any more";
  EXPECT_FALSE(loop.gone(1));
  EXPECT_EQ(loop.scheduler.snapshot().changed, std::vector<JobId>{job_id(1)})
      << "or the policy would take it for gone";
}

TEST(Scheduler, ARefusedDecisionChangesNothingAndSaysWhy) {
  Loop loop("1x4");
  loop.on(0, submitted(0, rigid_spec(2)));
  loop.on(0, submitted(1, rigid_spec(2)));
  loop.on(0, submitted(2, rigid_spec(1)));
  loop.decide(0, {grant_count(0, 2)});
  struct Case {
    std::vector<Grant> run;
    std::string why;
  };
  for (const auto& [run, why] : std::vector<Case>{
           {{grant_count(1, 3)}, "job 1: grants 3 GPUs, which the job cannot use"},
           {{grant_count(7, 1)}, "job 7: grants GPUs to a job that is not there"},
           {{grant_count(0, 2), grant_exact(1, gpus_on({{0, 0b0110}}))},
            "job 1: the GPUs it was granted are not free"},
       }) {
    EXPECT_EQ(loop.decide(1, run), Lines{});
    EXPECT_EQ(loop.reaction.refused, why);
    EXPECT_TRUE(loop.reaction.changes.empty());
    EXPECT_EQ(loop.job(0).target, gpus_on({{0, 0b11}}));
    EXPECT_TRUE(loop.job(1).target.empty());
    EXPECT_EQ(loop.scheduler.state().free.free_of(GpuType()), 2);
    EXPECT_TRUE(loop.scheduler.state().free.is_free({node_id(0), 0b1100}));
  }
  EXPECT_EQ(loop.decide(2, {grant_count(0, 2), grant_count(1, 2)}),
            Lines{"start 1 gen 1 on 0:1100"});
}

TEST(Scheduler, RejectedJobsLeave) {
  Loop loop("1x2");
  loop.on(0, submitted(0, rigid_spec(2)));
  Decision decision;
  decision.as_of = loop.scheduler.ask(time_at(0)).as_of;
  decision.reject = {{job_id(0), "too late", time_at(50)}};
  EXPECT_EQ(loop.on(0, Decided{decision}), Lines{});
  ASSERT_EQ(loop.reaction.rejected.size(), 1U);
  EXPECT_EQ(loop.reaction.rejected[0].reason, "too late");
  EXPECT_TRUE(loop.gone(0));
}

Decision rejecting(Loop& loop, double s, std::size_t job) {
  Decision decision;
  decision.as_of = loop.scheduler.ask(time_at(s)).as_of;
  decision.reject = {{job_id(job), "no", std::nullopt}};
  return decision;
}

TEST(Scheduler, WhoWasTakenInIsNotRejectedAnyMore) {
  Loop loop("1x2");
  loop.on(0, submitted(0, rigid_spec(2)));
  loop.on(0, submitted(1, rigid_spec(2)));
  EXPECT_FALSE(loop.job(1).taken_in) << "nobody has seen it";
  loop.decide(0, {grant_count(0, 2)});
  EXPECT_TRUE(loop.job(1).taken_in);
  loop.on(1, HoldChanged{job_id(1), true});
  loop.decide(1, {grant_count(0, 2)});
  loop.on(2, HoldChanged{job_id(1), false});
  loop.on(2, Decided{rejecting(loop, 2, 1)});
  EXPECT_EQ(loop.reaction.refused, "job 1: rejected, but it was taken in before or is not there");
  EXPECT_FALSE(loop.gone(1));
}

TEST(Scheduler, WhoStaysAwayIsNotTakenIn) {
  Loop loop("1x2");
  loop.on(0, submitted(0, rigid_spec(2)));
  loop.on(0, HoldChanged{job_id(0), true});
  loop.decide(0, {});
  EXPECT_FALSE(loop.job(0).taken_in);
  loop.on(1, HoldChanged{job_id(0), false});
  loop.on(1, Decided{rejecting(loop, 1, 0)});
  EXPECT_EQ(loop.reaction.refused, "");
  EXPECT_TRUE(loop.gone(0));
}

// What a decision says about each job counts, even if it cannot be carried out.
TEST(Scheduler, ARefusedDecisionTakesInAllButThoseItRejects) {
  Loop loop("1x2");
  loop.on(0, submitted(0, rigid_spec(2)));
  loop.on(0, submitted(1, rigid_spec(2)));
  Decision decision = rejecting(loop, 0, 1);
  decision.run = {grant_count(0, 1)};
  loop.on(0, Decided{decision});
  EXPECT_NE(loop.reaction.refused, "");
  EXPECT_TRUE(loop.job(0).taken_in);
  EXPECT_FALSE(loop.job(1).taken_in);
}

// Journals from before that rule have such decisions.
TEST(Scheduler, APastDecisionMayRejectWhoWaitsForItsGpus) {
  Loop loop("1x2");
  loop.on(0, submitted(0, rigid_spec(2)));
  loop.on(0, submitted(1, unpreemptible(rigid_spec(2))));
  loop.decide(0, {grant_count(0, 2)});
  loop.decide(1, {grant_count(1, 2)});  // 1 waits for 0 to let go
  Decision decision = rejecting(loop, 2, 1);
  decision.run = {grant_count(0, 2)};
  Carried carried;
  carried.changes = {{job_id(0), Change::Kind::start, gpus_on({{0, 0b11}})},
                     {job_id(1), Change::Kind::stop, Allocation()}};
  loop.on(2, Decided{decision, carried});
  EXPECT_EQ(loop.reaction.refused, "");
  EXPECT_TRUE(loop.gone(1));
  EXPECT_EQ(loop.scheduler.snapshot().jobs.unpreemptible(), 0);
  EXPECT_EQ(loop.released(3, 0, gpus_on({{0, 0b11}}), true), Lines{"start 0 gen 3 on 0:11"});
}

TEST(Scheduler, ANodeThatLeavesTakesItsWaitingStartsBack) {
  Loop loop("2x2");
  loop.on(0, submitted(0, rigid_spec(2)));
  loop.on(0, submitted(1, rigid_spec(2)));
  loop.decide(0, {grant_count(0, 2)});
  loop.decide(1, {grant_exact(1, gpus_on({{0, 0b11}}))});
  EXPECT_EQ(loop.on(2, NodeChanged{node_id(0), NodeState::down}), Lines{});
  EXPECT_TRUE(loop.job(1).target.empty());
  EXPECT_TRUE(loop.scheduler.decision_due());
  EXPECT_EQ(loop.failed(2, 0), Lines{}) << "nothing starts on a node that is down";
  EXPECT_EQ(loop.scheduler.state().free.free_of(GpuType()), 2);
  EXPECT_EQ(loop.decide(2, {grant_count(1, 2)}), Lines{"start 1 gen 1 on 1:11"});
  loop.on(3, NodeChanged{node_id(0), NodeState::up});
  EXPECT_EQ(loop.scheduler.state().free.free_of(GpuType()), 2) << "its GPUs are back";
  EXPECT_EQ(loop.decide(3, {grant_count(0, 2), grant_count(1, 2)}), Lines{"start 0 gen 3 on 0:11"});
}

TEST(Scheduler, ANodeThatLeavesWhileAJobMovesThereLeavesOthersTheirPromises) {
  Loop loop("2x2");
  loop.on(0, submitted(0, rigid_spec(2)));
  loop.on(0, submitted(1, rigid_spec(1)));
  loop.on(0, submitted(2, rigid_spec(1)));
  loop.decide(0, {grant_exact(0, gpus_on({{0, 0b11}})), grant_exact(2, gpus_on({{1, 0b01}}))});
  // Job 0 moves one GPU to node 1, where job 2 must release one. Job 1 waits for the GPU of job 0.
  loop.decide(
      1, {grant_exact(0, gpus_on({{0, 0b01}, {1, 0b01}})), grant_exact(1, gpus_on({{0, 0b10}}))});
  loop.on(2, NodeChanged{node_id(1), NodeState::down});
  EXPECT_EQ(loop.job(0).target, gpus_on({{0, 0b01}}));
  EXPECT_EQ(loop.job(1).target, gpus_on({{0, 0b10}}));
  EXPECT_TRUE(loop.scheduler.decision_due());
  EXPECT_EQ(loop.released(3, 0, gpus_on({{0, 0b10}})), Lines{"start 1 gen 1 on 0:10"});
}

TEST(Scheduler, AJobLeavesGpusThatOthersUseAndComesBack) {
  Loop loop("1x4");
  loop.on(0, submitted(0, elastic_spec(1, 4)));
  loop.decide(0, {grant_count(0, 4)});
  loop.running(0, 0);
  EXPECT_EQ(loop.on(1, Reserved{node_id(0), 0b1010, "a job of Slurm"}),
            Lines{"resize 0 gen 2 on 0:101"});
  EXPECT_TRUE(loop.scheduler.decision_due());
  EXPECT_EQ(loop.scheduler.snapshot().cluster.usable(), 2);
  EXPECT_EQ(loop.released(2, 0, gpus_on({{0, 0b1010}})), Lines{});
  EXPECT_EQ(loop.scheduler.state().free.free_of(GpuType()), 0)
      << "they wait until others return them";
  EXPECT_EQ(loop.decide(2, {grant_count(0, 4)}), Lines{});
  EXPECT_NE(loop.reaction.refused, "");
  EXPECT_EQ(loop.on(3, Reserved{node_id(0), 0b1000}), Lines{});
  EXPECT_EQ(loop.scheduler.state().free.free_of(GpuType()), 1);
  EXPECT_EQ(loop.decide(3, {grant_count(0, 3)}), Lines{"resize 0 gen 3 on 0:111"});
}

TEST(Scheduler, AJobThatCannotUseTheRestStopsAndIsDecidedAgain) {
  Loop loop("2x4");
  loop.on(0, submitted(0, rigid_spec(4)));
  loop.decide(0, {grant_count(0, 4)});
  loop.running(0, 0);
  EXPECT_EQ(loop.on(1, Reserved{node_id(0), 0b1}), Lines{"stop 0 gen 2"});
  EXPECT_EQ(loop.decide(1, {grant_count(0, 4)}), Lines{});
  EXPECT_EQ(loop.released(2, 0, gpus_on({{0, 0b1111}}), true),
            Lines{"start 0 gen 3 on 0:1110 1:1"});
}

TEST(Scheduler, AJobThatOnlyWaitsForReservedGpusIsDecidedAgain) {
  Loop loop("1x4");
  loop.on(0, submitted(0, elastic_spec(1, 4)));
  loop.on(0, submitted(1, elastic_spec(1, 4)));
  loop.decide(0, {grant_count(0, 4)});
  loop.running(0, 0);
  loop.decide(1, {grant_count(1, 4)});
  EXPECT_EQ(loop.on(2, Reserved{node_id(0), 0b1}), Lines{});
  EXPECT_TRUE(loop.job(1).target.empty());
  EXPECT_EQ(loop.released(3, 0, gpus_on({{0, 0b1111}}), true), Lines{});
  EXPECT_EQ(loop.decide(3, {grant_count(1, 3)}), Lines{"start 1 gen 1 on 0:1110"});
}

TEST(Scheduler, ADecisionThatIsTooLateCannotGiveOutReservedGpus) {
  Loop loop("1x4");
  loop.on(0, submitted(0, elastic_spec(1, 4)));
  Decision decision;
  decision.as_of = loop.scheduler.ask(time_at(0)).as_of;
  decision.run = {grant_exact(0, gpus_on({{0, 0b11}}))};
  loop.on(1, Reserved{node_id(0), 0b10});
  EXPECT_EQ(loop.on(2, Decided{decision}), Lines{});
  EXPECT_EQ(loop.reaction.refused, "job 0: names a GPU that others use");
  EXPECT_TRUE(loop.scheduler.decision_due());
}

TEST(Scheduler, ANodeJoinsWhileJobsRun) {
  Loop loop("1x2");
  loop.on(0, submitted(0, elastic_spec(1, 8)));
  loop.decide(0, {grant_count(0, 2)});
  loop.running(0, 0);
  EXPECT_EQ(loop.on(1, NodeAdded{node_id(1), {"tux", "gpu", 4, {{"rack", "3"}}}}), Lines{});
  EXPECT_TRUE(loop.scheduler.decision_due());
  EXPECT_EQ(loop.decide(1, {grant_count(0, 6)}), Lines{"resize 0 gen 2 on 0:11 1:1111"});
  loop.on(2, NodeAdded{node_id(2), {"fast", "h100", 8}});
  EXPECT_EQ(loop.scheduler.snapshot().cluster.types(), 2);
  loop.on(2, submitted(1, elastic_spec(1, 8)));
  EXPECT_EQ(loop.decide(2, {grant_count(0, 6), {job_id(1), Count{gpu_type(1), 8}}}),
            Lines{"start 1 gen 1 on 2:11111111"});
}

TEST(Scheduler, ACancelledJobLeavesWhenItHasLetGo) {
  Loop loop("1x4");
  loop.on(0, submitted(0, elastic_spec(1, 4)));
  loop.on(0, submitted(1, elastic_spec(1, 4)));
  loop.decide(0, {grant_count(0, 4)});
  loop.running(0, 0);
  EXPECT_EQ(loop.on(1, Cancelled{job_id(1)}), Lines{});
  EXPECT_TRUE(loop.gone(1)) << "it had nothing";
  EXPECT_EQ(loop.on(1, Cancelled{job_id(0)}), Lines{"stop 0 gen 2"});
  EXPECT_EQ(loop.on(1, Cancelled{job_id(0)}), Lines{}) << "once is enough";
  EXPECT_TRUE(loop.job(0).leaving);
  EXPECT_TRUE(loop.scheduler.decision_due());
  loop.on(2, submitted(2, elastic_spec(1, 4)));
  EXPECT_EQ(loop.decide(2, {grant_count(2, 4)}), Lines{}) << "the GPUs are not there yet";
  EXPECT_EQ(loop.released(3, 0, gpus_on({{0, 0b1111}}), true), Lines{"start 2 gen 1 on 0:1111"});
  EXPECT_TRUE(loop.gone(0));
  EXPECT_EQ(loop.on(4, Cancelled{job_id(0)}), Lines{}) << "of a job that is gone";
}

TEST(Scheduler, ACancelledJobThatFailsOrFinishesIsGone) {
  Loop loop("1x4");
  loop.on(0, submitted(0, elastic_spec(1, 4)));
  loop.on(0, submitted(1, elastic_spec(1, 4)));
  loop.decide(0, {grant_count(0, 2), grant_count(1, 2)});
  loop.on(1, Cancelled{job_id(0)});
  loop.on(1, Cancelled{job_id(1)});
  loop.failed(2, 0);
  loop.finished(2, 1);
  EXPECT_TRUE(loop.gone(0) && loop.gone(1));
  EXPECT_EQ(loop.scheduler.snapshot().away, 0U);
  EXPECT_EQ(loop.scheduler.state().free.free_of(gpu_type(0)), 4);
}

TEST(Scheduler, AJobOnHoldPausesAndComesBack) {
  Loop loop("1x4");
  loop.on(0, submitted(0, elastic_spec(1, 4)));
  loop.decide(0, {grant_count(0, 2)});
  loop.running(0, 0);
  EXPECT_EQ(loop.on(1, HoldChanged{job_id(0), true}), Lines{"stop 0 gen 2"});
  EXPECT_EQ(loop.decide(1, {grant_count(0, 2)}), Lines{}) << "whatever the policy thinks";
  EXPECT_TRUE(loop.reaction.refused.empty());
  loop.released(2, 0, gpus_on({{0, 0b11}}), true);
  EXPECT_EQ(loop.job(0).phase, Phase::pending);
  EXPECT_EQ(loop.on(3, HoldChanged{job_id(0), false}), Lines{});
  EXPECT_TRUE(loop.scheduler.decision_due());
  EXPECT_EQ(loop.decide(3, {grant_count(0, 2)}), Lines{"start 0 gen 3 on 0:11"});
  EXPECT_EQ(loop.job(0).restarts, 1);
}

TEST(Scheduler, NewLimitsCountFromTheNextDecision) {
  Loop loop("1x4");
  loop.on(0, submitted(0, elastic_spec(1, 2)));
  loop.decide(0, {grant_count(0, 2)});
  EXPECT_EQ(loop.on(1, Limited{job_id(0), {1, 4, {}}}), Lines{});
  EXPECT_TRUE(loop.scheduler.decision_due());
  EXPECT_EQ(loop.decide(1, {grant_count(0, 4)}), Lines{"resize 0 gen 2 on 0:1111"});
}

// The program uses only one of its GPUs: that one stays, whatever the placement would have dropped.
TEST(Scheduler, AJobThatKeepsSomeOfItsGpusLetsGoOfTheRestAtOnce) {
  Loop loop("2x4");
  loop.on(0, submitted(0, elastic_spec(4, 8)));
  loop.decide(0, {grant_count(0, 8)});
  EXPECT_EQ(loop.on(1, Limited{job_id(0), {1, 1, {}}, gpus_on({{1, 0b10}})}),
            Lines{"resize 0 gen 2 on 1:10"});
  EXPECT_TRUE(loop.scheduler.decision_due());
  EXPECT_EQ(loop.job(0).spec->requested, 1);
  EXPECT_EQ(loop.decide(1, {grant_count(0, 1)}), Lines{}) << "it has what it may have";
  loop.on(1, submitted(1, elastic_spec(1, 8)));
  EXPECT_EQ(loop.decide(1, {grant_count(0, 1), grant_count(1, 7)}), Lines{})
      << "they are free when the engine says so";
  EXPECT_EQ(loop.released(2, 0, gpus_on({{0, 0b1111}, {1, 0b1101}}), false),
            Lines{"start 1 gen 1 on 0:1111 1:1101"});
}

std::shared_ptr<JobSpec> with_cooldown(std::shared_ptr<JobSpec> spec, double s) {
  spec->cooldown = from_seconds(s);
  return spec;
}

TEST(Scheduler, AJobThatCoolsDownIsNotGrownAndAskedAboutWhenItHas) {
  Loop loop("1x8");
  loop.on(0, submitted(0, with_cooldown(elastic_spec(1, 8), 10)));
  loop.decide(0, {grant_count(0, 1)});
  loop.running(0, 0);
  EXPECT_EQ(loop.decide(1, {grant_count(0, 2)}), Lines{"resize 0 gen 2 on 0:11"})
      << "a start is no resize";
  loop.running(2, 0);
  EXPECT_EQ(loop.decide(3, {grant_count(0, 4)}), Lines{});
  EXPECT_EQ(loop.scheduler.state().again_at, time_at(11));
  EXPECT_EQ(loop.decide(4, {{job_id(0), Spread{{{node_id(0), 3}}}}}), Lines{});
  EXPECT_EQ(loop.decide(5, {{job_id(0), Exact{gpus_on({{0, 0b111}})}}}), Lines{});
  EXPECT_EQ(loop.job(0).target, gpus_on({{0, 0b11}}));
  EXPECT_EQ(loop.decide(11, {grant_count(0, 4)}), Lines{"resize 0 gen 3 on 0:1111"});
  EXPECT_EQ(loop.scheduler.state().again_at, std::nullopt);
}

TEST(Scheduler, ACooldownYieldsToOthersAndToPromises) {
  Loop loop("1x8");
  loop.on(0, submitted(0, with_cooldown(elastic_spec(1, 8), 100)));
  loop.on(0, submitted(1, rigid_spec(6)));
  loop.decide(0, {grant_count(0, 4)});
  loop.running(0, 0);
  loop.decide(1, {grant_count(0, 8)});
  loop.running(1, 0);
  EXPECT_EQ(loop.decide(2, {grant_count(0, 2), grant_count(1, 6)}),
            Lines{"resize 0 gen 3 on 0:11"});
  loop.released(3, 0, gpus_on({{0, 0b11111100}}));
  loop.running(3, 0);
  loop.finished(4, 1);
  Decision decision;
  decision.as_of = loop.scheduler.ask(time_at(5)).as_of;
  decision.run = {grant_count(0, 3)};
  decision.promise = {{job_id(0), time_at(50), {{time_at(5), 3}}}};
  EXPECT_EQ(loop.on(5, Decided{decision}), Lines{"resize 0 gen 4 on 0:111"});
}

TEST(Scheduler, ACooldownYieldsToADeadline) {
  Loop loop("1x8");
  auto spec = with_cooldown(elastic_spec(1, 8), 100);
  spec->deadline = time_at(50);
  loop.on(0, submitted(0, spec));
  loop.decide(0, {grant_count(0, 1)});
  loop.running(0, 0);
  loop.decide(1, {grant_count(0, 2)});
  loop.running(1, 0);
  EXPECT_EQ(loop.decide(2, {grant_count(0, 4)}), Lines{"resize 0 gen 3 on 0:1111"});
}

TEST(Scheduler, ACooldownDoesNotKeepACountThatIsNoLongerLegal) {
  Loop loop("1x8");
  loop.on(0, submitted(0, with_cooldown(elastic_spec(1, 8), 100)));
  loop.decide(0, {grant_count(0, 1)});
  loop.running(0, 0);
  loop.decide(1, {grant_count(0, 2)});
  loop.running(1, 0);
  loop.on(2, Limited{job_id(0), {4, 8, {}}});
  EXPECT_EQ(loop.decide(2, {grant_count(0, 4)}), Lines{"resize 0 gen 3 on 0:1111"});
}

TEST(Scheduler, ANodeOfWhichNothingIsKnownKeepsItsJobs) {
  Loop loop("2x4");
  loop.on(0, submitted(0, elastic_spec(1, 8)));
  loop.decide(0, {grant_count(0, 6)});
  loop.running(0, 0);
  loop.on(1, NodeChanged{node_id(0), NodeState::unknown});
  EXPECT_EQ(loop.decide(1, {}), Lines{}) << "who forgets it does not stop it";
  EXPECT_EQ(loop.job(0).target.gpus(), 6);
  loop.on(2, submitted(1, elastic_spec(1, 8)));
  EXPECT_EQ(loop.decide(2, {grant_count(1, 2)}), Lines{"start 1 gen 1 on 1:1100"});
  loop.on(3, NodeChanged{node_id(0), NodeState::up});
  EXPECT_EQ(loop.decide(3, {grant_count(1, 2)}), Lines{"stop 0 gen 2"}) << "now it may";
}

TEST(Scheduler, AttainedServiceIsExact) {
  Loop loop("1x4");
  loop.on(0, submitted(0, elastic_spec(1, 4)));
  loop.decide(1, {grant_count(0, 4)});
  loop.decide(3.000001, {grant_count(0, 1)});
  EXPECT_EQ(loop.job(0).attained(time_at(4)), GpuTime::of(4, from_seconds(3)))
      << "held till released";
  loop.released(5, 0, gpus_on({{0, 0b1110}}));
  loop.decide(10, {});
  loop.released(10, 0, gpus_on({{0, 0b0001}}), true);
  EXPECT_EQ(loop.job(0).attained(time_at(99)), GpuTime::from_gpu_seconds(4 * 4 + 5));
  EXPECT_EQ(loop.job(0).ran(time_at(99)), from_seconds(9));
  EXPECT_EQ(loop.job(0).last_ran, time_at(10));
}

TEST(Scheduler, APolicyIsToldOnceOfEachChange) {
  using Ids = std::vector<JobId>;
  Loop loop("1x4");
  loop.on(0, submitted(0, rigid_spec(1)));
  loop.on(0, submitted(1, rigid_spec(1)));
  const Sequence first = loop.scheduler.ask(time_at(0)).as_of;
  EXPECT_EQ(loop.scheduler.snapshot().changed, (Ids{job_id(0), job_id(1)}));
  EXPECT_EQ(loop.scheduler.snapshot().changed_since, Sequence());
  loop.on(1, submitted(2, rigid_spec(1)));  // while the policy decides
  EXPECT_TRUE(loop.scheduler.decision_due());
  Decision decision;
  decision.as_of = first;
  decision.run = {grant_count(0, 1)};
  EXPECT_EQ(loop.on(2, Decided{decision}), Lines{"start 0 gen 1 on 0:1"});
  EXPECT_TRUE(loop.scheduler.decision_due()) << "2 has not been looked at";
  EXPECT_EQ(loop.scheduler.ask(time_at(2)).changed, Ids{job_id(2)});
  EXPECT_EQ(loop.scheduler.snapshot().changed_since, first) << "the snapshot the policy saw";
  decision.as_of = loop.scheduler.snapshot().as_of;
  decision.run = {grant_count(9, 1)};  // refused, but the policy has seen the changes
  loop.on(3, Decided{decision});
  EXPECT_NE(loop.reaction.refused, "");
  loop.finished(4, 0);
  loop.failed(4, 1);
  EXPECT_EQ(loop.scheduler.ask(time_at(4)).changed, (Ids{job_id(0), job_id(1)}));
  EXPECT_EQ(loop.scheduler.snapshot().changed_since, decision.as_of);
}

TEST(Scheduler, ALateDecisionForgetsJobsThatHaveEndedMeanwhile) {
  Loop loop("1x4");
  for (std::size_t i = 0; i < 3; ++i) loop.on(0, submitted(i, rigid_spec(1)));
  loop.decide(0, {grant_count(0, 1)});
  Decision decision;
  decision.as_of = loop.scheduler.ask(time_at(1)).as_of;
  decision.run = {grant_count(0, 1), grant_count(1, 1)};
  loop.finished(2, 0);
  EXPECT_EQ(loop.on(3, Decided{decision}), Lines{"start 1 gen 1 on 0:1"});
  EXPECT_EQ(loop.reaction.refused, "");
}

TEST(Scheduler, AWakeThatPassedWhileThePolicyThoughtIsDueAtOnce) {
  Loop loop("1x4");
  loop.on(0, submitted(0, rigid_spec(1)));
  Decision decision;
  decision.as_of = loop.scheduler.ask(time_at(1)).as_of;
  decision.run = {grant_count(0, 1)};
  decision.again_at = time_at(2);
  EXPECT_EQ(loop.on(5, Decided{decision}), Lines{"start 0 gen 1 on 0:1"}) << loop.reaction.refused;
  EXPECT_TRUE(loop.scheduler.decision_due());
  EXPECT_EQ(loop.scheduler.state().again_at, std::nullopt);
}

TEST(Scheduler, ABetterEstimateIsAReasonToDecideAgain) {
  Loop loop("1x4");
  loop.on(0, submitted(0, elastic_spec(1, 4)));
  loop.decide(0, {grant_count(0, 2)});
  ASSERT_FALSE(loop.scheduler.decision_due());
  const auto speed = std::make_shared<const ConstantSpeed>();
  EXPECT_EQ(loop.on(1, Estimated{job_id(0), speed}), Lines{});
  EXPECT_EQ(loop.job(0).speed, speed);
  EXPECT_TRUE(loop.scheduler.decision_due());
  EXPECT_EQ(loop.scheduler.ask(time_at(1)).changed, std::vector<JobId>{job_id(0)});
  EXPECT_EQ(loop.on(2, Estimated{job_id(7), speed}), Lines{}) << "of a job that has ended";
}

TEST(SchedulerDeathTest, TimeNeverRunsBackwards) {
  Loop loop("1x1");
  loop.on(5, Wake{});
  EXPECT_TRUE(loop.scheduler.decision_due());
  EXPECT_DEATH(loop.on(4, Wake{}), "CHECK");
}

// ---- properties, with slow machines and facts in any order ----

// Machines that know which job really uses which GPU. Commands arrive at once. Facts wait in one
// queue per job. They are delivered in any order between jobs, and releases in pieces.
class SlowMachines {
 public:
  struct Job {
    Generation generation;
    GpuSet uses;
    std::deque<Event> facts;
    bool ended = false;
    bool stopping = false;
  };

  void carry_out(const std::vector<Command>& commands) {
    for (const auto& command : commands) {
      if (const auto* start = std::get_if<Start>(&command))
        use(start->job, start->generation, start->gpus, false);
      if (const auto* resize = std::get_if<Resize>(&command))
        use(resize->job, resize->generation, resize->gpus, true);
      if (const auto* stop = std::get_if<Stop>(&command)) halt(*stop);
    }
  }

  [[nodiscard]] std::vector<JobId> with_facts() const {
    std::vector<JobId> ids;
    for (const auto& [id, job] : jobs) {
      if (!job.facts.empty()) ids.push_back(id);
    }
    return ids;
  }

  // What the machines report about a GPU is true from that moment on.
  Event deliver(JobId id) {
    Job& job = jobs[id];
    Event fact = std::move(job.facts.front());
    job.facts.pop_front();
    if (const auto* released = std::get_if<Released>(&fact)) {
      for (const auto& gpu : gpu_set(released->gpus)) job.uses.erase(gpu);
    } else if (!std::holds_alternative<Running>(fact)) {
      job.uses.clear();
    }
    return fact;
  }

  void finish(JobId id) { end(id, Finished{id, jobs[id].generation}, true); }
  void fail(JobId id) { end(id, Failed{id, jobs[id].generation, {}}, false); }

  std::map<JobId, Job> jobs;
  std::set<JobId> broken;  // failed, and the scheduler has not answered yet

 private:
  void use(JobId id, Generation generation, const Allocation& gpus, bool resize) {
    Job& job = jobs[id];
    ASSERT_GT(generation, job.generation) << "each command has a generation of its own";
    job.generation = generation;
    if (job.ended) return;
    if (resize && broken.contains(id)) {
      job.facts.emplace_back(Failed{id, generation, {}});
      return;
    }
    broken.erase(id);
    job.stopping = false;
    const GpuSet now = gpu_set(gpus);
    for (const auto& gpu : now) {
      const auto others = std::count_if(jobs.begin(), jobs.end(), [&](const auto& entry) {
        return entry.first != id && entry.second.uses.contains(gpu);
      });
      ASSERT_LE(others, 1) << "a GPU in three hands";
    }
    Allocation rest(gpus.type());
    for (const auto& [node, bit] : job.uses) {
      if (!now.contains({node, bit})) rest.add({node_id(node), std::uint64_t{1} << bit});
    }
    job.uses.insert(now.begin(), now.end());
    release_in_pieces(id, rest, false);
    job.facts.emplace_back(Running{id, generation, {}});
  }

  void halt(const Stop& stop) {
    Job& job = jobs[stop.job];
    ASSERT_GT(stop.generation, job.generation);
    job.generation = stop.generation;
    if (job.ended) return;
    Allocation rest;
    for (const auto& [node, bit] : job.uses) rest.add({node_id(node), std::uint64_t{1} << bit});
    if (broken.erase(stop.job) > 0) rest = Allocation();
    job.stopping = true;
    release_in_pieces(stop.job, rest, true);
  }

  void release_in_pieces(JobId id, Allocation rest, bool stopped) {
    Job& job = jobs[id];
    while (rest.nodes() > 1) {
      const Slice slice = rest.slices().back();
      rest.remove(slice);
      Allocation piece(rest.type());
      piece.add(slice);
      job.facts.emplace_back(Released{id, job.generation, piece, {}, false});
    }
    if (stopped || !rest.empty())
      job.facts.emplace_back(Released{id, job.generation, rest, {}, stopped});
  }

  void end(JobId id, Event fact, bool ended) {
    Job& job = jobs[id];
    job.ended = ended;
    if (!ended) broken.insert(id);
    job.facts.push_back(std::move(fact));
  }
};

class World {
 public:
  explicit World(std::uint64_t seed)
      : random_(seed),
        placement_(static_cast<Placement>(seed % 3)),
        scheduler_(cluster_of("2x4:a,2x3:a,1x4:b"), placement_),
        follower_(cluster_of("2x4:a,2x3:a,1x4:b"), static_cast<Placement>((seed + 1) % 3)) {}

  void step() {
    const double what = random_.uniform();
    now_ += Duration(static_cast<std::int64_t>(random_.below(3)));
    if (what < 0.12) {
      submit();
    } else if (what < 0.40) {
      ask_and_answer();
    } else if (what < 0.86) {
      deliver_any();
    } else if (what < 0.91) {
      end_any();
    } else if (what < 0.94) {
      wish_any();
    } else if (what < 0.97) {
      change_machines();
    } else {
      change_node();
    }
    check();
  }

  void settle() {
    answer_if_asked();
    while (deliver_any()) check();
    for (const JobView& job : scheduler_.snapshot().jobs) {
      ASSERT_EQ(job.held, job.target) << "job " << job.id.value() << " reaches its target";
      ASSERT_EQ(job.release_due, 0);
      ASSERT_EQ(job.phase, job.held.empty() ? Phase::pending : Phase::running);
      GpuSet uses = machines_.jobs[job.id].uses;
      ASSERT_EQ(uses, gpu_set(job.held));
      for (const JobView& second : scheduler_.snapshot().jobs) {
        if (second.id == job.id || second.shares_with == job.id) continue;
        ASSERT_TRUE(common(second.held, job.held).empty()) << "only a pair shares GPUs";
      }
    }
  }

  Lines log;
  int refused = 0, carried_out = 0, rejected = 0, late = 0, shared = 0, wishes = 0;
  int reservations = 0;

 private:
  struct Attained {
    GpuTime sum;
    int held = 0;
    Time since = kStart;
  };

  // The follower gets the result of each decision, so its own placement does not matter.
  void follow(Event event, const Reaction& reaction) {
    if (auto* decided = std::get_if<Decided>(&event))
      decided->carried = Carried{reaction.changes, reaction.refused};
    Reaction again;
    follower_.on(now_, std::move(event), again);
    ASSERT_EQ(again.commands.size(), reaction.commands.size());
    for (std::size_t i = 0; i < again.commands.size(); ++i)
      ASSERT_EQ(text_of(again.commands[i]), text_of(reaction.commands[i]));
    ASSERT_EQ(again.refused, reaction.refused);
    ASSERT_EQ(follower_.decision_due(), scheduler_.decision_due());
    ASSERT_EQ(follower_.snapshot().changed, scheduler_.snapshot().changed);
    ASSERT_EQ(follower_.snapshot().away, scheduler_.snapshot().away);
    for (const Node& node : scheduler_.snapshot().cluster.nodes()) {
      const NodeId id =
          node_id(static_cast<std::size_t>(&node - scheduler_.snapshot().cluster.nodes().data()));
      ASSERT_EQ(follower_.state().free.offered(id), scheduler_.state().free.offered(id));
    }
  }

  void post(Event event) {
    Reaction reaction;
    const Event copy = event;
    scheduler_.on(now_, std::move(event), reaction);
    follow(copy, reaction);
    for (const auto& command : reaction.commands) log.push_back(text_of(command));
    if (!reaction.refused.empty()) log.push_back(reaction.refused);
    refused += reaction.refused.empty() ? 0 : 1;
    rejected += static_cast<int>(reaction.rejected.size());
    machines_.carry_out(reaction.commands);
    for (auto& [id, service] : attained_) {
      const JobView* job = scheduler_.snapshot().jobs.find(id);
      service.sum += GpuTime::of(service.held, now_ - service.since);
      service.since = now_;
      service.held = job == nullptr ? 0 : job->held.gpus();
    }
  }

  void submit() {
    if (scheduler_.snapshot().jobs.size() >= 8) return;
    auto spec = random_.uniform() < 0.5 ? rigid_spec(1 + static_cast<int>(random_.below(5)))
                                        : elastic_spec(1, 6);
    if (random_.uniform() < 0.2) spec = unpreemptible(spec);
    if (random_.uniform() < 0.2) spec = with_cooldown(spec, 5 * random_.uniform());
    attained_[job_id(next_)].since = now_;
    post(submitted(next_++, spec));
  }

  // Asks the policy, or posts the answer to an earlier question.
  void ask_and_answer() {
    if (answer_if_asked()) return;
    const Snapshot& snapshot = scheduler_.ask(now_);
    static_cast<void>(follower_.ask(now_));
    follow_changes(snapshot);
    asked_ = random_decision(snapshot);
    if (random_.uniform() < 0.6) answer_if_asked();
  }

  bool answer_if_asked() {
    if (!asked_) return false;
    Decision decision = *std::exchange(asked_, std::nullopt);
    late += decision.as_of != scheduler_.snapshot().as_of ? 1 : 0;
    const std::set<JobId> named = names(decision);
    std::map<JobId, Allocation> before;
    for (const JobView& job : scheduler_.snapshot().jobs) before[job.id] = job.target;
    std::set<JobId> keep;
    for (const JobView& job : scheduler_.snapshot().jobs) {
      if (job.stays() || out_of_reach(job, scheduler_.snapshot().cluster)) keep.insert(job.id);
    }
    const int refused_before = refused;
    post(Decided{std::move(decision)});
    for (const auto& [id, target] : before) {
      const JobView* job = scheduler_.snapshot().jobs.find(id);
      if (job != nullptr && job->stays_away()) {
        EXPECT_TRUE(job->target.empty()) << "its owner wants no GPUs for it";
        continue;
      }
      if (refused > refused_before || (keep.contains(id) && !named.contains(id))) {
        EXPECT_NE(job, nullptr);
        EXPECT_EQ(text_of(job->target), text_of(target)) << "kept";
      } else if (job != nullptr && !named.contains(id)) {
        EXPECT_TRUE(job->target.empty()) << "a job not named is paused";
      }
    }
    carried_out += refused == refused_before ? 1 : 0;
    return true;
  }

  static std::set<JobId> names(const Decision& decision) {
    std::set<JobId> named;
    for (const auto& grant : decision.run) named.insert(grant.job);
    return named;
  }

  // A policy that only uses the changes knows the same jobs as one that looks at all jobs.
  void follow_changes(const Snapshot& snapshot) {
    if (snapshot.changed_since != seen_) known_.clear();
    const bool rebuild = snapshot.changed_since != seen_;
    if (rebuild) {
      for (const JobView& job : snapshot.jobs) known_.insert(job.id);
    }
    for (const JobId id : snapshot.changed) {
      snapshot.jobs.find(id) != nullptr ? static_cast<void>(known_.insert(id))
                                        : static_cast<void>(known_.erase(id));
    }
    std::set<JobId> there;
    for (const JobView& job : snapshot.jobs) there.insert(job.id);
    EXPECT_EQ(known_, there);
    EXPECT_TRUE(!rebuild || seen_ == Sequence()) << "it need never rebuild";
    seen_ = snapshot.as_of;
  }

  Decision random_decision(const Snapshot& snapshot) {
    Decision decision;
    decision.as_of = snapshot.as_of;
    for (const JobView& job : snapshot.jobs) {
      if (!job.accepted() && random_.uniform() < 0.06) {
        decision.reject.push_back({job.id, "no", std::nullopt});
        continue;
      }
      if (random_.uniform() < 0.25) continue;
      const auto at = static_cast<std::ptrdiff_t>(random_.below(decision.run.size() + 1));
      Want want = random_want(job, snapshot.cluster);
      if (random_.uniform() < 0.3 && !decision.run.empty())
        want = Beside{decision.run[random_.below(decision.run.size())].job};
      decision.run.insert(decision.run.begin() + at, {job.id, std::move(want)});
      if (!validate(decision, snapshot)) decision.run.erase(decision.run.begin() + at);
    }
    if (random_.uniform() < 0.2) decision.again_at = now_ + Duration(2);
    return decision;
  }

  Want random_want(const JobView& job, const Cluster& cluster) {
    const int gpus =
        job.spec->limits.min + static_cast<int>(random_.below(static_cast<std::uint64_t>(
                                   job.spec->limits.max - job.spec->limits.min + 1)));
    const GpuType type = gpu_type(random_.uniform() < 0.8 ? 0 : 1);
    if (random_.uniform() < 0.6) return Count{type, gpus};
    Allocation exact(type);
    for (int tries = 0; tries < 50 && exact.gpus() < gpus; ++tries) {
      const std::size_t node = random_.below(cluster.nodes().size());
      const Node& there = cluster.node(node_id(node));
      if (there.type != type) continue;
      exact.add({node_id(node),
                 std::uint64_t{1} << random_.below(static_cast<std::uint64_t>(there.gpus))});
    }
    if (random_.uniform() < 0.5) return Exact{exact};
    Spread spread;
    for (const auto& slice : exact.slices()) spread.gpus.emplace_back(slice.node, slice.gpus());
    return spread;
  }

  bool deliver_any() {
    const auto ids = machines_.with_facts();
    if (ids.empty()) return false;
    post(machines_.deliver(ids[random_.below(ids.size())]));
    return true;
  }

  std::vector<JobId> at_work() const {
    std::vector<JobId> ids;
    for (const auto& [id, job] : machines_.jobs) {
      const bool idle = job.ended || job.stopping || job.uses.empty();
      if (!idle && !machines_.broken.contains(id)) ids.push_back(id);
    }
    return ids;
  }

  void end_any() {
    const auto ids = at_work();
    if (ids.empty()) return;
    const JobId id = ids[random_.below(ids.size())];
    random_.uniform() < 0.7 ? machines_.finish(id) : machines_.fail(id);
  }

  // Owners cancel, hold, release and resize their jobs.
  void wish_any() {
    const auto& jobs = scheduler_.snapshot().jobs;
    if (jobs.empty()) return;
    auto job = jobs.begin();
    for (std::uint64_t skip = random_.below(jobs.size()); skip > 0; --skip) ++job;
    const JobId id = job->id;
    const double what = random_.uniform();
    ++wishes;
    if (what < 0.25) return post(Cancelled{id});
    if (what < 0.85) return post(HoldChanged{id, !job->on_hold});
    post(Limited{id, {1, 1 + static_cast<int>(random_.below(6)), {}}});
  }

  void change_node() {
    const NodeId node = node_id(random_.below(scheduler_.snapshot().cluster.nodes().size()));
    const bool is_up = scheduler_.snapshot().cluster.node(node).state == NodeState::up;
    if (is_up && random_.uniform() < 0.6) return;
    const NodeState states[] = {NodeState::down, NodeState::draining, NodeState::unknown};
    const NodeState state = is_up ? states[random_.below(3)] : NodeState::up;
    if (state == NodeState::down) {
      for (const JobId id : at_work()) {
        const GpuSet& uses = machines_.jobs[id].uses;
        const auto first = uses.lower_bound({node.index(), 0});
        if (first != uses.end() && first->first == node.index()) machines_.fail(id);
      }
    }
    post(NodeChanged{node, state});
  }

  // Others take and return GPUs, and nodes join.
  void change_machines() {
    const auto& cluster = scheduler_.snapshot().cluster;
    const auto nodes = cluster.nodes().size();
    if (nodes < 8 && random_.uniform() < 0.2) {
      const std::string type = random_.uniform() < 0.7 ? "a" : "new";
      return post(NodeAdded{node_id(nodes), {"late" + std::to_string(nodes), type, 3}});
    }
    const NodeId node = node_id(random_.below(nodes));
    const std::uint64_t some = random_.next() & random_.next() & cluster.node(node).all();
    post(Reserved{node, random_.uniform() < 0.5 ? 0 : some, "others"});
    ++reservations;
  }

  void check() {
    const State& state = scheduler_.state();
    const Snapshot& snapshot = state.snapshot;
    GpuSet held, twice, targets;
    std::size_t away = 0;
    for (const JobView& job : snapshot.jobs) {
      away += job.stays_away() ? 1 : 0;
      ASSERT_FALSE(job.leaving && job.held.empty()) << "it should have left";
    }
    ASSERT_EQ(snapshot.away, away);
    std::map<std::pair<std::size_t, int>, int> users;
    for (const JobView& job : snapshot.jobs) {
      const GpuSet holds = gpu_set(job.held);
      const JobView* other = job.shares_with ? snapshot.jobs.find(*job.shares_with) : nullptr;
      if (job.shares_with) {
        ASSERT_NE(other, nullptr);
        ASSERT_EQ(other->shares_with, job.id);
        shared += other->held == job.held && !job.held.empty() ? 1 : 0;
      }
      for (const auto& gpu : holds) {
        if (held.insert(gpu).second) continue;
        ASSERT_TRUE(twice.insert(gpu).second) << "held by three";
      }
      for (const auto& gpu : gpu_set(job.target)) {
        if (targets.insert(gpu).second) continue;
        ASSERT_NE(other, nullptr) << "in the targets of two that share nothing";
        ASSERT_TRUE(gpu_set(other->target).contains(gpu));
      }
      for (const auto& gpu : machines_.jobs[job.id].uses) {
        ASSERT_TRUE(holds.contains(gpu))
            << "job " << job.id.value() << " uses what it does not hold";
        ASSERT_LE(++users[gpu], 2);
      }
      ASSERT_EQ(job.attained(now_),
                attained_[job.id].sum +
                    GpuTime::of(attained_[job.id].held, now_ - attained_[job.id].since));
      ASSERT_GE(job.release_due, 0);
    }
    for (std::size_t n = 0; n < snapshot.cluster.nodes().size(); ++n) {
      const Node& node = snapshot.cluster.node(node_id(n));
      for (int bit = 0; bit < node.gpus; ++bit) {
        const std::uint64_t mask = std::uint64_t{1} << bit;
        ASSERT_EQ((state.busy.used(node_id(n)) & mask) != 0, held.contains({n, bit}));
        ASSERT_EQ((state.busy.shared(node_id(n)) & mask) != 0, twice.contains({n, bit}));
        const bool reserved = (node.reserved & mask) != 0;
        ASSERT_FALSE(reserved && targets.contains({n, bit})) << "a job is to have what others use";
        const bool free = node.state == NodeState::up && !targets.contains({n, bit}) && !reserved;
        ASSERT_EQ(state.free.is_free({node_id(n), mask}), free);
      }
    }
  }

  Random random_;
  Placement placement_;
  Scheduler scheduler_;
  Scheduler follower_;
  SlowMachines machines_;
  Time now_ = kStart;
  std::size_t next_ = 0;
  std::optional<Decision> asked_;
  Sequence seen_;
  std::set<JobId> known_;
  std::map<JobId, Attained> attained_;
};

TEST(SchedulerProperties, NoGpuIsEverInTwoHandsAndEveryTargetIsReached) {
  int carried_out = 0, refused = 0, rejected = 0, late = 0, shared = 0, wishes = 0;
  int reservations = 0;
  for (std::uint64_t seed = 0; seed < tries(200); ++seed) {
    SCOPED_TRACE(seed);
    World world(seed);
    for (int step = 0; step < 300; ++step) {
      world.step();
      ASSERT_FALSE(::testing::Test::HasFailure()) << "at step " << step;
      if (step % 75 != 74) continue;
      ASSERT_NO_FATAL_FAILURE(world.settle()) << "at step " << step;
    }
    carried_out += world.carried_out;
    refused += world.refused;
    rejected += world.rejected;
    late += world.late;
    shared += world.shared;
    wishes += world.wishes;
    reservations += world.reservations;
  }
  // The test would prove little if little happened.
  EXPECT_GT(carried_out, static_cast<int>(tries(5'000)));
  EXPECT_GT(refused, static_cast<int>(tries(250)));
  EXPECT_GT(rejected, static_cast<int>(tries(50)));
  EXPECT_GT(late, static_cast<int>(tries(2'500)));
  EXPECT_GT(shared, static_cast<int>(tries(2'500)));
  EXPECT_GT(wishes, static_cast<int>(tries(1'000)));
  EXPECT_GT(reservations, static_cast<int>(tries(1'000)));
}

TEST(SchedulerProperties, TheSameEventsGiveTheSameCommands) {
  for (std::uint64_t seed = 0; seed < tries(30); ++seed) {
    World one(seed);
    World two(seed);
    for (int step = 0; step < 300; ++step) {
      one.step();
      two.step();
    }
    ASSERT_EQ(one.log, two.log);
  }
}

}  // namespace
}  // namespace rubato::loop
