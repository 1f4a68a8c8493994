// Decisions that take longer than a turn: everybody but those who wait for a verdict goes on, and
// what is stored is as good after a crash, and in a replay, as if each had been made at once.
#include <chrono>
#include <gtest/gtest.h>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "rubato/daemon/background_threads.h"
#include "rubato/daemon/testing_background.h"
#include "rubato/daemon/testing_daemon.h"

namespace rubato::daemon {
namespace {

class Decisions : public ::testing::Test {
 protected:
  Decisions() { daemon.options.background = background; }

  // The answer, if it came in that turn.
  std::optional<Answer> ask(const Caller& caller, Ask what) {
    const std::uint64_t id = ++asked_;
    const Turn turn = daemon.turn({Asked{id, {caller, std::move(what)}}});
    for (const auto& [to, answer] : turn.answers) {
      if (to == id) return answer;
    }
    return std::nullopt;
  }
  std::optional<Answer> submit(JobFile file, const std::string& key = "") {
    return ask(kAda, SubmitJob{std::move(file), key, false});
  }
  // The answers of one more turn.
  std::vector<std::pair<std::uint64_t, Answer>> next() {
    daemon.now += from_seconds(0.5);
    return daemon.turn().answers;
  }
  [[nodiscard]] const DaemonState& state() const { return daemon.core->state(); }

  std::shared_ptr<HeldBackground> background = std::make_shared<HeldBackground>();
  TestDaemon daemon{"2x4"};

 private:
  std::uint64_t asked_ = 1000;
};

TEST_F(Decisions, OthersAreAnsweredWhileThePolicyDecides) {
  daemon.start();
  const auto first = submit(job_file("first", 1e5, 2, 2));
  ASSERT_TRUE(first) << "it is decided at once";
  EXPECT_EQ(first->status, 201);
  background->held = true;
  EXPECT_FALSE(submit(job_file("second", 1e5, 2, 2))) << "it has no verdict yet";
  ASSERT_TRUE(state().asked());
  EXPECT_EQ(daemon.state(JobId(2)), "PENDING") << "but it is stored, and everybody sees it";
  ASSERT_TRUE(ask(kAda, ListJobs{}));
  const auto held = ask(kAda, HoldJob{JobId(1), true});
  ASSERT_TRUE(held);
  EXPECT_EQ(held->status, 200);
  const auto cancelled = ask(kAda, CancelJob{JobId(1)});
  ASSERT_TRUE(cancelled);
  EXPECT_EQ(cancelled->status, 200);
  EXPECT_TRUE(next().empty());
  EXPECT_EQ(daemon.core->again_at(), kNever) << "whoever thinks calls when it is done";
  background->held = false;
  const auto answers = next();
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_EQ(answers[0].second.status, 201);
  EXPECT_EQ(answers[0].second.body["id"], 2);
  EXPECT_FALSE(answers[0].second.body["verdict"].is_null());
  daemon.pass(10);
  EXPECT_EQ(daemon.state(JobId(1)), "CANCELLED");
  EXPECT_EQ(daemon.state(JobId(2)), "RUNNING");
  daemon.expect_replay();
}

TEST_F(Decisions, WhoComesMeanwhileWaitsForTheNextDecision) {
  daemon.start();
  background->held = true;
  EXPECT_FALSE(submit(job_file("first", 1e5, 8, 8)));
  EXPECT_FALSE(submit(job_file("second", 1e5, 8, 8)));
  EXPECT_FALSE(submit(job_file("third", 1e5, 1, 1), "key"));
  EXPECT_FALSE(submit(job_file("third", 1e5, 1, 1), "key")) << "the same again";
  EXPECT_EQ(background->started, 1);
  EXPECT_EQ(state().alive(), 3U);
  background->held = false;
  const auto answers = next();
  EXPECT_EQ(background->started, 2);
  ASSERT_EQ(answers.size(), 4U) << "the second decision was quick";
  for (const auto& [id, answer] : answers) EXPECT_LE(answer.status, 201);
  EXPECT_EQ(answers[1].second.body["verdict"]["position"], 1);
  daemon.expect_replay();
}

TEST_F(Decisions, ARefusalThatNeedsNoPolicyDoesNotWait) {
  daemon.start();
  background->held = true;
  EXPECT_FALSE(submit(job_file("first", 1e5, 1, 1)));
  const auto refused = submit(job_file("large", 1e5, 100, 100));
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->status, 409);
  const auto wrong = ask(kAda, CancelJob{JobId(77)});
  ASSERT_TRUE(wrong);
  EXPECT_EQ(wrong->status, 404);
}

TEST_F(Decisions, WhatNoLongerFitsIsDecidedAgain) {
  daemon.start();
  background->held = true;
  EXPECT_FALSE(submit(job_file("first", 1e5, 4, 4)));
  EXPECT_FALSE(submit(job_file("second", 1e5, 4, 4)));
  ASSERT_TRUE(ask(kRoot, SetNode{node_id(0), NodeState::down}));
  ASSERT_TRUE(ask(kAda, CancelJob{JobId(1)}));
  ASSERT_TRUE(ask(kAda, ResizeJob{JobId(2), {2, 2, {}}}));
  background->held = false;
  daemon.pass(5);
  EXPECT_EQ(daemon.state(JobId(1)), "CANCELLED");
  EXPECT_EQ(daemon.state(JobId(2)), "RUNNING");
  EXPECT_EQ(state().view(JobId(2))->held.gpus(), 2);
  EXPECT_EQ(state().view(JobId(2))->held.slices().front().node, node_id(1));
  EXPECT_TRUE(daemon.world.violations.empty());
  daemon.expect_replay();
}

TEST_F(Decisions, AnotherPolicyTakesOverAtOnce) {
  daemon.start();
  background->held = true;
  EXPECT_FALSE(submit(job_file("first", 1e5, 1, 4)));
  EXPECT_FALSE(ask(kRoot, SwitchPolicy{"afs-l"})) << "its first decision is under way";
  EXPECT_EQ(background->started, 2) << "nobody waits for what the other would have said";
  EXPECT_EQ(state().policy().text, "afs-l");
  background->held = false;
  EXPECT_EQ(next().size(), 2U);
  daemon.pass(60);
  EXPECT_EQ(state().view(JobId(1))->held.gpus(), 4);
  daemon.expect_replay();
}

TEST_F(Decisions, ADaemonThatDiesMeanwhileAsksAgain) {
  daemon.options.policy = "elasticflow";
  daemon.start();
  for (const bool with_snapshot : {false, true}) {
    background->held = true;
    const std::string name = with_snapshot ? "saved" : "killed";
    EXPECT_FALSE(submit(job_file(name, 100, 1, 1), name));
    ASSERT_TRUE(ask(kAda, ShowPolicy{}));
    if (with_snapshot) {
      ASSERT_TRUE(daemon.core->close());
    }
    const auto before = state().snapshot().value();
    daemon.kill();
    daemon.now += from_seconds(3);
    daemon.start();
    EXPECT_EQ(state().snapshot().value(), before);
    background->held = false;
    EXPECT_LE(daemon.core->again_at(), daemon.core->time());
    const auto again = submit(job_file(name, 100, 1, 1), name);
    ASSERT_TRUE(again);
    EXPECT_EQ(again->status, 200);
    EXPECT_TRUE(daemon.pass_until([&] { return state().alive() == 0; }, 300));
    daemon.expect_replay();
  }
}

TEST_F(Decisions, AnAnswerThatCannotBeStoredIsAskedForAgain) {
  daemon.options.policy = "elasticflow";
  daemon.start();
  background->held = true;
  EXPECT_FALSE(submit(job_file("first", 100, 1, 1)));
  daemon.judge = [](std::string_view) { return SQLITE_FULL; };
  background->held = false;
  EXPECT_TRUE(next().empty()) << "its job is stored: it hears when that can be said";
  EXPECT_FALSE(daemon.core->trouble().empty());
  EXPECT_EQ(ask(kAda, ShowJob{JobId(1)})->status, 200);
  EXPECT_EQ(submit(job_file("other", 100, 1, 1))->status, 503);
  daemon.judge = nullptr;
  std::vector<std::pair<std::uint64_t, Answer>> answers;
  for (int i = 0; i < 6 && answers.empty(); ++i) answers = next();
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_EQ(answers[0].second.status, 201);
  daemon.pass(20);
  EXPECT_EQ(daemon.state(JobId(1)), "COMPLETED");
  daemon.expect_replay();
}

// The question is not stored either: its policy thinks of a past that never was.
TEST_F(Decisions, AQuestionThatCannotBeStoredIsDropped) {
  daemon.start();
  background->held = true;
  daemon.judge = [](std::string_view) { return SQLITE_FULL; };
  EXPECT_EQ(submit(job_file("first", 100, 1, 1))->status, 503);
  daemon.judge = nullptr;
  daemon.now += from_seconds(2);
  EXPECT_FALSE(submit(job_file("second", 100, 1, 1)));
  EXPECT_EQ(background->started, 2);
  background->held = false;
  EXPECT_EQ(next().size(), 1U);
  daemon.pass(20);
  EXPECT_EQ(daemon.state(JobId(1)), "COMPLETED");
  daemon.expect_replay();
}

TEST_F(Decisions, BetweenTwoIntervalsNobodyWaits) {
  daemon.options.interval = from_seconds(60);
  daemon.start();
  background->held = true;
  EXPECT_FALSE(submit(job_file("first", 1e5, 1, 1)));
  EXPECT_FALSE(submit(job_file("second", 1e5, 1, 1))) << "it may be asked about it any moment";
  background->held = false;
  const auto answers = next();
  ASSERT_EQ(answers.size(), 2U);
  EXPECT_EQ(background->started, 1) << "the next decision is a minute away";
  EXPECT_EQ(daemon.state(JobId(2)), "PENDING");
  ASSERT_TRUE(submit(job_file("third", 1e5, 1, 1)));
  daemon.pass(61);
  EXPECT_EQ(daemon.state(JobId(2)), "RUNNING");
  daemon.expect_replay();
}

TEST_F(Decisions, ADryRunDoesNotHoldUpAnybody) {
  daemon.start();
  background->held = true;
  EXPECT_FALSE(ask(kAda, SubmitJob{job_file("try", 1e5, 1, 4), "", true}));
  EXPECT_FALSE(state().asked());
  const auto other = ask(kAda, ListJobs{});
  ASSERT_TRUE(other);
  EXPECT_TRUE(other->body["jobs"].empty());
  background->held = false;
  const auto answers = next();
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_EQ(answers[0].second.body["dry_run"], true);
  EXPECT_EQ(answers[0].second.body["verdict"]["text"], "would start now on 1 GPU");
}

// Rows before the snapshot are gone, and with them the loop that the policy was asked about.
TEST_F(Decisions, ReplayBelievesAnAnswerWhoseQuestionIsNoLongerKept) {
  daemon.options.policy = "elasticflow";
  daemon.options.keep_journal = from_seconds(3600);
  daemon.start();
  for (int hour = 0; hour < 4; ++hour) {
    background->held = true;
    const std::string name = "job" + std::to_string(hour);
    EXPECT_FALSE(submit(job_file(name, 100, 2, 2)));
    ASSERT_TRUE(daemon.core->save());
    background->held = false;
    daemon.pass(3000, 5);
  }
  const auto replayed = replay(daemon.directory.path(), daemon.options.state);
  ASSERT_TRUE(replayed) << replayed.error().message;
  EXPECT_GT(replayed->after, RowNumber(1));
  EXPECT_FALSE(replayed->difference) << replayed->difference->computed;
  EXPECT_GT(replayed->decisions, 0U) << "later ones are compared";
}

// Every decision on a thread of its own, none waited for: what comes out is as if each had been
// made at once, and replays.
TEST(DecisionsOnThreads, Replay) {
  TestDaemon daemon("4x4");
  daemon.options.policy = "pollux";
  daemon.options.background =
      std::make_shared<BackgroundThreads>(std::chrono::milliseconds(0), [] {});
  daemon.start();
  for (int i = 0; i < 12; ++i)
    static_cast<void>(daemon.turn(
        {Asked{static_cast<std::uint64_t>(i),
               {kAda, SubmitJob{job_file("job" + std::to_string(i), 300, 1, 4), "", false}}}}));
  const auto over = [&] { return daemon.core->state().alive() == 0; };
  for (int i = 0; i < 100'000 && !over(); ++i) {
    if (daemon.core->state().asked()) {
      std::this_thread::yield();
      static_cast<void>(daemon.turn());
    } else {
      daemon.pass(0.5);
    }
  }
  EXPECT_TRUE(over());
  EXPECT_EQ(daemon.answers.size(), 12U);
  EXPECT_TRUE(daemon.world.violations.empty());
  daemon.expect_replay();
}

}  // namespace
}  // namespace rubato::daemon
