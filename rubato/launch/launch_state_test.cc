#include "rubato/launch/launch_state.h"

#include <csignal>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "rubato/base/text.h"
#include "rubato/launch/live_run.h"
#include "rubato/launch/restart_run.h"

namespace rubato::launch {
namespace {

// One line of a story: what happens, and the orders that must follow (separated by "; ").
struct Line {
  const char* input;
  const char* orders;
};

LaunchLimits limits(int least, int most, int start, int max_failures = 3) {
  LaunchLimits result;
  result.least = least;
  result.most = most;
  result.start = start;
  result.max_failures = max_failures;
  return result;
}

class Story {
 public:
  explicit Story(std::unique_ptr<LaunchState> state) : state_(std::move(state)) {
    state_->begin(now_);
    first_ = orders();
  }

  const std::string& first() const { return first_; }
  LaunchState& state() { return *state_; }

  // "hello 2", "exit 2 0", "killed 2 9", "resize 3", "notice 2 KIND {json}", "beat 2", "after 5"
  // (seconds, in which all living workers beat), "silence 5" (no worker beats), "sleep 5" (the
  // launcher was stopped), "stop 15", "kill", "kill 2". For a managed run also "place 0.1 0.2",
  // "end", "kill-all".
  std::string play(const std::string& input) {
    const auto words = split(input, ' ');
    const std::string verb(words[0]);
    const auto number = [&](std::size_t i) {
      return static_cast<int>(parse_integer(words.at(i)).value());
    };
    std::string error;
    if (verb == "hello") {
      wire::Hello hello;
      hello.uid = number(1);
      if (!state_->said_hello(now_, hello)) error = "no";
    } else if (verb == "exit" || verb == "killed") {
      state_->exited(now_, number(1), {verb == "killed", number(2)});
    } else if (verb == "resize") {
      const auto done = state_->resize(now_, number(1));
      if (!done) error = done.error().message;
    } else if (verb == "place") {
      std::vector<Slot> slots;
      for (std::size_t i = 1; i < words.size(); ++i) slots.emplace_back(words[i]);
      const auto done = state_->place(now_, slots);
      if (!done) error = done.error().message;
    } else if (verb == "end") {
      state_->stop_managed(now_, "stopped by its manager");
    } else if (verb == "kill-all") {
      state_->kill_all(now_, "killed");
    } else if (verb == "notice") {
      const auto brace = input.find('{');
      const Json content =
          brace == std::string::npos ? Json::object() : Json::parse(input.substr(brace));
      state_->heard(now_, number(1), wire::Notice{std::string(words[2]), content});
    } else if (verb == "beat") {
      state_->heard(now_, number(1), wire::Beat{1});
    } else if (verb == "after" || verb == "silence") {
      for (int i = 0; i < 10 * number(1); ++i) {
        now_ += std::chrono::milliseconds(100);
        if (verb == "after") {
          for (const Uid uid : state_->living()) state_->heard(now_, uid, wire::Beat{1});
        }
        state_->pass(now_);
      }
    } else if (verb == "sleep") {
      now_ += std::chrono::seconds(number(1));
      state_->pass(now_);
    } else if (verb == "stop") {
      state_->stop(now_, number(1));
    } else if (verb == "kill") {
      const auto done =
          state_->kill(words.size() > 1 ? std::optional<Uid>(number(1)) : std::nullopt);
      if (!done) error = done.error().message;
    } else {
      ADD_FAILURE() << "unknown input " << input;
    }
    const std::string result = orders();
    return error.empty() ? result : "error: " + error;
  }

  void expect(const std::vector<Line>& lines) {
    for (const Line& line : lines) EXPECT_EQ(play(line.input), line.orders) << line.input;
  }
  void expect_outcome(int code, const std::string& part = "") {
    ASSERT_TRUE(state_->outcome().has_value());
    EXPECT_EQ(state_->outcome()->code, code);
    EXPECT_NE(state_->outcome()->why.find(part), std::string::npos) << state_->outcome()->why;
  }
  void expect_counts(int failures, int resizes) {
    EXPECT_EQ(state_->counts().failures, failures);
    EXPECT_EQ(state_->counts().resizes, resizes);
  }

 private:
  // Without texts for people, because they may be reworded.
  std::string orders() {
    std::string text;
    for (const Order& order : state_->take_orders()) {
      if (std::holds_alternative<Tell>(order)) continue;
      text += (text.empty() ? "" : "; ") + to_text(order);
    }
    return text;
  }

  std::unique_ptr<LaunchState> state_;
  Time now_ = time_at(1000);
  std::string first_;
};

Story live(LaunchLimits l) { return Story(std::make_unique<LiveRun>(l)); }
Story restart(LaunchLimits l) { return Story(std::make_unique<RestartRun>(l)); }

TEST(LiveRun, StartsOneFounderAndFinishes) {
  Story story = live(limits(1, 4, 2));
  EXPECT_EQ(story.first(), "start 1") << "the others come when it has spoken";
  story.expect({{"hello 1", "start 2; welcome founder (1 2) peers () to 1"},
                {"hello 2", "welcome (1 2) peers (1) to 2"},
                {"hello 1", "error: no"},
                {"hello 7", "error: no"},
                {"exit 1 0", "stop to 2"},
                {"exit 2 0", ""}});
  story.expect_outcome(0);
  story.expect_counts(0, 0);
}

TEST(LiveRun, GrowsAndShrinksByTheNewest) {
  Story story = live(limits(1, 4, 1));
  story.expect({{"hello 1", "welcome founder (1) peers () to 1"},
                {"resize 3", "start 2; start 3; plan 2 (1 2 3) to 1"},
                {"hello 3", "welcome (1 2 3) peers (1) to 3"},
                {"resize 3", ""},
                {"resize 2", "plan 3 (1 2) to 1; plan 3 (1 2) to 3"},
                {"exit 3 3", ""},
                {"hello 2", "welcome (1 2) peers (1) to 2"},
                {"resize 0",
                 "error: 0 workers are outside 1:4, the limits this run was started "
                 "with"},
                {"resize 5",
                 "error: 5 workers are outside 1:4, the limits this run was started "
                 "with"}});
  story.expect_counts(0, 2);
}

TEST(LiveRun, ASupersededJoinerIsKilledAtOnceIfItIsStillLoadingElseAfterTheGrace) {
  Story story = live(limits(1, 4, 2));
  story.expect({{"hello 1", "start 2; welcome founder (1 2) peers () to 1"},
                {"hello 2", "welcome (1 2) peers (1) to 2"},
                {R"(notice 1 members {"uids": [1, 2]})", ""},
                {"resize 4", "start 3; start 4; plan 2 (1 2 3 4) to 1; plan 2 (1 2 3 4) to 2"},
                {"hello 3", "welcome (1 2 3 4) peers (1 2) to 3"},
                {"resize 1", "signal 4 9; plan 3 (1) to 1; plan 3 (1) to 2; plan 3 (1) to 3"},
                {"killed 4 9", ""},
                {"after 9", ""},
                {"after 2", "signal 3 9"},
                {"killed 3 9", ""},
                {"after 60", ""},
                {R"(notice 1 members {"uids": [1]})", ""},
                {"after 11", "signal 2 9"},
                {"killed 2 9", ""}});
  story.expect_counts(0, 2);
}

using Slots = std::set<Slot>;

std::unique_ptr<LaunchState> placed(std::unique_ptr<LaunchState> state,
                                    const std::vector<Slot>& slots) {
  CHECK(state->place(time_at(1000), slots).ok());
  return state;
}

TEST(LiveRun, AManagedRunHasItsWorkersWhereItIsTold) {
  Story story(placed(std::make_unique<LiveRun>(limits(1, 1, 1)), {"0.0"}));
  EXPECT_EQ(story.first(), "start 1 at 0.0");
  story.expect({{"hello 1", "welcome founder (1) peers () to 1"},
                {"place 0.1 0.1", "error: a slot is named twice"},
                {"place 0.1 0.2 1.0",
                 "start 2 at 0.1; start 3 at 0.2; start 4 at 1.0; plan 2 (2 3 4) to 1"}});
  EXPECT_EQ(story.state().slots_in_use(), (Slots{"0.0", "0.1", "0.2", "1.0"}));
  story.expect({{"hello 2", "welcome (2 3 4) peers (1) to 2"},
                {"hello 3", "welcome (2 3 4) peers (1 2) to 3"},
                {"exit 1 3", ""},
                {"killed 2 9", "start 5 at 0.1; plan 3 (3 4 5) to 3"},
                {"place 0.2 1.3", "signal 4 9; signal 5 9; start 6 at 1.3; plan 4 (3 6) to 3"}});
  EXPECT_EQ(story.state().slots_in_use(), (Slots{"0.1", "0.2", "1.0", "1.3"}));
  story.expect({{"killed 4 9", ""}, {"killed 5 9", ""}});
  EXPECT_EQ(story.state().slots_in_use(), (Slots{"0.2", "1.3"}));
  story.expect({{"place 1.3 0.2", ""}});
  story.expect_counts(1, 2);
}

TEST(LiveRun, AManagedRunIsSettledWhenItsWorkersTrain) {
  Story story(placed(std::make_unique<LiveRun>(limits(1, 1, 1)), {"0.0", "0.1"}));
  LaunchState& run = story.state();
  story.expect({{"hello 1", "start 2 at 0.1; welcome founder (1 2) peers () to 1"}});
  story.play(R"(notice 1 members {"uids": [1], "generation": [1, 1]})");
  EXPECT_FALSE(run.settled());
  story.play("hello 2");
  story.play(R"(notice 1 members {"uids": [1, 2], "generation": [1, 2], "members":
      [{"uid": 1, "role": "working"}, {"uid": 2, "role": "joining"}]})");
  EXPECT_FALSE(run.settled()) << "one is on its way in";
  story.play(R"(notice 1 members {"uids": [1, 2], "generation": [1, 3], "members":
      [{"uid": 1, "role": "working"}, {"uid": 2, "role": "working"}]})");
  EXPECT_TRUE(run.settled());
  story.play("place 0.0");
  EXPECT_FALSE(run.settled());
  story.play(R"(notice 1 members {"uids": [1], "generation": [2, 1]})");
  EXPECT_FALSE(run.settled()) << "its process has not been collected";
  EXPECT_EQ(run.slots_in_use(), (Slots{"0.0", "0.1"}));
  story.play("exit 2 3");
  EXPECT_TRUE(run.settled());
  story.play("end");
  EXPECT_FALSE(run.settled());
}

TEST(LiveRun, AManagedRunEndsWhenItIsTold) {
  Story story(placed(std::make_unique<LiveRun>(limits(1, 1, 1)), {"0.0", "0.1"}));
  story.expect({{"hello 1", "start 2 at 0.1; welcome founder (1 2) peers () to 1"},
                {"end", "stop to 1; signal 2 15"},
                {"end", ""},
                {"place 0.0", "error: the run is ending"},
                {"killed 2 15", ""},
                {"exit 1 3", ""}});
  story.expect_outcome(128 + SIGTERM, "stopped by its manager");
  EXPECT_TRUE(story.state().outcome()->stopped);
}

TEST(LiveRun, AManagedRunMayFinishWhileItEnds) {
  Story story(placed(std::make_unique<LiveRun>(limits(1, 1, 1)), {"0.0"}));
  story.expect({{"hello 1", "welcome founder (1) peers () to 1"},
                {R"(notice 1 members {"uids": [1]})", ""},
                {"end", "stop to 1"},
                {"notice 1 finished", ""},
                {"exit 1 0", ""}});
  story.expect_outcome(0);
  EXPECT_FALSE(story.state().outcome()->stopped);
}

TEST(LiveRun, AManagedRunIsKilledWhateverItDoes) {
  for (const bool ending : {false, true}) {
    Story story(placed(std::make_unique<LiveRun>(limits(1, 1, 1)), {"0.0"}));
    story.play("hello 1");
    story.play(R"(notice 1 members {"uids": [1]})");
    if (ending) story.play("end");
    story.expect({{"kill-all", "signal 1 9"}, {"notice 1 finished", ""}, {"killed 1 9", ""}});
    story.expect_outcome(128 + SIGKILL, "killed");
    EXPECT_FALSE(story.state().outcome()->stopped);
  }
}

TEST(LiveRun, AManagedRunDoesNotGoOnWithFewer) {
  Story story(placed(std::make_unique<LiveRun>(limits(1, 4, 2, 0)), {"0.0", "0.1"}));
  story.expect({{"hello 1", "start 2 at 0.1; welcome founder (1 2) peers () to 1"},
                {"hello 2", "welcome (1 2) peers (1) to 2"},
                {"killed 2 9", "stop to 1"},
                {"exit 1 3", ""}});
  story.expect_outcome(1, "worker 2 was killed by signal 9 (Killed), failure 1 of at most 0");
}

TEST(LiveRun, ReplacesTheDeadUpToTheLimit) {
  Story story = live(limits(2, 3, 3, 1));
  story.expect({{"hello 1", "start 2; start 3; welcome founder (1 2 3) peers () to 1"},
                {"hello 2", "welcome (1 2 3) peers (1) to 2"},
                {"hello 3", "welcome (1 2 3) peers (1 2) to 3"},
                {"killed 1 9", "start 4; plan 2 (2 3 4) to 2; plan 2 (2 3 4) to 3"},
                {"hello 4", "welcome (2 3 4) peers (2 3) to 4"},
                {"exit 3 1", "plan 3 (2 4) to 2; plan 3 (2 4) to 4"},
                {"exit 4 1", "stop to 2"},
                {"exit 2 0", ""}});
  story.expect_outcome(1, "worker 4 exited with code 1, failure 3 of at most 1; with 1 workers of");
  story.expect_counts(3, 0);
}

TEST(LiveRun, ProgramsThatDieYoungAreStartedEverMoreSlowly) {
  Story story = live(limits(1, 1, 1));
  story.expect({{"exit 1 1", "start 2"},
                {"exit 2 1", ""},
                {"after 1", "start 3"},
                {"exit 3 1", ""},
                {"after 1", "start 4"},
                {"exit 4 1", ""}});
  story.expect_outcome(1, "failure 4 of at most 3");
}

TEST(LiveRun, RefusalIsNotTriedAgain) {
  Story story = live(limits(2, 3, 3));
  story.expect({{"hello 1", "start 2; start 3; welcome founder (1 2 3) peers () to 1"},
                {"hello 2", "welcome (1 2 3) peers (1) to 2"},
                {"exit 3 2", "plan 2 (1 2) to 1; plan 2 (1 2) to 2"},
                {R"(notice 2 refused {"text": "another model"})", ""},
                {"exit 2 2", "stop to 1"},
                {"exit 1 0", ""}});
  story.expect_outcome(2, "another model");
  story.expect_counts(0, 0);
}

TEST(LiveRun, AFailureOfTheJobStopsAll) {
  Story story = live(limits(1, 2, 2));
  story.expect({{"hello 1", "start 2; welcome founder (1 2) peers () to 1"},
                {"hello 2", "welcome (1 2) peers (1) to 2"},
                {R"(notice 1 failed {"text": "the loss is not a number"})", ""},
                {"exit 1 4", ""},
                {"after 9", ""},
                {"after 2", "signal 2 15"},
                {"after 2", "signal 2 9"},
                {"killed 2 9", ""}});
  story.expect_outcome(1, "the loss is not a number");
}

TEST(LiveRun, WhoJoinsMayBeSilentForLonger) {
  Story story = live(limits(1, 2, 2));
  story.expect({{"hello 1", "start 2; welcome founder (1 2) peers () to 1"},
                {"hello 2", "welcome (1 2) peers (1) to 2"}});
  // It has a low priority, and others use all processors.
  for (int i = 0; i < 10; ++i) {
    story.play("beat 1");
    EXPECT_EQ(story.play("silence 4"), "");
  }
  story.play(R"(notice 1 members {"uids": [1, 2], "members":
      [{"uid": 1, "role": "working"}, {"uid": 2, "role": "working"}]})");
  EXPECT_EQ(story.play("silence 4"), "") << "its time begins when it trains";
  story.play("beat 1");
  EXPECT_EQ(story.play("silence 2"), "signal 2 9") << "now the others wait for it";
}

TEST(LiveRun, SilenceIsEndedByForce) {
  Story story = live(limits(1, 2, 2));
  story.expect({{"hello 1", "start 2; welcome founder (1 2) peers () to 1"},
                {"silence 4", ""},
                {"beat 1", ""},
                {"silence 4", ""},
                {"hello 2", "welcome (1 2) peers (1) to 2"},
                {"silence 2", "signal 1 9"},
                {"killed 1 9", "start 3; plan 2 (2 3) to 2"},
                {"beat 2", ""},
                // The launcher was stopped, so it could not hear any worker.
                {"sleep 60", ""},
                {"silence 4", ""},
                {"beat 2", ""},
                {"sleep 60", ""},
                {"beat 2", ""}});
  for (int i = 0; i < 28; ++i) {
    story.play("beat 2");
    EXPECT_EQ(story.play("silence 4"), "");
  }
  EXPECT_EQ(story.play("after 9"), "signal 3 9") << "no Hello for two minutes";
  story.expect_counts(1, 0);
}

// On a busy machine a worker of low priority may never have loaded in time.
TEST(LiveRun, AfterAWorkerThatDiedWhileItLoadedTheNextOneHasAnOrdinaryPriority) {
  LiveRun run(limits(1, 2, 2));
  Time now = time_at(1);
  std::vector<bool> low;
  const auto take_starts = [&] {
    for (const Order& order : run.take_orders()) {
      if (const auto* start = std::get_if<StartWorker>(&order)) low.push_back(start->low_priority);
    }
  };
  run.begin(now);
  take_starts();
  EXPECT_TRUE(run.said_hello(now, {1, "", 1, "tcp:127.0.0.1:1"}));
  take_starts();
  run.exited(now, 2, {true, 9});
  for (int i = 0; i < 100; ++i) {
    run.pass(now += from_seconds(0.1));
    take_starts();
  }
  EXPECT_EQ(low, (std::vector<bool>{false, true, false}));
}

TEST(LiveRun, StartsOverOnlyWhenNobodyCanHaveTheState) {
  Story story = live(limits(1, 3, 3));
  story.expect({{"hello 1", "start 2; start 3; welcome founder (1 2 3) peers () to 1"},
                {"hello 2", "welcome (1 2 3) peers (1) to 2"},
                {"killed 1 9", "start 4; plan 2 (2 3 4) to 2"},
                {"hello 3", "welcome (2 3 4) peers (2) to 3"},
                {"notice 2 stranded", ""},
                // Worker 4 has sent no Hello and so has no state. But it counts until it is dead.
                {"notice 3 stranded", "signal 2 9; signal 3 9; signal 4 9"},
                {"hello 4", "error: no"},
                {"resize 2", ""},
                {"killed 2 9", ""},
                {"killed 4 9", ""},
                {"killed 3 9", "start 5; start 6"},
                {"hello 6", "welcome founder (5 6) peers () to 6"},
                {"hello 5", "welcome (5 6) peers (6) to 5"}});
  story.expect_counts(2, 1);
  EXPECT_EQ(story.state().counts().fresh_starts, 1);
}

TEST(LiveRun, WhoeverDiesBeforeAnybodySpokeIsReplaced) {
  Story story = live(limits(1, 2, 2));
  story.expect({{"killed 1 9", "start 2"},
                {"killed 2 9", ""},  // two died young, so there is a short pause
                {"after 1", "start 3"},
                {"hello 3", "start 4; welcome founder (3 4) peers () to 3"},
                {"hello 4", "welcome (3 4) peers (3) to 4"}});
  story.expect_counts(2, 0);
  EXPECT_EQ(story.state().counts().fresh_starts, 0);
}

// If a job moves while its workers load, it continues to load in the new slots.
TEST(LiveRun, WorkersMayAllBeExchangedBeforeAnybodySpoke) {
  Story story(placed(std::make_unique<LiveRun>(limits(1, 1, 1)), {"1.3"}));
  story.expect({{"place 1.3 1.0", ""},
                {"place 1.0", "signal 1 15"},
                {"hello 1", "error: no"},
                {"exit 1 0", "start 2 at 1.0"},
                {"place 0.1", "signal 2 15"},
                {"killed 2 15", "start 3 at 0.1"},
                {"hello 3", "welcome founder (3) peers () to 3"}});
  story.expect_counts(0, 3);
  EXPECT_EQ(story.state().counts().fresh_starts, 0);
}

TEST(LiveRun, TheLastWorkersDeathCountsOnce) {
  Story story = live(limits(1, 1, 1, 1));
  story.expect({{"hello 1", "welcome founder (1) peers () to 1"},
                {"killed 1 9", "start 2"},
                {"hello 2", "welcome founder (2) peers () to 2"},
                {"killed 2 9", ""}});
  story.expect_outcome(1, "failure 2 of at most 1");
}

TEST(LiveRun, StrandedTooOftenEnds) {
  Story story = live(limits(1, 1, 1, 0));
  story.expect({{"hello 1", "welcome founder (1) peers () to 1"},
                {"notice 1 stranded", "stop to 1"},
                {"exit 1 1", ""}});
  story.expect_outcome(1, "no worker is left that could continue");
}

TEST(LiveRun, AFinishedJobStaysFinished) {
  Story story = live(limits(1, 4, 3));
  story.expect({{"hello 1", "start 2; start 3; welcome founder (1 2 3) peers () to 1"},
                {"hello 2", "welcome (1 2 3) peers (1) to 2"},
                {R"(notice 1 members {"uids": [1, 2]})", ""},
                {R"(notice 1 finished {"step": 9})", "signal 3 15"},
                {"killed 1 11", ""},
                {"exit 2 0", ""},
                {"killed 3 15", ""}});
  story.expect_outcome(0);
  story.expect_counts(1, 0);
}

// It was accepted for a step that never happened.
TEST(LiveRun, AMemberThatLeavesAFinishedJobHasNotFailed) {
  Story story = live(limits(1, 4, 2));
  story.expect({{"hello 1", "start 2; welcome founder (1 2) peers () to 1"},
                {"hello 2", "welcome (1 2) peers (1) to 2"},
                {R"(notice 1 members {"uids": [1, 2]})", ""},
                {R"(notice 1 finished {"step": 9})", ""},
                {"exit 1 0", ""},
                {"exit 2 3", ""}});
  story.expect_outcome(0);
  story.expect_counts(0, 0);
}

// Its manager may not have heard that it is done. New workers would find nobody to join.
TEST(LiveRun, AJobThatIsDoneDoesNotGrow) {
  Story story = live(limits(1, 4, 1));
  story.expect({{"hello 1", "welcome founder (1) peers () to 1"},
                {R"(notice 1 members {"uids": [1]})", ""},
                {R"(notice 1 finished {"step": 9})", ""},
                {"resize 3", ""},
                {"after 1", ""},
                {"exit 1 0", ""}});
  story.expect_outcome(0);

  Story managed(placed(std::make_unique<LiveRun>(limits(1, 4, 1)), {"0.0"}));
  managed.expect({{"hello 1", "welcome founder (1) peers () to 1"},
                  {R"(notice 1 members {"uids": [1]})", ""},
                  {R"(notice 1 finished {"step": 9})", ""},
                  {"place 0.0 0.1 0.2", ""},
                  {"after 1", ""},
                  {"exit 1 0", ""}});
  managed.expect_outcome(0);
}

TEST(LiveRun, AReplacementThatWaitsIsNotStartedForAJobThatIsDone) {
  Story story = live(limits(1, 4, 2, 9));
  story.expect({{"hello 1", "start 2; welcome founder (1 2) peers () to 1"},
                {R"(notice 1 members {"uids": [1]})", ""}});
  story.play("killed 2 11");
  story.play("killed 3 11");
  story.play("killed 4 11");
  story.expect({{R"(notice 1 finished {"step": 9})", ""}, {"after 30", ""}, {"exit 1 0", ""}});
  story.expect_outcome(0);
}

TEST(LiveRun, TheNewestRecordCountsWhateverTheOrderItIsReadIn) {
  Story story = live(limits(1, 4, 2));
  story.expect({{"hello 1", "start 2; welcome founder (1 2) peers () to 1"},
                {"hello 2", "welcome (1 2) peers (1) to 2"},
                {R"(notice 2 members {"recovery": 1, "generation": [1, 2], "uids": [2]})", ""},
                {R"(notice 1 members {"recovery": 0, "generation": [1, 3], "uids": [1]})", ""},
                {"notice 2 finished", "stop to 1"},
                {"killed 1 9", ""},
                {"exit 2 0", ""}});
  story.expect_outcome(0);
}

TEST(LiveRun, AJoinerLeftOverWhenTheJobIsDoneIsKilled) {
  Story story = live(limits(1, 4, 1));
  story.expect({{"hello 1", "welcome founder (1) peers () to 1"},
                {R"(notice 1 members {"uids": [1]})", ""},
                {"resize 2", "start 2; plan 2 (1 2) to 1"},
                {"notice 1 finished", "signal 2 15"},
                {"after 11", "signal 2 9"},
                {"killed 2 9", ""},
                {"exit 1 0", ""}});
  story.expect_outcome(0);
  story.expect_counts(0, 1);
}

TEST(LiveRun, StopAsksThenInsists) {
  Story story = live(limits(1, 4, 3));
  story.expect({{"hello 1", "start 2; start 3; welcome founder (1 2 3) peers () to 1"},
                {"hello 2", "welcome (1 2 3) peers (1) to 2"},
                {"stop 15", "stop to 1; stop to 2; signal 3 15"},
                {"resize 2", "error: the run is ending"},
                {"killed 3 15", ""},
                {"exit 1 0", ""},
                {"after 9", ""},
                {"after 1", "signal 2 15"},
                {"after 2", "signal 2 9"},
                {"killed 2 9", ""}});
  story.expect_outcome(128 + SIGTERM);
  story.expect_counts(0, 0);
}

TEST(LiveRun, TheSecondStopKillsAtOnce) {
  Story story = live(limits(1, 4, 1));
  story.expect({{"hello 1", "welcome founder (1) peers () to 1"},
                {"stop 2", "stop to 1"},
                {"stop 2", "signal 1 9"},
                {"killed 1 9", ""}});
  story.expect_outcome(128 + SIGINT);
}

TEST(LiveRun, ReplacesStragglersIfAsked) {
  LaunchLimits l = limits(1, 4, 2);
  for (const bool replace : {false, true}) {
    l.replace_stragglers = replace;
    Story story = live(l);
    story.expect({{"hello 1", "start 2; welcome founder (1 2) peers () to 1"},
                  {"hello 2", "welcome (1 2) peers (1) to 2"},
                  {R"(notice 1 straggler {"worker": 2, "ratio": 3.5})",
                   replace ? "start 3; plan 2 (1 3) to 1; plan 2 (1 3) to 2" : ""},
                  {R"(notice 1 straggler {"worker": 2})", ""},
                  {R"(notice 1 straggler {"worker": "x"})", ""}});
    story.expect_counts(0, replace ? 1 : 0);
  }
}

TEST(LiveRun, KillsOneForDrills) {
  Story story = live(limits(1, 4, 2));
  story.play("hello 1");
  story.expect({{"kill", "signal 2 9"},
                {"kill 1", "signal 1 9"},
                {"kill 5", "error: there is no worker 5; alive: 1 2"}});
}

TEST(LiveRun, AProgramThatCannotBeStartedEndsTheRun) {
  Story story = live(limits(1, 4, 2));
  story.state().could_not_start(time_at(1000), 1, "cannot start x", false);
  story.expect_outcome(2, "cannot start x");
  EXPECT_FALSE(story.state().outcome()->infrastructure);
}

TEST(LiveRun, AMachineThatCannotStartAWorkerIsNotTheJobsFault) {
  Story story = live(limits(1, 4, 1));
  story.state().could_not_start(time_at(1000), 1, "no process left", true);
  ASSERT_TRUE(story.state().outcome());
  EXPECT_TRUE(story.state().outcome()->infrastructure);
}

// Such a program must not be started thousands of times a minute.
TEST(LiveRun, WhoeverSaysHelloAndFailsAtOnceIsStartedAfterLongerAndLongerPauses) {
  LiveRun run(limits(1, 1, 1, 1'000'000));
  Time now = time_at(1);
  run.begin(now);
  int starts = 0;
  for (const Time end = now + from_seconds(60); now < end; now += from_seconds(0.1)) {
    for (const Order& order : run.take_orders()) {
      const auto* start = std::get_if<StartWorker>(&order);
      if (start == nullptr) continue;
      ++starts;
      EXPECT_TRUE(run.said_hello(now, {start->uid, "", 1, "tcp:127.0.0.1:1"}));
      run.exited(now, start->uid, {false, 1});
    }
    run.pass(now);
  }
  EXPECT_GT(starts, 8);
  EXPECT_LT(starts, 25);
  run.pass(now);
}

// --- programs that do not know Rubato ---

TEST(LiveRun, AProgramThatSaysNothingRunsOnce) {
  Story story(placed(std::make_unique<LiveRun>(limits(1, 8, 4)), {"0.0", "0.1", "0.2", "0.3"}));
  EXPECT_EQ(story.first(), "start 1 at 0.0");
  story.expect({{"after 60", ""}, {"exit 1 0", ""}});
  story.expect_outcome(0);
  EXPECT_TRUE(story.state().silent());
  EXPECT_EQ(story.state().counts().starts, 1);
}

TEST(LiveRun, TheFirstWorkerIsWhereTheJobHasMost) {
  Story story(placed(std::make_unique<LiveRun>(limits(1, 8, 4)), {"0.3", "1.2", "1.3", "2.0"}));
  EXPECT_EQ(story.first(), "start 1 at 1.2");
  story.expect({{"hello 1",
                 "start 2 at 0.3; start 3 at 1.3; start 4 at 2.0; "
                 "welcome founder (1 2 3 4) peers () to 1"}});
}

TEST(LiveRun, AProgramThatStaysSilentKeepsItsOneProcess) {
  Story story(placed(std::make_unique<LiveRun>(limits(1, 8, 2)), {"0.1", "1.0"}));
  LaunchState& run = story.state();
  story.expect({{"after 119", ""}});
  EXPECT_FALSE(run.silent());
  EXPECT_EQ(run.slots_in_use(), (Slots{"0.1"})) << "the other slot is empty";
  story.expect({{"after 3600", ""}});
  EXPECT_TRUE(run.silent());
  EXPECT_FALSE(run.settled()) << "it was given more than it uses";
  story.expect({{"place 0.1", ""}});
  EXPECT_TRUE(run.settled());
  // Like a program that restarts at every change: the next process starts when the last one is
  // gone.
  story.expect({{"place 1.1", "signal 1 15"}});
  EXPECT_FALSE(run.settled());
  story.expect({{"exit 1 0", "start 2 at 1.1"}});
  EXPECT_TRUE(run.settled());
  story.expect({{"place 0.0", "signal 2 15"},
                {"after 9", ""},
                {"after 2", "signal 2 9"},
                {"killed 2 9", "start 3 at 0.0"},
                {"exit 3 0", ""}});
  story.expect_outcome(0);
  story.expect_counts(0, 3);
}

TEST(LiveRun, ASilentProgramFailsAndIsStartedAgainAsOne) {
  Story story(placed(std::make_unique<LiveRun>(limits(1, 8, 2, 1)), {"0.0", "0.1"}));
  story.expect({{"after 200", ""}, {"exit 1 1", "start 2 at 0.0"}, {"exit 2 1", ""}});
  story.expect_outcome(1, "worker 2 exited with code 1, failure 2 of at most 1");
}

TEST(LiveRun, ASilentProgramIsStopped) {
  Story story(placed(std::make_unique<LiveRun>(limits(1, 8, 2)), {"0.0", "0.1"}));
  story.expect({{"after 200", ""}, {"end", "signal 1 15"}, {"exit 1 0", ""}});
  story.expect_outcome(128 + SIGTERM, "stopped by its manager");
}

TEST(LiveRun, ALateHelloMakesItARunLikeAnyOther) {
  Story story(placed(std::make_unique<LiveRun>(limits(1, 8, 1)), {"0.0"}));
  story.play("after 300");
  EXPECT_TRUE(story.state().silent());
  story.expect({{"hello 1", "welcome founder (1) peers () to 1"},
                {"place 0.0 0.1", "start 2 at 0.1; plan 2 (1 2) to 1"}});
  EXPECT_FALSE(story.state().silent());
  // A joining worker may take as long as the first worker did, and longer.
  EXPECT_EQ(story.play("after 1100"), "");
  EXPECT_EQ(story.play("after 200"), "signal 2 9");
}

TEST(LiveRun, OneThatIsKnownToBeSilentRunsAtOnce) {
  LaunchLimits known = limits(1, 1, 1);
  known.silent = true;
  Story story(placed(std::make_unique<LiveRun>(known), {"0.3"}));
  EXPECT_TRUE(story.state().settled() && story.state().silent());
  story.expect({{"hello 1", "welcome founder (1) peers () to 1"}});
  EXPECT_FALSE(story.state().settled() || story.state().silent());
}

// Whatever happens: a worker becomes the founder only if no other worker that got a Welcome lives,
// numbers are never reused, the numbers of plans only grow, the limits hold, and before the first
// Hello there is at most one process.
RC_GTEST_PROP(LiveRun, NeverTwoFounders, ()) {
  LiveRun run(limits(1, 5, *rc::gen::inRange(1, 5), 30));
  Time now = time_at(5);
  std::set<Uid> alive, ever, greeted;
  std::map<Uid, std::int64_t> seen;
  const auto check_orders = [&] {
    for (const Order& order : run.take_orders()) {
      if (const auto* start = std::get_if<StartWorker>(&order)) {
        RC_ASSERT(ever.insert(start->uid).second);
        alive.insert(start->uid);
        RC_ASSERT(!greeted.empty() || alive.size() == 1);
      } else if (const auto* send = std::get_if<SendToWorker>(&order)) {
        RC_ASSERT(alive.contains(send->uid));
        if (const auto* plan = std::get_if<wire::MembershipPlan>(&send->message)) {
          RC_ASSERT(plan->number > seen[send->uid]);
          seen[send->uid] = plan->number;
          RC_ASSERT(static_cast<int>(plan->workers.size()) <= 5);
        } else if (const auto* welcome = std::get_if<wire::Welcome>(&send->message)) {
          const bool alone = std::none_of(alive.begin(), alive.end(), [&](Uid uid) {
            return uid != send->uid && greeted.contains(uid);
          });
          RC_ASSERT(welcome->founder == alone);
        }
      }
    }
  };
  run.begin(now);
  check_orders();
  for (const int what : *rc::gen::container<std::vector<int>>(100, rc::gen::inRange(0, 100))) {
    if (alive.empty() || run.outcome()) break;
    auto chosen = alive.begin();
    std::advance(chosen, what % static_cast<int>(alive.size()));
    const Uid uid = *chosen;
    if (what < 40) {
      wire::Hello hello;
      hello.uid = uid;
      if (run.said_hello(now, hello)) greeted.insert(uid);
    } else if (what < 60) {
      alive.erase(uid);
      run.exited(now, uid, {true, 9});
    } else if (what < 75) {
      if (greeted.contains(uid)) run.heard(now, uid, wire::Notice{"stranded", Json::object()});
    } else if (what < 90) {
      (void)run.resize(now, 1 + what % 6);
    } else {
      now += std::chrono::seconds(6);
      for (int i = 0; i < 70; ++i) run.pass(now += std::chrono::milliseconds(100));
    }
    check_orders();
  }
  if (!run.outcome()) run.stop(now, 15);
  check_orders();
  while (!alive.empty()) {
    const Uid uid = *alive.begin();
    alive.erase(uid);
    run.exited(now, uid, {true, 9});
    check_orders();
  }
  RC_ASSERT(run.outcome().has_value());
}

TEST(RestartRun, AllRanksEndWithSuccess) {
  Story story = restart(limits(1, 4, 2));
  EXPECT_EQ(story.first(), "start 1 rank 0/2 round 1; start 2 rank 1/2 round 1");
  story.expect({{"hello 1", "error: no"}, {"exit 2 0", ""}, {"after 99", ""}, {"exit 1 0", ""}});
  story.expect_outcome(0);
}

TEST(RestartRun, AResizeIsNoEndAndNoFailure) {
  Story story = restart(limits(1, 4, 2));
  story.expect({{"resize 3", "signal 1 15; signal 2 15"},
                {"exit 1 0", ""},
                {"resize 1", ""},
                {"killed 2 15", "start 3 rank 0/1 round 2"},
                {"resize 2", "signal 3 15"},
                {"after 9", ""},
                {"after 2", "signal 3 9"},
                {"killed 3 9", "start 4 rank 0/2 round 3; start 5 rank 1/2 round 3"},
                {"exit 4 0", ""},
                {"exit 5 0", ""}});
  story.expect_outcome(0);
  story.expect_counts(0, 3);
}

TEST(RestartRun, AManagedRunIsStartedAgainInItsNewSlots) {
  Story story(placed(std::make_unique<RestartRun>(limits(1, 1, 1)), {"0.0", "0.1"}));
  LaunchState& run = story.state();
  EXPECT_EQ(story.first(), "start 1 rank 0/2 round 1; start 2 rank 1/2 round 1");
  EXPECT_TRUE(run.settled());
  story.expect({{"place 0.1 0.0", ""}, {"place 0.1 1.0 1.1", "signal 1 15; signal 2 15"}});
  EXPECT_FALSE(run.settled());
  story.expect({{"killed 1 15", ""}});
  EXPECT_EQ(run.slots_in_use(), (Slots{"0.1"}));
  story.expect({{"killed 2 15",
                 "start 3 rank 0/3 round 2; start 4 rank 1/3 round 2; start 5 rank 2/3 round 2"}});
  EXPECT_EQ(run.slots_in_use(), (Slots{"0.1", "1.0", "1.1"}));
  EXPECT_TRUE(run.settled());
  story.expect({{"end", "signal 3 15; signal 4 15; signal 5 15"},
                {"exit 3 0", ""},
                {"exit 4 0", ""},
                {"exit 5 0", ""}});
  story.expect_outcome(128 + SIGTERM);
  EXPECT_TRUE(run.outcome()->stopped);
}

TEST(RestartRun, SomeRanksMayHaveFinishedBeforeAResize) {
  Story story = restart(limits(1, 4, 2));
  story.expect({{"exit 1 0", ""},
                {"resize 1", "signal 2 15"},
                {"exit 2 0", "start 3 rank 0/1 round 2"},
                {"exit 3 0", ""}});
  story.expect_outcome(0);
}

TEST(RestartRun, AFailureStartsAllAgain) {
  Story story = restart(limits(1, 4, 2, 1));
  story.expect({{"after 9", ""},
                {"killed 2 9", "signal 1 15"},
                {"exit 1 1", "start 3 rank 0/2 round 2; start 4 rank 1/2 round 2"},
                {"exit 3 5", "signal 4 15"},
                {"killed 4 15", ""}});
  story.expect_outcome(1, "rank 0 (worker 3) exited with code 5, failure 2 of at most 1");
  story.expect_counts(2, 0);
}

TEST(RestartRun, StopAsksThenKills) {
  Story story = restart(limits(1, 4, 2));
  story.expect({{"stop 15", "signal 1 15; signal 2 15"},
                {"exit 1 0", ""},
                {"after 9", ""},
                {"after 1", "signal 2 9"},
                {"killed 2 9", ""}});
  story.expect_outcome(128 + SIGTERM);
}

TEST(RestartRun, FailingAgainAndAgainSlowsDown) {
  Story story = restart(limits(1, 1, 1));
  story.expect({{"exit 1 1", "start 2 rank 0/1 round 2"},
                {"exit 2 1", ""},
                {"after 1", "start 3 rank 0/1 round 3"},
                {"after 6", ""},
                {"exit 3 1", "start 4 rank 0/1 round 4"}});
}

// --- guests ---

TEST(LiveRun, WorkersAreToldTheirShareOfTheTime) {
  LaunchLimits guest = limits(1, 2, 2);
  guest.share = 0;
  Story story(std::make_unique<LiveRun>(guest));
  EXPECT_NE(story.play("hello 1").find("share 0 to 1"), std::string::npos);
  story.state().throttle(0.25);
  EXPECT_NE(story.play("hello 2").find("share 0.25 to 1"), std::string::npos);
  story.state().throttle(0.25);
  EXPECT_EQ(story.play("beat 1"), "") << "it knows that";
  story.state().throttle(1);
  const std::string told = story.play("beat 1");
  EXPECT_NE(told.find("share 1 to 1"), std::string::npos);
  EXPECT_NE(told.find("share 1 to 2"), std::string::npos);
}

}  // namespace
}  // namespace rubato::launch
