// The rules one by one; live_world_test.cc tries their interplay.
#include "rubato/node/node_jobs.h"

#include <gtest/gtest.h>

#include "rubato/core/testing.h"

namespace rubato::node {
namespace {

class Agent : public ::testing::Test {
 protected:
  template <class Kind>
  std::vector<Kind> orders() {
    std::vector<Kind> found;
    for (const NodeJobs::Order& order : jobs.take_orders()) {
      if (const auto* kind = std::get_if<Kind>(&order)) found.push_back(*kind);
    }
    return found;
  }
  // Statuses told.
  std::vector<JobStatus> told() {
    std::vector<JobStatus> found;
    for (const auto& tell : orders<NodeJobs::TellEngine>()) {
      if (const auto* status = std::get_if<JobStatus>(&tell.message)) found.push_back(*status);
    }
    return found;
  }
  static JobLaunch launch(unsigned generation) {
    JobLaunch launch;
    launch.job = job_id(7);
    launch.home = node_id(1);
    launch.generation = Generation(generation);
    launch.slots = {"1.0", "1.1"};
    return launch;
  }
  static JobStatus status(unsigned generation) {
    JobStatus status;
    status.job = job_id(7);
    status.generation = Generation(generation);
    status.in_use = {"1.0", "1.1"};
    status.running = true;
    return status;
  }
  static JobExit exit(unsigned generation, JobEnd::How how) {
    return {Generation(generation), {how, how == JobEnd::How::finished ? 0 : 3, "so"}, {}, 0, 0};
  }
  void engine(const ToAgent& message) { jobs.engine_said(now, message); }
  // A job with a master that is connected.
  void run(unsigned generation) {
    engine(LaunchJob{launch(generation)});
    jobs.started(job_id(7));
    jobs.connected(now, job_id(7));
    jobs.master_said(now, job_id(7), status(generation));
    skip();
  }
  void later(double seconds) {
    now += from_seconds(seconds);
    jobs.pass(now);
  }

  void skip() { [[maybe_unused]] const auto orders = jobs.take_orders(); }

  Time now = kStart;
  NodeJobs jobs{node_id(1), {}};
};

TEST_F(Agent, StartsAMasterOnce) {
  engine(LaunchJob{launch(1)});
  EXPECT_EQ(orders<NodeJobs::StartMaster>().size(), 1U);
  engine(LaunchJob{launch(1)});
  EXPECT_TRUE(jobs.take_orders().empty());
}

TEST_F(Agent, AStartThatTheMachineCannotMakeIsToldAfterTheNodesTrouble) {
  engine(LaunchJob{launch(1)});
  skip();
  jobs.could_not_start(job_id(7), {JobEnd::How::failed, 1, "its disk is full", true, {}});
  EXPECT_EQ(orders<NodeJobs::Probe>().size(), 1U);
  jobs.probed(now, "its disk is full");
  auto beats = orders<NodeJobs::TellEngine>();
  ASSERT_EQ(beats.size(), 1U) << "before the end, so that it does not come back here";
  EXPECT_EQ(std::get<AgentBeat>(beats[0].message).trouble, "its disk is full");
  jobs.swept(job_id(7));
  const auto ends = told();
  ASSERT_EQ(ends.size(), 1U);
  EXPECT_TRUE(ends[0].ended->infrastructure);
  // Another one that fails meanwhile changes nothing.
  engine(LaunchJob{launch(2)});
  jobs.could_not_start(job_id(7), {JobEnd::How::failed, 1, "its disk is full", true, {}});
  EXPECT_TRUE(orders<NodeJobs::Probe>().empty());
}

TEST_F(Agent, ANodeInTroubleIsTriedAgainAfterLongerAndLongerPauses) {
  jobs.probed(now, "its disk is full");
  EXPECT_EQ(orders<NodeJobs::TellEngine>().size(), 1U);
  int probes = 0;
  for (int i = 0; i < 300; ++i) {
    later(1);
    for (const auto& probe : orders<NodeJobs::Probe>()) {
      static_cast<void>(probe);
      ++probes;
      jobs.probed(now, "its disk is full");
      EXPECT_TRUE(orders<NodeJobs::TellEngine>().empty()) << "it was told";
    }
  }
  EXPECT_GE(probes, 10);
  EXPECT_LE(probes, 16);
  jobs.probed(now, "");
  const auto beats = orders<NodeJobs::TellEngine>();
  ASSERT_EQ(beats.size(), 1U);
  EXPECT_EQ(std::get<AgentBeat>(beats[0].message).trouble, "");
  later(1000);
  EXPECT_TRUE(orders<NodeJobs::Probe>().empty());
}

TEST_F(Agent, AProgramThatFailsIsNoTroubleOfTheNode) {
  run(1);
  jobs.master_gone(job_id(7), exit(1, JobEnd::How::failed));
  EXPECT_TRUE(orders<NodeJobs::Probe>().empty());
}

TEST_F(Agent, ANewerStartOfARunningJobPlacesIt) {
  run(1);
  engine(LaunchJob{launch(2)});
  const auto sent = orders<NodeJobs::SendToMaster>();
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_EQ(std::get<Place>(sent[0].message).generation, Generation(2));
}

TEST_F(Agent, AnotherJobOfTheSameNumberIsNoAnswer) {
  JobLaunch other = launch(1);
  other.token = "other";
  // One that has finished, as it was found on the disk.
  jobs.found({launch(5), false, {}, exit(5, JobEnd::How::finished)});
  skip();
  jobs.swept(job_id(7));
  skip();
  engine(LaunchJob{other});
  const auto started = orders<NodeJobs::StartMaster>();
  ASSERT_EQ(started.size(), 1U);
  EXPECT_EQ(started[0].launch, other);
  // One that runs is ended first, also if it says that it has finished.
  jobs.started(job_id(7));
  jobs.connected(now, job_id(7));
  skip();
  JobLaunch third = launch(2);
  third.token = "third";
  engine(LaunchJob{third});
  const auto sent = orders<NodeJobs::SendToMaster>();
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_TRUE(std::holds_alternative<KillJob>(sent[0].message));
  jobs.master_gone(job_id(7), exit(1, JobEnd::How::finished));
  jobs.swept(job_id(7));
  const auto orders = jobs.take_orders();
  const auto* start = std::get_if<NodeJobs::StartMaster>(&orders.back());
  ASSERT_NE(start, nullptr);
  EXPECT_EQ(start->launch, third);
  for (const NodeJobs::Order& order : orders)
    EXPECT_FALSE(std::holds_alternative<NodeJobs::TellEngine>(order)) << "of the old one";
}

TEST_F(Agent, TheNewestCommandWaitsForTheMaster) {
  engine(LaunchJob{launch(1)});
  engine(PlaceJob{job_id(7), Place{Generation(2), {"1.0"}, std::nullopt}});
  engine(PlaceJob{job_id(7), Place{Generation(3), {"1.1"}, std::nullopt}});
  engine(PlaceJob{job_id(7), Place{Generation(2), {"1.0"}, std::nullopt}});
  EXPECT_TRUE(orders<NodeJobs::SendToMaster>().empty());
  jobs.connected(now, job_id(7));
  const auto sent = orders<NodeJobs::SendToMaster>();
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_EQ(std::get<Place>(sent[0].message).generation, Generation(3));
  jobs.disconnected(job_id(7));
  jobs.connected(now, job_id(7));
  EXPECT_EQ(orders<NodeJobs::SendToMaster>().size(), 1U) << "it has not obeyed";
  jobs.master_said(now, job_id(7), status(3));
  jobs.connected(now, job_id(7));
  EXPECT_TRUE(orders<NodeJobs::SendToMaster>().empty());
}

TEST_F(Agent, AnEndIsToldWhenNothingIsLeft) {
  run(1);
  JobStatus last = status(1);
  last.in_use.clear();
  last.ended = JobEnd{JobEnd::How::finished, 0, ""};
  jobs.master_said(now, job_id(7), last);
  EXPECT_TRUE(told().empty()) << "its process lives";
  jobs.master_gone(job_id(7), exit(1, JobEnd::How::finished));
  EXPECT_EQ(orders<NodeJobs::Sweep>().size(), 1U);
  jobs.swept(job_id(7));
  const auto statuses = told();
  ASSERT_EQ(statuses.size(), 1U);
  EXPECT_EQ(statuses[0].ended->how, JobEnd::How::finished);
  EXPECT_EQ(jobs.statuses().size(), 1U) << "until it may be forgotten";
  engine(ForgetJob{job_id(7)});
  EXPECT_EQ(orders<NodeJobs::RecordForgotten>().size(), 1U);
  EXPECT_TRUE(jobs.statuses().empty());
}

TEST_F(Agent, AMasterThatHasEndedButStaysIsKilled) {
  run(1);
  JobStatus last = status(1);
  last.ended = JobEnd{JobEnd::How::stopped, 0, ""};
  jobs.master_said(now, job_id(7), last);
  later(1);
  EXPECT_TRUE(orders<NodeJobs::KillMaster>().empty());
  later(5);
  EXPECT_EQ(orders<NodeJobs::KillMaster>().size(), 1U);
}

TEST_F(Agent, AMasterThatDoesNotStopInTimeIsKilled) {
  run(1);
  engine(HaltJob{job_id(7), StopJob{Generation(2)}});
  later(9);
  engine(HaltJob{job_id(7), StopJob{Generation(2)}});
  jobs.master_said(now, job_id(7), status(2));
  later(5);
  EXPECT_TRUE(orders<NodeJobs::KillMaster>().empty()) << "10 s of grace, and 5 s to leave";
  later(2);
  EXPECT_EQ(orders<NodeJobs::KillMaster>().size(), 1U) << "the second stop was no new one";
  later(4);
  EXPECT_EQ(orders<NodeJobs::KillMaster>().size(), 1U) << "again, because it lives";
  jobs.master_gone(job_id(7), std::nullopt);
  jobs.swept(job_id(7));
  const auto end = told().at(0).ended;
  EXPECT_EQ(end->how, JobEnd::How::stopped);
  EXPECT_EQ(end->why, "killed: it did not stop in time");
}

TEST_F(Agent, AStopIsEnforcedAlsoByAnAgentThatFoundTheJob) {
  jobs.found({launch(1), true, {}, std::nullopt});
  jobs.connected(now, job_id(7));
  jobs.master_said(now, job_id(7), status(2));
  engine(NodeTable{{{job_id(7), Generation(2)}}});
  engine(HaltJob{job_id(7), StopJob{Generation(2)}});
  skip();
  later(16);
  EXPECT_EQ(orders<NodeJobs::KillMaster>().size(), 1U);
}

TEST_F(Agent, AMasterCannotHaveObeyedWhatNobodyToldIt) {
  run(1);
  jobs.master_said(now, job_id(7), status(9));
  EXPECT_TRUE(told().empty());
  EXPECT_EQ(jobs.statuses().at(0).generation, Generation(1));
  engine(HaltJob{job_id(7), StopJob{Generation(2)}});
  EXPECT_EQ(orders<NodeJobs::SendToMaster>().size(), 1U);
  // One that found the job knows what was told when the table comes.
  NodeJobs other(node_id(1), {});
  other.found({launch(1), true, {}, std::nullopt});
  other.connected(now, job_id(7));
  other.master_said(now, job_id(7), status(9));
  other.engine_said(now, NodeTable{{{job_id(7), Generation(3)}}});
  EXPECT_EQ(other.statuses().at(0).generation, Generation(3));
  other.master_said(now, job_id(7), status(9));
  EXPECT_EQ(other.statuses().at(0).generation, Generation(3));
}

TEST_F(Agent, AMasterThatHasFinishedIsKilledOnlyWhenThatIsWrittenDown) {
  run(1);
  JobStatus last = status(1);
  last.ended = JobEnd{JobEnd::How::finished, 0, ""};
  jobs.master_said(now, job_id(7), last);
  later(6);
  auto all = jobs.take_orders();
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(std::get<NodeJobs::RecordExit>(all[0]).exit.end, *last.ended);
  later(1);
  EXPECT_TRUE(jobs.take_orders().empty());
  later(1);
  all = jobs.take_orders();
  ASSERT_EQ(all.size(), 1U);
  EXPECT_TRUE(std::holds_alternative<NodeJobs::RecordExit>(all[0])) << "the disk was full";
  jobs.recorded(job_id(7));
  later(0.1);
  EXPECT_EQ(orders<NodeJobs::KillMaster>().size(), 1U);
}

TEST_F(Agent, AnEndIsRecordedAgainUntilItIsWrittenDown) {
  run(1);
  jobs.master_gone(job_id(7), std::nullopt);
  EXPECT_EQ(orders<NodeJobs::RecordExit>().size(), 1U);
  jobs.swept(job_id(7));
  later(3);
  const auto records = orders<NodeJobs::RecordExit>();
  ASSERT_EQ(records.size(), 1U);
  EXPECT_EQ(records[0].exit.end.why, "its launcher died");
  jobs.recorded(job_id(7));
  later(3);
  EXPECT_TRUE(jobs.take_orders().empty());
}

TEST_F(Agent, AMasterThatDiesWithoutAWordHasFailed) {
  run(1);
  jobs.master_gone(job_id(7), std::nullopt);
  const auto all = jobs.take_orders();
  ASSERT_EQ(all.size(), 2U);
  EXPECT_TRUE(std::holds_alternative<NodeJobs::RecordExit>(all[0])) << "first the verdict";
  EXPECT_TRUE(std::holds_alternative<NodeJobs::Sweep>(all[1]));
  jobs.swept(job_id(7));
  EXPECT_EQ(told().at(0).ended->why, "its launcher died");
}

// --- jobs in shares, whose workers are on other hosts ---

class AgentOfShares : public Agent {
 protected:
  static JobLaunch shared(unsigned generation) {
    JobLaunch shared = launch(generation);
    shared.shares = SharesLaunch{"/shared/7", {{"s-1", "n1", {"1.0", "1.1"}}}};
    return shared;
  }
  void run_shared(unsigned generation) {
    engine(LaunchJob{shared(generation)});
    jobs.started(job_id(7));
    jobs.connected(now, job_id(7));
    jobs.master_said(now, job_id(7), status(generation));
    skip();
  }
};

TEST_F(AgentOfShares, AMasterThatDiesIsReplaced) {
  run_shared(1);
  jobs.master_gone(job_id(7), {});
  later(0.1);
  const auto starts = orders<NodeJobs::StartMaster>();
  ASSERT_EQ(starts.size(), 1U);
  EXPECT_EQ(starts[0].launch, shared(1));
  EXPECT_TRUE(told().empty()) << "nothing has ended";
  jobs.started(job_id(7));
  EXPECT_EQ(orders<NodeJobs::Connect>().size(), 1U);
}

TEST_F(AgentOfShares, TheNewestCommandWaitsForTheNextMaster) {
  run_shared(1);
  jobs.disconnected(job_id(7));
  jobs.master_gone(job_id(7), {});
  const Place place{
      Generation(1), {"1.0", "1.1"}, std::nullopt, 1, {{"s-2", "n2", {"1.0", "1.1"}}}};
  engine(PlaceJob{job_id(7), place});
  later(0.1);
  jobs.started(job_id(7));
  skip();
  jobs.connected(now, job_id(7));
  const auto sent = orders<NodeJobs::SendToMaster>();
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_EQ(std::get<Place>(sent[0].message), place);
  // The same revision again, and an older one.
  engine(PlaceJob{job_id(7), place});
  engine(PlaceJob{job_id(7), Place{Generation(1), {"1.0", "1.1"}, std::nullopt, 0, place.shares}});
  EXPECT_TRUE(orders<NodeJobs::SendToMaster>().empty());
  JobStatus obeyed = status(1);
  obeyed.revision = 1;
  jobs.master_said(now, job_id(7), obeyed);
  skip();
  jobs.disconnected(job_id(7));
  jobs.connected(now, job_id(7));
  EXPECT_TRUE(orders<NodeJobs::SendToMaster>().empty()) << "it was obeyed";
}

TEST_F(AgentOfShares, MastersThatDieAgainAndAgainFailTheJob) {
  run_shared(1);
  int starts = 0;
  for (int i = 0; i < 400 && starts < 100; ++i) {
    jobs.master_gone(job_id(7), {});
    later(1);
    const auto orders = jobs.take_orders();
    for (const auto& order : orders) {
      if (std::holds_alternative<NodeJobs::StartMaster>(order)) ++starts;
      if (std::holds_alternative<NodeJobs::Sweep>(order)) jobs.swept(job_id(7));
    }
  }
  EXPECT_EQ(starts, NodeJobs::Limits().resumes);
  ASSERT_EQ(jobs.statuses().size(), 1U);
  ASSERT_TRUE(jobs.statuses()[0].ended);
  EXPECT_EQ(jobs.statuses()[0].ended->why, "its launcher died again and again");
}

TEST_F(AgentOfShares, AMasterThatLeftAnExitOrIsNotWantedIsNotReplaced) {
  run_shared(1);
  jobs.master_gone(job_id(7), exit(1, JobEnd::How::finished));
  EXPECT_EQ(orders<NodeJobs::Sweep>().size(), 1U);
  jobs.swept(job_id(7));
  run_shared(2);
  engine(NodeTable{});
  jobs.master_gone(job_id(7), {});
  later(5);
  EXPECT_TRUE(orders<NodeJobs::StartMaster>().empty());
}

TEST_F(AgentOfShares, AStopOfAJobWithoutAMasterIsEnforced) {
  run_shared(1);
  jobs.master_gone(job_id(7), {});
  later(0.1);
  jobs.could_not_start(job_id(7), {JobEnd::How::failed, 1, "its disk is full", true, {}});
  engine(HaltJob{job_id(7), StopJob{Generation(2)}});
  for (int i = 0; i < 100; ++i) {
    later(1);
    for (const auto& order : jobs.take_orders()) {
      if (std::holds_alternative<NodeJobs::StartMaster>(order)) {
        jobs.could_not_start(job_id(7), {JobEnd::How::failed, 1, "its disk is full", true, {}});
      }
      if (std::holds_alternative<NodeJobs::Sweep>(order)) jobs.swept(job_id(7));
    }
  }
  ASSERT_EQ(jobs.statuses().size(), 1U);
  EXPECT_TRUE(jobs.statuses()[0].ended);
}

TEST_F(AgentOfShares, AJobThatIsFoundWithoutAMasterGetsOne) {
  NodeJobs::Found found;
  found.launch = shared(1);
  jobs.found(found);
  later(0.1);
  EXPECT_EQ(orders<NodeJobs::StartMaster>().size(), 1U);
}

TEST_F(Agent, AFoundMasterIsAdoptedAndADeadOneJudged) {
  jobs.found({launch(1), true, {"1.3"}, std::nullopt});
  EXPECT_EQ(orders<NodeJobs::Connect>().size(), 1U);
  EXPECT_EQ(jobs.statuses().at(0).in_use, (std::vector<Slot>{"1.0", "1.1", "1.3"}));
  NodeJobs other(node_id(1), {});
  other.found({launch(1), false, {}, exit(1, JobEnd::How::failed)});
  [[maybe_unused]] const auto sweep = other.take_orders();
  other.swept(job_id(7));
  EXPECT_EQ(other.statuses().at(0).ended->code, 3) << "exit codes survive the agent";
}

TEST_F(Agent, WhatTheTableDoesNotHaveIsKilledAndThenItIsSettled) {
  run(2);
  engine(NodeTable{{{job_id(7), Generation(3)}}});
  auto all = jobs.take_orders();
  ASSERT_EQ(all.size(), 1U);
  EXPECT_TRUE(std::holds_alternative<AgentSettled>(std::get<NodeJobs::TellEngine>(all[0]).message));
  engine(NodeTable{{{job_id(7), Generation(1)}}});
  all = jobs.take_orders();
  ASSERT_EQ(all.size(), 1U) << "its start is newer";
  EXPECT_TRUE(std::holds_alternative<KillJob>(std::get<NodeJobs::SendToMaster>(all[0]).message));
  later(4);
  EXPECT_EQ(orders<NodeJobs::KillMaster>().size(), 1U) << "it does not obey";
  jobs.master_gone(job_id(7), std::nullopt);
  jobs.swept(job_id(7));
  all = jobs.take_orders();
  EXPECT_TRUE(
      std::holds_alternative<AgentSettled>(std::get<NodeJobs::TellEngine>(all.back()).message));
}

TEST_F(Agent, AStartOfADoomedJobWaitsForItsEnd) {
  run(2);
  engine(NodeTable{});
  engine(LaunchJob{launch(5)});
  engine(PlaceJob{job_id(7), Place{Generation(6), {"1.2"}, std::nullopt}});
  skip();
  jobs.master_gone(job_id(7), std::nullopt);
  EXPECT_TRUE(orders<NodeJobs::StartMaster>().empty());
  jobs.swept(job_id(7));
  const auto starts = orders<NodeJobs::StartMaster>();
  ASSERT_EQ(starts.size(), 1U);
  EXPECT_EQ(starts[0].launch.generation, Generation(6));
  EXPECT_EQ(starts[0].launch.slots, std::vector<Slot>{"1.2"});
}

TEST_F(Agent, AFinishedJobIsNotStartedAgain) {
  jobs.found({launch(1), false, {}, exit(1, JobEnd::How::finished)});
  engine(LaunchJob{launch(2)});
  jobs.swept(job_id(7));
  EXPECT_TRUE(orders<NodeJobs::StartMaster>().empty());
  engine(LaunchJob{launch(3)});
  EXPECT_EQ(told().at(0).ended->how, JobEnd::How::finished);
}

TEST_F(Agent, CommandsForAJobThatIsNotHereAreAnswered) {
  engine(PlaceJob{job_id(7), Place{Generation(4), {"1.0"}, std::nullopt}});
  auto answer = told().at(0);
  EXPECT_EQ(answer.generation, Generation(4));
  EXPECT_EQ(answer.ended->how, JobEnd::How::failed);
  engine(HaltJob{job_id(7), StopJob{Generation(5)}});
  answer = told().at(0);
  EXPECT_EQ(answer.generation, Generation(5));
  EXPECT_EQ(answer.ended->how, JobEnd::How::stopped);
}

TEST_F(Agent, ACommandOfAStartThatNeverCameIsAnsweredByTheEndBeforeIt) {
  jobs.found({launch(1), false, {}, exit(1, JobEnd::How::stopped)});
  jobs.swept(job_id(7));
  skip();
  engine(HaltJob{job_id(7), StopJob{Generation(4)}});
  const auto answer = told().at(0);
  EXPECT_EQ(answer.generation, Generation(4));
  EXPECT_TRUE(answer.ended.has_value());
}

TEST_F(Agent, WithoutAnEngineItIsNoManagerOfAJobThatWantsToStopThen) {
  JobLaunch alone = launch(1);
  alone.stop_after = from_seconds(60);
  engine(LaunchJob{alone});
  jobs.started(job_id(7));
  skip();
  later(2);
  EXPECT_TRUE(jobs.take_orders().empty());
  later(2);
  EXPECT_EQ(orders<NodeJobs::HangUp>().size(), 1U);
  engine(EngineBeat{});
  EXPECT_EQ(orders<NodeJobs::Connect>().size(), 1U);
}

// A guaranteed job and an opportunistic one in the same slot.
class Guests : public Agent {
 protected:
  void start(JobId id, bool opportunistic) {
    JobLaunch launch = Agent::launch(1);
    launch.job = id;
    launch.slots = {"1.0"};
    launch.opportunistic = opportunistic;
    engine(LaunchJob{launch});
    jobs.started(id);
    jobs.connected(now, id);
    says(id, 0);
    skip();
  }
  void says(JobId id, std::int64_t step) {
    JobStatus status = Agent::status(1);
    status.job = id;
    status.in_use = {"1.0"};
    status.progress.step = step;
    if (step > 0) status.applied_at = seconds(now - kStart);
    jobs.master_said(now, id, status);
  }
  std::vector<std::pair<JobId, ThrottleJob>> words() {
    std::vector<std::pair<JobId, ThrottleJob>> found;
    for (const auto& send : orders<NodeJobs::SendToMaster>()) {
      if (const auto* throttle = std::get_if<ThrottleJob>(&send.message))
        found.emplace_back(send.job, *throttle);
    }
    return found;
  }

  const JobId host = job_id(3);
  const JobId guest = job_id(5);
};

TEST_F(Guests, AnOpportunisticJobAloneHasEverything) {
  start(guest, true);
  later(0.1);
  const auto told = words();
  ASSERT_EQ(told.size(), 1U);
  EXPECT_EQ(told[0].second, (ThrottleJob{1, false}));
}

TEST_F(Guests, OnlyAnOpportunisticJobIsThrottled) {
  start(host, false);
  start(job_id(4), false);
  later(0.1);
  EXPECT_TRUE(words().empty());
}

TEST_F(Guests, AGuestStandsStillUntilItsHostHasBeenMeasured) {
  start(host, false);
  start(guest, true);
  later(0.1);
  auto told = words();
  ASSERT_EQ(told.size(), 1U);
  EXPECT_EQ(told[0].first, guest);
  EXPECT_EQ(told[0].second, (ThrottleJob{0, true}));
  bool tried = false;
  for (int i = 1; i < 100; ++i) {  // the guest does no harm
    says(host, i * 10);
    later(0.1);
    for (const auto& [id, word] : words()) {
      EXPECT_EQ(id, guest);
      tried = tried || word.share > 0;
    }
  }
  EXPECT_TRUE(tried);
}

TEST_F(Guests, AGuestIsToldAgainAndAgain) {
  start(host, false);
  start(guest, true);
  std::size_t told = 0;
  for (int i = 0; i < 100; ++i) {
    later(0.1);
    told += words().size();
  }
  EXPECT_GE(told, 9U) << "a guest that hears nothing for 3 s stands still";
}

TEST_F(Guests, TheEndOfTheHostGivesTheGuestEverything) {
  start(host, false);
  start(guest, true);
  later(0.1);
  skip();
  jobs.master_gone(host, exit(1, JobEnd::How::finished));
  later(0.1);
  EXPECT_TRUE(words().empty()) << "its processes may still be there";
  jobs.swept(host);
  later(0.1);
  const auto told = words();
  ASSERT_EQ(told.size(), 1U);
  EXPECT_EQ(told[0].second, (ThrottleJob{1, false}));
}

TEST_F(Guests, ANewConnectionIsToldAtOnce) {
  start(host, false);
  start(guest, true);
  later(0.1);
  EXPECT_EQ(words().size(), 1U);
  jobs.disconnected(guest);
  later(0.1);
  EXPECT_TRUE(words().empty());
  jobs.connected(now, guest);
  later(0.1);
  EXPECT_EQ(words().size(), 1U);
}

}  // namespace
}  // namespace rubato::node
