// The rules one by one; live_world_test.cc tries their interplay.
#include "rubato/engine/engine_table.h"

#include <gtest/gtest.h>

#include "rubato/core/testing.h"

namespace rubato::engine {
namespace {

class Table : public ::testing::Test {
 protected:
  using Facts = std::vector<Fact>;

  template <class Kind>
  std::vector<Kind> facts() {
    std::vector<Kind> found;
    for (const Fact& fact : table.take_facts()) {
      if (const auto* kind = std::get_if<Kind>(&fact)) found.push_back(*kind);
    }
    return found;
  }
  template <class Kind>
  std::vector<Kind> orders() {
    std::vector<Kind> found;
    for (const EngineTable::Order& order : table.take_orders()) {
      if (const auto* kind = std::get_if<Kind>(&order)) found.push_back(*kind);
    }
    return found;
  }
  // Messages of one kind to one node.
  template <class Message>
  std::vector<Message> told(std::size_t node) {
    std::vector<Message> found;
    for (const auto& tell : orders<EngineTable::Tell>()) {
      const auto* message = std::get_if<Message>(&tell.message);
      if (message != nullptr && tell.node == node_id(node)) found.push_back(*message);
    }
    return found;
  }
  void hello(std::size_t node, const std::vector<JobStatus>& jobs = {}) {
    table.said_hello(now, node_id(node), jobs);
    table.settled(now, node_id(node));
  }
  void start(unsigned generation, const Allocation& gpus) {
    table.told(Start{job_id(0), Generation(generation), gpus});
  }
  void resize(unsigned generation, const Allocation& gpus) {
    table.told(Resize{job_id(0), Generation(generation), gpus});
  }
  void stop(unsigned generation) { table.told(Stop{job_id(0), Generation(generation)}); }
  static JobStatus status(unsigned generation, const Allocation& in_use, bool running) {
    JobStatus status;
    status.job = job_id(0);
    status.generation = Generation(generation);
    status.in_use = slots_of(in_use);
    status.running = running;
    return status;
  }
  static JobStatus ended(unsigned generation, JobEnd::How how) {
    JobStatus end = status(generation, {}, false);
    end.ended = JobEnd{how, how == JobEnd::How::finished ? 0 : 1, ""};
    return end;
  }
  void heard(std::size_t node, const JobStatus& said) { table.heard(now, node_id(node), said); }
  void later(double seconds) {
    now += from_seconds(seconds);
    table.pass(now);
  }

  void skip() {
    [[maybe_unused]] const auto facts = table.take_facts();
    [[maybe_unused]] const auto orders = table.take_orders();
  }

  const Allocation two = gpus_on({{0, 0b11}});
  const Allocation one = gpus_on({{0, 0b01}});
  Time now = kStart;
  EngineTable table{cluster_of("2x4"), from_seconds(5), kStart};
};

TEST_F(Table, ACommandWaitsForItsHomesHello) {
  start(1, two);
  resize(2, one);
  EXPECT_TRUE(table.take_orders().empty());
  hello(1);
  EXPECT_TRUE(orders<EngineTable::Launch>().empty()) << "not its home";
  hello(0);
  const auto launches = orders<EngineTable::Launch>();
  ASSERT_EQ(launches.size(), 1U) << "the newest alone, as the start";
  EXPECT_EQ(launches[0].generation, Generation(2));
  EXPECT_EQ(launches[0].gpus, one);
}

TEST_F(Table, NothingIsSentBeforeTheGpusAreClearOfWhatShouldNotBeThere) {
  start(1, gpus_on({{0, 0b1}, {1, 0b1}}));
  table.said_hello(now, node_id(0), {});
  EXPECT_TRUE(orders<EngineTable::Launch>().empty());
  table.settled(now, node_id(0));
  EXPECT_TRUE(orders<EngineTable::Launch>().empty()) << "part of it is on the other node";
  table.said_hello(now, node_id(1), {});
  table.settled(now, node_id(1));
  EXPECT_EQ(orders<EngineTable::Launch>().size(), 1U);
  // Later its silence holds up nobody else.
  heard(0, status(1, gpus_on({{0, 0b1}, {1, 0b1}}), true));
  table.lost(node_id(1));
  resize(2, gpus_on({{0, 0b11}, {1, 0b1}}));
  EXPECT_EQ(told<PlaceJob>(0).size(), 1U);
}

TEST_F(Table, TheTableOfANodeHasItsJobsAndNoOthers) {
  start(3, gpus_on({{1, 0b1}}));
  hello(0);
  EXPECT_TRUE(told<NodeTable>(0).at(0).jobs.empty());
  hello(1);
  ASSERT_EQ(told<NodeTable>(1).at(0).jobs.size(), 1U);
}

TEST_F(Table, GpusAreLetGoOnlyWhenTheNewestGenerationIsObeyed) {
  hello(0);
  start(1, two);
  heard(0, status(1, two, true));
  EXPECT_EQ(facts<RunningFact>().size(), 1U);
  resize(2, one);
  heard(0, status(1, one, false));  // a worker has died; its slot may be filled again
  EXPECT_TRUE(facts<ReleasedFact>().empty());
  heard(0, status(2, two, false));
  EXPECT_TRUE(facts<ReleasedFact>().empty());
  heard(0, status(2, one, false));
  const auto released = facts<ReleasedFact>();
  ASSERT_EQ(released.size(), 1U);
  EXPECT_EQ(released[0].gpus, gpus_on({{0, 0b10}}));
  heard(0, status(2, one, true));
  heard(0, status(2, one, true));
  EXPECT_EQ(facts<RunningFact>().size(), 1U);
}

TEST_F(Table, AStopIsToldToEveryNewAgentUntilItIsDone) {
  hello(0);
  start(1, two);
  stop(2);
  skip();
  hello(0, {status(2, two, false)});
  const auto stops = told<HaltJob>(0);
  ASSERT_EQ(stops.size(), 1U) << "whatever its master says to have obeyed";
  EXPECT_EQ(stops[0].stop.generation, Generation(2));
  heard(0, ended(2, JobEnd::How::stopped));
  hello(0);
  EXPECT_TRUE(told<HaltJob>(0).empty());
}

TEST_F(Table, AStopIsAnsweredByTheEndAlone) {
  hello(0);
  start(1, two);
  stop(2);
  heard(0, status(2, {}, false));
  EXPECT_TRUE(facts<ReleasedFact>().empty());
  heard(0, ended(2, JobEnd::How::stopped));
  const auto released = facts<ReleasedFact>();
  ASSERT_EQ(released.size(), 1U);
  EXPECT_TRUE(released[0].stopped);
  EXPECT_EQ(released[0].gpus, two);
}

TEST_F(Table, AnEndThatCrossedWithACommandAnswersIt) {
  hello(0);
  start(1, two);
  heard(0, status(1, two, false));
  resize(2, one);
  heard(0, ended(1, JobEnd::How::failed));
  const auto failed = facts<FailedFact>();
  ASSERT_EQ(failed.size(), 1U);
  EXPECT_EQ(failed[0].generation, Generation(2));
  EXPECT_TRUE(table.held_gpus(job_id(0)).empty());
  resize(3, two);
  EXPECT_EQ(facts<FailedFact>().at(0).generation, Generation(3));
  stop(4);
  EXPECT_TRUE(facts<ReleasedFact>().at(0).stopped);
}

TEST_F(Table, AJobThatStoppedByItselfHasFailed) {
  hello(0);
  start(1, two);
  heard(0, ended(1, JobEnd::How::stopped));
  EXPECT_EQ(facts<FailedFact>().size(), 1U);
}

TEST_F(Table, TheEndOfAnEarlierRunIsNotThatOfThisOne) {
  hello(0);
  hello(1);
  start(1, two);
  heard(0, ended(1, JobEnd::How::failed));
  start(2, two);
  skip();
  heard(0, ended(1, JobEnd::How::failed));
  EXPECT_TRUE(table.take_facts().empty());
  heard(0, ended(2, JobEnd::How::failed));
  EXPECT_EQ(facts<FailedFact>().size(), 1U);
  skip();
  start(3, gpus_on({{1, 0b1}}));
  EXPECT_EQ(told<ForgetJob>(0).size(), 1U) << "its home is elsewhere now";
  heard(0, ended(3, JobEnd::How::failed));
  EXPECT_TRUE(table.take_facts().empty());
}

TEST_F(Table, FinishedIsFinalWhateverTheGeneration) {
  hello(0);
  start(1, two);
  resize(2, one);
  heard(0, ended(1, JobEnd::How::finished));
  EXPECT_EQ(facts<Finished>().size(), 1U);
  skip();
  start(3, two);
  hello(0, {ended(1, JobEnd::How::finished)});
  EXPECT_TRUE(facts<Finished>().empty());
  EXPECT_TRUE(orders<EngineTable::Launch>().empty());
  table.forget(job_id(0));
  EXPECT_EQ(told<ForgetJob>(0).size(), 1U);
}

TEST_F(Table, SilenceMakesANodeUnknownAndFreesNothing) {
  hello(0);
  hello(1);
  start(1, two);
  heard(0, status(1, two, true));
  skip();
  for (int i = 0; i < 4; ++i) {
    later(2);
    table.heard_beat(now, node_id(1), "");
  }
  EXPECT_EQ(orders<EngineTable::Disconnect>().size(), 1U);
  const auto all = table.take_facts();
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(std::get<NodeChanged>(all[0]).state, NodeState::unknown);
  later(1e6);
  EXPECT_EQ(table.held_gpus(job_id(0)), two);
  table.said_hello(now, node_id(0), {status(1, two, true)});
  EXPECT_EQ(table.state_of(node_id(0)), NodeState::unknown) << "not settled yet";
  table.settled(now, node_id(0));
  EXPECT_EQ(table.state_of(node_id(0)), NodeState::up);
}

TEST_F(Table, AJobThatEndsAloneIsSweptAfterItsTime) {
  hello(0);
  start(1, two);
  table.ends_alone_after(job_id(0), from_seconds(60));
  table.lost(node_id(0));
  later(59);
  EXPECT_TRUE(orders<EngineTable::Sweep>().empty());
  later(2);
  EXPECT_EQ(orders<EngineTable::Sweep>().size(), 1U);
  EXPECT_TRUE(facts<FailedFact>().empty()) << "something of it may live";
  table.swept(job_id(0), std::nullopt);
  const auto failed = facts<FailedFact>();
  ASSERT_EQ(failed.size(), 1U);
  EXPECT_TRUE(failed[0].infrastructure) << "its node was lost";
}

TEST_F(Table, ANodeInTroubleIsSetAsideAndItsJobsGoOn) {
  hello(0);
  start(1, two);
  heard(0, status(1, two, true));
  skip();
  table.heard_beat(now, node_id(0), "its disk is full");
  table.heard_beat(now, node_id(0), "its disk is full");
  auto changes = facts<NodeChanged>();
  ASSERT_EQ(changes.size(), 1U) << "told once";
  EXPECT_EQ(changes[0].state, NodeState::unknown);
  EXPECT_EQ(changes[0].why, "its disk is full");
  EXPECT_EQ(table.held_gpus(job_id(0)), two);
  stop(2);
  EXPECT_EQ(told<HaltJob>(0).size(), 1U) << "it is obeyed as before";
  table.settled(now, node_id(0));
  EXPECT_EQ(table.state_of(node_id(0)), NodeState::unknown);
  table.lost(node_id(0));
  EXPECT_EQ(facts<NodeChanged>().at(0).why, "its agent is not connected");
  hello(0);
  EXPECT_EQ(table.state_of(node_id(0)), NodeState::up) << "a new agent has no trouble yet";
  table.heard_beat(now, node_id(0), "no process left");
  table.mark_down(node_id(0));
  table.mark_up(node_id(0));
  EXPECT_EQ(table.state_of(node_id(0)), NodeState::unknown);
  skip();
  table.heard_beat(now, node_id(0), "");
  changes = facts<NodeChanged>();
  ASSERT_EQ(changes.size(), 1U);
  EXPECT_EQ(changes[0].state, NodeState::up);
  EXPECT_EQ(changes[0].why, "");
}

TEST_F(Table, AnAgentThatCannotBeStartedIsAReason) {
  table.has_no_agent(node_id(0), "no process left");
  EXPECT_TRUE(facts<NodeChanged>().empty()) << "it has its lease";
  later(6);
  EXPECT_EQ(facts<NodeChanged>().at(0).why, "no process left");
  table.has_no_agent(node_id(0), "no memory left");
  EXPECT_EQ(facts<NodeChanged>().at(0).why, "no memory left");
}

TEST_F(Table, WhoIsToBlameForAnEndIsSaid) {
  hello(0);
  start(1, two);
  JobStatus end = ended(1, JobEnd::How::failed);
  end.ended->infrastructure = true;
  end.ended->why = "its disk is full";
  heard(0, end);
  auto failed = facts<FailedFact>();
  ASSERT_EQ(failed.size(), 1U);
  EXPECT_TRUE(failed[0].infrastructure);
  EXPECT_EQ(failed[0].why, "its disk is full");
  resize(2, one);  // which crossed with that
  failed = facts<FailedFact>();
  ASSERT_EQ(failed.size(), 1U);
  EXPECT_TRUE(failed[0].infrastructure);
  start(3, two);
  end = ended(3, JobEnd::How::failed);
  end.ended->why = "its program failed";
  heard(0, end);
  failed = facts<FailedFact>();
  ASSERT_EQ(failed.size(), 1U);
  EXPECT_FALSE(failed[0].infrastructure);
  EXPECT_EQ(failed[0].why, "its program failed");
}

TEST_F(Table, WhenAJobFinishedIsSaidWhereItIsKnown) {
  hello(0);
  start(1, two);
  JobStatus end = ended(1, JobEnd::How::finished);
  end.ended->at = WallTime(from_seconds(1000));
  heard(0, end);
  EXPECT_EQ(facts<Finished>().at(0).at, WallTime(from_seconds(1000)));
  table.told(Start{job_id(1), Generation(1), one});
  table.mark_down(node_id(0));
  table.swept(job_id(1), JobEnd{JobEnd::How::finished, 0, "", false, WallTime(from_seconds(2000))});
  EXPECT_EQ(facts<Finished>().at(0).at, WallTime(from_seconds(2000)));
}

TEST_F(Table, TheOperatorsWordFailsEveryJobWithAPartOnTheNode) {
  hello(0);
  hello(1);
  start(1, gpus_on({{0, 0b1}, {1, 0b1}}));
  table.told(Start{job_id(1), Generation(1), gpus_on({{0, 0b10}})});
  skip();
  table.mark_down(node_id(1));
  EXPECT_EQ(facts<NodeChanged>().at(0).state, NodeState::down);
  const auto sweeps = orders<EngineTable::Sweep>();
  ASSERT_EQ(sweeps.size(), 1U);
  EXPECT_EQ(sweeps[0].job, job_id(0));
  resize(2, gpus_on({{0, 0b1}}));
  table.swept(job_id(0), std::nullopt);
  EXPECT_EQ(facts<FailedFact>().at(0).generation, Generation(2));
  hello(1);
  EXPECT_EQ(table.state_of(node_id(1)), NodeState::down) << "until the operator says otherwise";
  table.mark_up(node_id(1));
  EXPECT_EQ(table.state_of(node_id(1)), NodeState::up);
}

TEST_F(Table, AfterACrashTheLastCommandIsSentAgainWhereItIsNotObeyed) {
  table.know({job_id(0), node_id(0), Resize{job_id(0), Generation(5), one}, two});
  hello(0, {status(4, two, true)});
  const auto places = told<PlaceJob>(0);
  ASSERT_EQ(places.size(), 1U);
  EXPECT_EQ(places[0].place.generation, Generation(5));
  hello(0, {status(5, one, true)});
  EXPECT_TRUE(told<PlaceJob>(0).empty());
  EXPECT_EQ(facts<ReleasedFact>().size(), 1U);
}

TEST_F(Table, AnAgentThatKnowsNoProgressTakesNoneAway) {
  hello(0);
  start(1, two);
  JobStatus far = status(1, two, true);
  far.progress.step = 100;
  heard(0, far);
  EXPECT_EQ(table.take_reports().at(0).progress.step, 100);
  heard(0, status(1, two, false));
  EXPECT_EQ(table.take_reports().at(0).progress.step, 100);
  EXPECT_TRUE(table.take_reports().empty());
}

}  // namespace
}  // namespace rubato::engine
