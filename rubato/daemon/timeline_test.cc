#include "rubato/daemon/timeline.h"

#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "rubato/daemon/testing_daemon.h"

namespace rubato::daemon {
namespace {

std::vector<std::string> kinds_of(const Json& changes) {
  std::vector<std::string> kinds;
  for (const Json& one : changes) kinds.push_back(one["kind"].get<std::string>());
  return kinds;
}

Json timeline_seen(TestDaemon& daemon, const Caller& caller) {
  const Answer answer = daemon.ask(caller, ShowTimeline{});
  EXPECT_EQ(answer.status, 200);
  return answer.body;
}

// Two jobs of two users; the first shrinks when the second comes, and grows again.
class TwoUsers : public testing::Test {
 protected:
  void SetUp() override {
    daemon.options.policy = "afs-l";
    daemon.options.measuring = Duration(0);
    daemon.start();
    daemon.submit(kAda, job_file("hers", 4000, 1, 8));
    daemon.pass(30);
    daemon.submit(kBob, job_file("secret", 400, 1, 4));
    daemon.pass(10);
  }
  TestDaemon daemon{"2x4"};
};

TEST_F(TwoUsers, TheTimelineShowsWhoHeldWhatAndWhatChanged) {
  const Json seen = timeline_seen(daemon, kRoot);
  EXPECT_FALSE(seen["truncated"].get<bool>());
  ASSERT_EQ(seen["jobs"].size(), 2U);
  EXPECT_EQ(seen["jobs"][0]["name"], "secret") << "the newest first";
  EXPECT_EQ(seen["jobs"][1]["user"], "ada");
  // What is held now is what the nodes show.
  int held = 0;
  for (const Json& span : seen["spans"]) {
    EXPECT_FALSE(span["job"].is_null());
    EXPECT_FALSE(span["gpus"].empty());
    if (span["until"].is_null()) held += static_cast<int>(span["gpus"].size());
  }
  int used = 0;
  const Json nodes = daemon.ask(kRoot, ShowNodes{}).body["nodes"];
  for (const Json& node : nodes) used += static_cast<int>(node["used"].size());
  EXPECT_EQ(held, used);
  const auto kinds = kinds_of(seen["marks"]);
  ASSERT_GE(kinds.size(), 3U);
  EXPECT_EQ(kinds[0], "start");
  EXPECT_NE(std::find(kinds.begin(), kinds.end(), "shrink"), kinds.end());
}

TEST_F(TwoUsers, OthersAreOnlySeenAsHoldersOfGpus) {
  const Json seen = timeline_seen(daemon, kAda);
  ASSERT_EQ(seen["jobs"].size(), 1U);
  EXPECT_EQ(seen["jobs"][0]["job"], 1);
  bool others = false;
  for (const Json& span : seen["spans"]) {
    others = others || span["job"].is_null();
    EXPECT_TRUE(span["job"].is_null() || span["job"] == 1);
  }
  EXPECT_TRUE(others);
  for (const Json& mark : seen["marks"]) EXPECT_EQ(mark["job"], 1);
  const Json decisions = daemon.ask(kAda, ShowDecisions{}).body;
  bool hidden = false;
  for (const Json& decision : decisions["decisions"]) {
    for (const Json& change : decision["changes"]) {
      if (!change["job"].is_null()) continue;
      hidden = true;
      EXPECT_TRUE(change["reason"].is_null());
    }
  }
  EXPECT_TRUE(hidden);
  const Json use = daemon.ask(kAda, ShowUse{}).body;
  ASSERT_EQ(use["users"].size(), 1U);
  EXPECT_EQ(use["users"][0]["user"], "ada");
  for (const Json& body : {seen, decisions, use}) {
    EXPECT_EQ(body.dump().find("secret"), std::string::npos);
    EXPECT_EQ(body.dump().find("bob"), std::string::npos);
  }
}

TEST_F(TwoUsers, DecisionsAreDifferencesTheNewestFirst) {
  const Json all = daemon.ask(kRoot, ShowDecisions{}).body["decisions"];
  ASSERT_GE(all.size(), 2U);
  EXPECT_GT(all[0]["id"].get<std::uint64_t>(), all[1]["id"].get<std::uint64_t>());
  const Json& first = all.back();
  EXPECT_EQ(first["policy"], "afs-l");
  ASSERT_EQ(first["changes"].size(), 1U);
  EXPECT_EQ(first["changes"][0]["kind"], "start");
  EXPECT_EQ(first["changes"][0]["from"], 0);
  EXPECT_GT(first["changes"][0]["to"], 0);
  EXPECT_TRUE(first["took_ms"].is_null()) << "this daemon has no stopwatch";
  ShowDecisions older;
  older.before = all[0]["id"].get<std::uint64_t>();
  older.limit = 1;
  const Json page = daemon.ask(kRoot, older).body["decisions"];
  ASSERT_EQ(page.size(), 1U);
  EXPECT_EQ(page[0], all[1]);
}

TEST_F(TwoUsers, ARestartForgetsNothing) {
  const Json before = timeline_seen(daemon, kRoot)["marks"];
  const Json decisions = daemon.ask(kRoot, ShowDecisions{}).body;
  daemon.kill();
  daemon.start();
  EXPECT_EQ(timeline_seen(daemon, kRoot)["marks"], before);
  EXPECT_TRUE(daemon.core->save());  // now from a snapshot, without rows
  daemon.kill();
  daemon.start();
  EXPECT_EQ(timeline_seen(daemon, kRoot)["marks"], before);
  EXPECT_EQ(daemon.ask(kRoot, ShowDecisions{}).body, decisions);
}

TEST_F(TwoUsers, UseSaysWhoUsedWhat) {
  const Json use = daemon.ask(kRoot, ShowUse{}).body;
  EXPECT_EQ(use["gpus"], 8);
  EXPECT_EQ(use["held"].get<int>() + use["idle"].get<int>(), 8);
  ASSERT_EQ(use["users"].size(), 2U);
  EXPECT_GT(use["users"][0]["gpu_hours"], use["users"][1]["gpu_hours"]);
  EXPECT_NEAR(use["users"][0]["share"].get<double>() + use["users"][1]["share"].get<double>(), 1,
              1e-9);
  EXPECT_EQ(use["users"][0]["weight"], 1);
}

TEST(Timeline, AFailedRunIsARecoveryWithItsReason) {
  TestDaemon daemon;
  daemon.crashes["shaky"] = 1;
  daemon.start();
  daemon.submit(kAda, job_file("shaky", 500, 2, 2));
  ASSERT_TRUE(daemon.pass_until([&] { return daemon.state(JobId(1)) == "COMPLETED"; }));
  const Json marks = timeline_seen(daemon, kAda)["marks"];
  EXPECT_EQ(kinds_of(marks), (std::vector<std::string>{"start", "stop", "recovery", "stop"}));
  EXPECT_NE(marks[1]["reason"].get<std::string>().find("its run failed"), std::string::npos);
  EXPECT_NE(marks[2]["reason"].get<std::string>().find("its last run failed"), std::string::npos);
  EXPECT_FALSE(marks[2]["pause_ms"].is_null());
  EXPECT_EQ(marks[3]["reason"], "completed");
  const Json spans = timeline_seen(daemon, kAda)["spans"];
  for (const Json& span : spans) EXPECT_FALSE(span["until"].is_null());
}

TEST(Timeline, PromisedPlansAreTheFuture) {
  TestDaemon daemon;
  daemon.options.policy = "elasticflow";
  daemon.start();
  JobFile first = job_file("first", 300, 1, 4);
  first.profile = "net";
  daemon.submit(kAda, first);
  ASSERT_TRUE(daemon.pass_until([&] { return daemon.state(JobId(1)) == "COMPLETED"; }));
  JobFile dated = job_file("dated", 3000, 1, 4);
  dated.profile = "net";
  dated.deadline_after = std::chrono::hours(1);
  const Answer answer = daemon.submit(kAda, dated);
  ASSERT_EQ(answer.status, 201) << answer.body.dump();
  const Json seen = timeline_seen(daemon, kAda);
  ASSERT_FALSE(seen["plans"].empty());
  EXPECT_GT(seen["plans"][0]["gpus"], 0);
  EXPECT_GE(seen["plans"][0]["from"], seen["now"]);
  EXPECT_TRUE(seen["jobs"][0].contains("deadline"));
  EXPECT_TRUE(seen["jobs"][0].contains("finish_by"));
  EXPECT_TRUE(timeline_seen(daemon, kBob)["plans"].empty());
  const Json use = daemon.ask(kRoot, ShowUse{}).body;
  EXPECT_EQ(use["deadlines"]["open"], 1);
}

// A promise to a job, and what became of it.
std::vector<std::string> promises_to(TestDaemon& daemon, JobId job) {
  return kinds_of(daemon.ask(kAda, ShowPast{job}).body["promises"]);
}

TEST(Timeline, ThePastOfAJobHasItsReportsAndPromises) {
  TestDaemon daemon;
  daemon.options.policy = "elasticflow";
  daemon.start();
  JobFile first = job_file("first", 3000, 1, 4);
  first.profile = "net";
  daemon.submit(kAda, first);
  ASSERT_TRUE(daemon.pass_until([&] { return daemon.state(JobId(1)) == "COMPLETED"; }));
  const Json past = daemon.ask(kAda, ShowPast{JobId(1)}).body;
  EXPECT_FALSE(past["spans"].empty());
  EXPECT_EQ(kinds_of(past["marks"]).back(), "stop");
  ASSERT_FALSE(past["reports"].empty());
  EXPECT_GT(past["reports"].back()["step"], past["reports"].front()["step"]);
  EXPECT_GT(past["reports"][past["reports"].size() / 2]["gpus"], 0);
  EXPECT_TRUE(past["promises"].empty());

  JobFile dated = job_file("dated", 3000, 1, 4);
  dated.profile = "net";
  dated.deadline_after = std::chrono::hours(1);
  const Answer answer = daemon.submit(kAda, dated);
  ASSERT_EQ(answer.status, 201) << answer.body.dump();
  const JobId job(answer.body["id"].get<JobId::rep>());
  EXPECT_EQ(promises_to(daemon, job), std::vector<std::string>{"made"});
  EXPECT_EQ(daemon.ask(kBob, ShowPast{job}).status, 404);

  // A policy that promises nothing would drop it; asking does not.
  const Answer asked = daemon.ask(kRoot, SwitchPolicy{"fifo", true});
  EXPECT_EQ(asked.status, 200);
  ASSERT_EQ(asked.body["not_honoured"].size(), 1U);
  EXPECT_EQ(asked.body["policy"], "elasticflow");
  EXPECT_EQ(promises_to(daemon, job), std::vector<std::string>{"made"});
  EXPECT_TRUE(daemon.ask(kRoot, SwitchPolicy{"elasticflow", true}).body["not_honoured"].empty());
  EXPECT_EQ(daemon.ask(kRoot, SwitchPolicy{"nonsense", true}).status, 400);

  EXPECT_EQ(daemon.ask(kRoot, SwitchPolicy{"fifo"}).status, 200);
  EXPECT_EQ(promises_to(daemon, job), (std::vector<std::string>{"made", "dropped"}));
  EXPECT_EQ(daemon.ask(kRoot, SwitchPolicy{"elasticflow"}).status, 200);
  EXPECT_EQ(promises_to(daemon, job).back(), "taken_up");
  ASSERT_TRUE(daemon.pass_until([&] { return daemon.state(job) == "COMPLETED"; }));
  const Json before = daemon.ask(kAda, ShowPast{job}).body;
  EXPECT_EQ(kinds_of(before["promises"]).back(), "kept");
  daemon.kill();
  daemon.start();
  EXPECT_EQ(daemon.ask(kAda, ShowPast{job}).body, before);
  EXPECT_TRUE(daemon.core->save());  // now from a snapshot, without rows
  daemon.kill();
  daemon.start();
  EXPECT_EQ(daemon.ask(kAda, ShowPast{job}).body, before);
}

TEST(Timeline, TheExpectedEndHasARangeOnceSpeedsAreKnown) {
  TestDaemon daemon;
  daemon.start();
  daemon.submit(kAda, job_file("long", 30000, 2, 2));
  daemon.pass(2);
  EXPECT_TRUE(daemon.ask(kAda, ShowJob{JobId(1)}).body["eta_range"].is_null());
  ASSERT_TRUE(daemon.pass_until(
      [&] { return !daemon.ask(kAda, ShowJob{JobId(1)}).body["eta_range"].is_null(); }));
  const Json job = daemon.ask(kAda, ShowJob{JobId(1)}).body;
  EXPECT_LE(job["eta_range"]["earliest"], job["eta"]);
  EXPECT_GE(job["eta_range"]["latest"], job["eta"]);
}

TEST(Timeline, ARangeThatEndsBeforeItBeginsIsRefused) {
  TestDaemon daemon;
  daemon.start();
  ShowTimeline ask;
  ask.since = Moment(Duration(std::chrono::hours(1)));
  ask.until = Moment(Duration(std::chrono::hours(2)));
  EXPECT_EQ(daemon.ask(kAda, ask).status, 400);
}

TEST(Timeline, OfTooManySpansTheLongestAreShown) {
  std::vector<Span> spans;
  for (int i = 0; i < 100; ++i) {
    Span span;
    span.from = WallTime(std::chrono::seconds(1000 * i));
    span.until = span.from + std::chrono::seconds(i + 1);
    spans.push_back(span);
  }
  EXPECT_TRUE(thin_out(spans, 10, WallTime(std::chrono::hours(1000))));
  ASSERT_EQ(spans.size(), 10U);
  for (const Span& span : spans)
    EXPECT_GT(*span.until - span.from, Duration(std::chrono::seconds(90)));
  EXPECT_FALSE(thin_out(spans, 10, WallTime()));
}

TEST(Chronicle, ForgetsTheOldestAndSaysSo) {
  Chronicle chronicle({.spans = 3, .marks = 3, .changes = 3});
  const auto at = [](int s) { return WallTime(std::chrono::seconds(s)); };
  Allocation one;
  one.add({NodeId(0), 1});
  for (int i = 1; i <= 5; ++i) {
    chronicle.hold(JobId(static_cast<JobId::rep>(i)), "ada", one, at(10 * i));
    chronicle.mark(JobId(static_cast<JobId::rep>(i)), "ada", at(10 * i), MarkKind::start, 1);
    chronicle.hold(JobId(static_cast<JobId::rep>(i)), "ada", Allocation(), at(10 * i + 5));
    chronicle.decided({RowNumber(static_cast<std::uint64_t>(i)),
                       at(10 * i),
                       "fifo",
                       {{JobId(1), 0, MarkKind::start, 0, 1, ""}}});
  }
  int spans = 0;
  chronicle.each_span([&](const Span&) { ++spans; });
  EXPECT_EQ(spans, 3);
  EXPECT_EQ(chronicle.marks().size(), 3U);
  EXPECT_EQ(chronicle.decisions().size(), 3U);
  EXPECT_EQ(chronicle.since(), at(25));
  EXPECT_TRUE(chronicle.forgot());
}

TEST(Chronicle, WhatWasNotSavedByItIsRefused) {
  Chronicle chronicle;
  Allocation one;
  one.add({NodeId(0), ~std::uint64_t{0}});
  chronicle.hold(JobId(1), "ada", one, WallTime(std::chrono::seconds(1)));
  chronicle.mark(JobId(1), "ada", WallTime(std::chrono::seconds(1)), MarkKind::start, 64, "why");
  chronicle.because(JobId(1), "because");
  const Json saved = chronicle.save();
  Chronicle same;
  ASSERT_TRUE(same.load(saved));
  EXPECT_EQ(same.save(), saved);
  EXPECT_EQ(same.held(JobId(1)), 64);
  for (const char* part : {"spans", "open", "marks", "decisions"}) {
    for (const char* numbers : {"x", "1 2", "1 99 0 1 1 1 1", "-1"}) {
      Json broken = saved;
      broken[part]["numbers"] = numbers;
      EXPECT_FALSE(same.load(broken)) << part << " " << numbers;
    }
    Json missing = saved;
    missing.erase(part);
    EXPECT_FALSE(same.load(missing));
  }
  EXPECT_EQ(same.save(), saved) << "a broken one changes nothing";
}

}  // namespace
}  // namespace rubato::daemon
