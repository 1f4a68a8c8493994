#include "rubato/launch/roster_master.h"

#include <functional>
#include <gtest/gtest.h>

#include "rubato/launch/share_state.h"

namespace rubato::launch {
namespace {

class MemoryStore : public RosterStore {
 public:
  [[nodiscard]] RosterVersion newest() const override { return newest_; }
  [[nodiscard]] bool create(std::int64_t number, const Roster& roster) override {
    if (number != newest_.number + 1) return false;
    newest_ = {number, roster};
    return true;
  }

 private:
  RosterVersion newest_;
};

wire::WorkerHello works(Uid uid, std::int64_t plan) {
  wire::WorkerHello hello;
  hello.round = 1;
  hello.uid = uid;
  hello.works = true;
  hello.generation = {plan, 0};
  hello.applied = 5;
  return hello;
}
wire::WorkerHello waits(Uid uid, std::int64_t gone = 0) {
  wire::WorkerHello hello;
  hello.round = 1;
  hello.uid = uid;
  hello.gone = gone;
  return hello;
}

std::vector<wire::RosterWord> words_to(RosterMaster& master, Uid uid) {
  std::vector<wire::RosterWord> words;
  for (const auto& action : master.take_actions()) {
    const auto* said = std::get_if<RosterMaster::SayToWorker>(&action);
    if (said != nullptr && said->uid == uid) words.push_back(said->word);
  }
  return words;
}

// Workers 1 on share a, 2 on share b, both planned; 1 is the founder.
struct TwoShares {
  MemoryStore store;
  RosterMaster master{store, store.newest()};
  TwoShares() {
    EXPECT_TRUE(master.share_said({1, "a", 0, {}, {}}));
    EXPECT_TRUE(master.share_said({1, "b", 0, {}, {}}));
    EXPECT_EQ(master.add_worker("a"), 1);
    EXPECT_EQ(master.add_worker("b"), 2);
    EXPECT_TRUE(master.plan({1, 2}));
    EXPECT_TRUE(master.worker_said(waits(1)));
    EXPECT_EQ(master.roster().founder, 1);
    EXPECT_TRUE(master.worker_said(works(1, 1)));
    EXPECT_TRUE(master.worker_said(works(2, 1)));
    (void)master.take_actions();
  }
  void silence_b() {
    master.share_silent("b");
    master.worker_silent(2);
  }
};

TEST(Roster, PlannedSinceIsTheFirstPlanThatNoPlanWithoutItFollowed) {
  Roster roster = with_plan(with_worker(with_worker(Roster(), "a"), "b"), {1, 2});
  EXPECT_EQ(roster.workers.at(2).planned_since, 1);
  roster = with_plan(roster, {1});
  EXPECT_EQ(roster.workers.at(2).planned_since, Roster::kNotPlanned);
  roster = with_plan(roster, {1, 2});
  EXPECT_EQ(roster.workers.at(1).planned_since, 1);
  EXPECT_EQ(roster.workers.at(2).planned_since, 3);
  roster = with_gone(roster, {1});
  EXPECT_EQ(roster.plan.workers, std::vector<Uid>{2});
  EXPECT_EQ(roster.plan.number, 4);
}

TEST(Roster, ARoundBeginsWithNewNumbers) {
  Roster roster = with_founder(with_plan(with_worker(Roster(), "a"), {1}), 1);
  roster = next_round(with_ending(with_gone(roster, {1})));
  EXPECT_EQ(roster.round, 2);
  EXPECT_EQ(roster.first_uid, 2);
  EXPECT_EQ(roster.founder, 0);
  EXPECT_TRUE(roster.gone.empty() && roster.workers.empty() && !roster.ending);
  EXPECT_EQ(roster.plan.number, 3);
}

TEST(RosterMaster, OfTwoMastersOneEndsAtItsNextWrite) {
  MemoryStore store;
  const RosterVersion seen = store.newest();
  RosterMaster first(store, seen);
  EXPECT_TRUE(RosterMaster(store, seen).ended());  // of the same version
  RosterMaster second(store, store.newest());
  EXPECT_EQ(second.roster().epoch, 2);
  EXPECT_FALSE(first.plan({}));
  EXPECT_TRUE(first.ended());
  EXPECT_TRUE(first.take_actions().empty());
}

TEST(RosterMaster, EndsWhenItHearsOfALaterOne) {
  TwoShares job;
  wire::WorkerHello hello = works(1, 1);
  hello.epoch = 2;
  EXPECT_FALSE(job.master.worker_said(hello));
  EXPECT_TRUE(job.master.ended());
  TwoShares other;
  RosterMaster later(other.store, other.store.newest());
  other.master.read_epoch();
  EXPECT_TRUE(other.master.ended());
}

TEST(RosterMaster, OnlyAShareThatStartedAWorkerVouchesForItsEnd) {
  TwoShares job;
  EXPECT_TRUE(job.master.share_said({1, "b", 0, {}, {1}}));
  EXPECT_FALSE(job.master.roster().is_gone(1));
  EXPECT_TRUE(job.master.share_said({1, "a", 0, {}, {1}}));
  EXPECT_TRUE(job.master.roster().is_gone(1));
  EXPECT_TRUE(job.store.newest().roster.is_gone(1));
}

TEST(RosterMaster, WhenExcludingIsLegal) {
  struct Case {
    const char* what;
    std::function<void(RosterMaster&)> before;
    bool legal;
  };
  const Case cases[] = {
      {"1 works", [](RosterMaster&) {}, true},
      {"1 has not said that it works", [](RosterMaster& m) { (void)m.worker_said(waits(1)); },
       false},
      {"1 is not linked", [](RosterMaster& m) { m.worker_silent(1); }, false},
      {"a plan omitted 1 after its record",
       [](RosterMaster& m) {
         (void)m.plan({2});
         (void)m.plan({1, 2});
       },
       false},
      {"and its record has followed it",
       [](RosterMaster& m) {
         (void)m.plan({2});
         (void)m.plan({1, 2});
         (void)m.worker_said(works(1, 3));
       },
       true},
      {"no share is linked: this master is cut off", [](RosterMaster& m) { m.share_silent("a"); },
       false},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    TwoShares job;
    job.silence_b();
    c.before(job.master);
    EXPECT_EQ(job.master.exclude_silent(), c.legal);
    EXPECT_EQ(job.master.roster().is_gone(2), c.legal);
    EXPECT_FALSE(job.master.roster().is_gone(1));
  }
}

TEST(RosterMaster, SaysAnExclusionWithTheWholeListAndANewPlan) {
  TwoShares job;
  job.silence_b();
  EXPECT_TRUE(job.master.exclude_silent());
  const auto words = words_to(job.master, 1);
  ASSERT_EQ(words.size(), 1u);
  EXPECT_EQ(words[0].gone, std::vector<Uid>{2});
  EXPECT_EQ(words[0].plan, (wire::MembershipPlan{2, {1}}));
  // It comes back, and hears the roster.
  (void)job.master.worker_said(works(2, 1));
  EXPECT_EQ(words_to(job.master, 2).at(0).gone, std::vector<Uid>{2});
}

TEST(RosterMaster, SilenceNeverEndsARound) {
  TwoShares job;
  job.master.share_silent("a");
  job.master.worker_silent(1);
  job.silence_b();
  EXPECT_FALSE(job.master.look_for_end());
  (void)job.master.share_said({2, "a", 0, {1}, {}});
  EXPECT_FALSE(job.master.look_for_end());
  EXPECT_FALSE(job.master.roster().ending);
}

TEST(RosterMaster, ARoundEndsWhenNobodyHasTheStateAndAllKnowWhoIsGone) {
  TwoShares job;
  (void)job.master.worker_said(waits(2));
  (void)job.master.share_said({1, "a", 0, {}, {1}});
  EXPECT_FALSE(job.master.look_for_end()) << "2 may have got the state from 1 after it spoke";
  (void)job.master.worker_said(waits(2, 1));
  EXPECT_TRUE(job.master.look_for_end());
  EXPECT_TRUE(job.master.roster().ending);
  (void)job.master.take_actions();
  (void)job.master.share_said({1, "b", 0, {}, {2}});
  EXPECT_TRUE(words_to(job.master, 2).empty()) << "nothing is said while a round ends";
  EXPECT_TRUE(job.master.look_for_end());
  EXPECT_EQ(job.master.roster().round, 2);
}

TEST(RosterMaster, TheNextMasterGoesOnWithARoundThatEnds) {
  TwoShares job;
  job.master.share_gone("b");
  (void)job.master.worker_said(waits(1));
  EXPECT_TRUE(job.master.look_for_end());
  RosterMaster next(job.store, job.store.newest());
  EXPECT_TRUE(next.roster().ending);
  EXPECT_FALSE(next.add_worker("a"));
  (void)next.share_said({2, "a", 0, {1}, {}});
  bool killed = false;
  for (const auto& action : next.take_actions()) {
    const auto* order = std::get_if<RosterMaster::SayToShare>(&action);
    killed |= order != nullptr && std::holds_alternative<wire::KillOrder>(order->order);
  }
  EXPECT_TRUE(killed);
}

TEST(RosterMaster, WhatWasSaidOnAnOlderConnectionCountsNoMore) {
  TwoShares job;
  wire::WorkerHello later = waits(1);
  later.connection = 5;
  EXPECT_TRUE(job.master.worker_said(later));
  EXPECT_FALSE(job.master.worker_said(works(1, 1)));
  job.silence_b();
  EXPECT_FALSE(job.master.exclude_silent());
  EXPECT_TRUE(job.master.share_said({5, "a", 0, {1}, {}}));
  EXPECT_FALSE(job.master.share_said({1, "a", 0, {}, {1}}));
}

TEST(ShareState, StartsNoWorkerTwiceAndRepeatsEnds) {
  ShareState share("a");
  EXPECT_TRUE(share.start({1, 1, 7}));
  EXPECT_FALSE(share.start({1, 1, 7}));
  share.ended(8);  // not one of its own
  share.ended(7);
  EXPECT_EQ(share.hello(1).ended, std::vector<Uid>{7});
  EXPECT_FALSE(share.start({1, 2, 7}));
  EXPECT_EQ(share.hello(2).ended, std::vector<Uid>{7});
  share.kept({2, {7}});
  EXPECT_TRUE(share.hello(3).ended.empty());
  EXPECT_FALSE(share.start({1, 2, 7}));
}

TEST(ShareState, RefusesAnEarlierMaster) {
  ShareState share("a");
  EXPECT_TRUE(share.start({1, 3, 1}));
  EXPECT_FALSE(share.start({1, 2, 2}));
  EXPECT_FALSE(share.kill({1, 2, 1}));
  EXPECT_TRUE(share.kill({1, 3, 1}));
  EXPECT_FALSE(share.kill({1, 3, 2}));
}

}  // namespace
}  // namespace rubato::launch
