#include "rubato/daemon/core.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <gtest/gtest.h>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "rubato/daemon/testing_daemon.h"
#include "rubato/model/goodput_estimate.h"

namespace rubato::daemon {
namespace {

JobId id_of(const Answer& answer) { return JobId(answer.body["id"].get<JobId::rep>()); }

std::vector<std::string> texts(const Json& events) {
  std::vector<std::string> lines;
  for (const Json& event : events) lines.push_back(event["text"].get<std::string>());
  return lines;
}

Digest digest_of(std::uint8_t byte) {
  Digest digest{};
  digest.fill(byte);
  return digest;
}

// --- jobs ---

TEST(Core, AJobIsTakenInRunsAndEnds) {
  TestDaemon daemon;
  daemon.start();
  const Answer answer = daemon.submit(kAda, job_file("resnet", 200, 2, 2));
  EXPECT_EQ(answer.status, 201);
  EXPECT_EQ(answer.body["id"], 1) << "people count from 1";
  EXPECT_EQ(answer.body["state"], "RUNNING");
  EXPECT_EQ(answer.body["verdict"]["text"], "starts now");
  const JobId id = id_of(answer);
  daemon.pass(3);
  const Json running = daemon.show(id);
  EXPECT_EQ(running["gpus"], 2);
  EXPECT_EQ(running["slots"], Json::array({"0.0", "0.1"}));
  EXPECT_GT(running["progress"]["done"].get<double>(), 0.1);
  EXPECT_EQ(running["user"], "ada");
  ASSERT_TRUE(daemon.pass_until([&] { return daemon.state(id) == "COMPLETED"; }, 60));
  const Json ended = daemon.show(id);
  EXPECT_EQ(ended["exit_code"], 0);
  EXPECT_EQ(ended["gpus"], 0);
  EXPECT_GT(ended["gpu_seconds"].get<double>(), 20);
  EXPECT_FALSE(ended["ended"].is_null());
  EXPECT_EQ(daemon.world.finishes(id), 1);
  EXPECT_TRUE(daemon.world.violations.empty());
  daemon.expect_replay();
}

TEST(Core, TheSameKeyOfTheSameUserIsTheSameJob) {
  TestDaemon daemon;
  daemon.start();
  const Answer first = daemon.submit(kAda, job_file("one", 100), "key");
  const Answer again = daemon.submit(kAda, job_file("one", 100), "key");
  EXPECT_EQ(first.status, 201);
  EXPECT_EQ(again.status, 200);
  EXPECT_EQ(id_of(first), id_of(again));
  EXPECT_EQ(daemon.submit(kBob, job_file("one", 100), "key").status, 201) << "a key of his own";
  daemon.kill();
  daemon.start();
  EXPECT_EQ(id_of(daemon.submit(kAda, job_file("one", 100), "key")), id_of(first));
  std::vector<Input> both;
  both.emplace_back(Asked{101, {kAda, SubmitJob{job_file("two", 100), "new", false}}});
  both.emplace_back(Asked{102, {kAda, SubmitJob{job_file("two", 100), "new", false}}});
  const Turn turn = daemon.turn(std::move(both));
  ASSERT_EQ(turn.answers.size(), 2U);
  EXPECT_EQ(turn.answers[0].second.status, 201);
  EXPECT_EQ(turn.answers[1].second.status, 200);
  EXPECT_EQ(id_of(turn.answers[0].second), id_of(turn.answers[1].second));
}

TEST(Core, AKeyIsForOneJob) {
  TestDaemon daemon;
  daemon.start();
  const Answer first = daemon.submit(kAda, job_file("one", 100), "key");
  const Answer other = daemon.submit(kAda, job_file("one", 101), "key");
  EXPECT_EQ(other.status, 422);
  EXPECT_EQ(
      other.body["error"],
      "the key \"key\" was used before for another job, number 1; use a new key for each job");
  EXPECT_EQ(daemon.submit(kBob, job_file("one", 101), "key").status, 201) << "a key of his own";
  daemon.kill();
  daemon.start();
  EXPECT_EQ(daemon.submit(kAda, job_file("one", 101), "key").status, 422);
  EXPECT_EQ(id_of(daemon.submit(kAda, job_file("one", 100), "key")), id_of(first));
}

// Rows that an older daemon wrote do not say what was submitted with the key.
TEST(Core, AKeyOfAnOldRowMeansItsJob) {
  TestDaemon daemon;
  daemon.start();
  static_cast<void>(daemon.submit(kAda, job_file("one", 100), "key"));
  DaemonState state(daemon.options.state);
  const auto read = read_journal(daemon.directory.path(), RowNumber(),
                                 [&](RowNumber number, const JournalRow& row) -> Result<void> {
                                   JournalRow old = row;
                                   if (row.type == "job") {
                                     Json body = Json::parse(row.body);
                                     EXPECT_EQ(body.erase("digest"), 1U);
                                     old.body = body.dump();
                                   }
                                   return state.apply(number, old);
                                 });
  ASSERT_TRUE(read) << read.error().message;
  ASSERT_TRUE(state.by_key("ada", "key"));
  EXPECT_FALSE(state.job(*state.by_key("ada", "key"))->digest);
}

TEST(Core, NobodySeesOrTouchesAnothersJob) {
  TestDaemon daemon;
  daemon.start();
  const JobId id = id_of(daemon.submit(kAda, job_file("secret", 1000)));
  const std::vector<Ask> asks = {
      ShowJob{id},    CancelJob{id}, HoldJob{id, true}, ResizeJob{id, {1, 2, {}}},
      ExplainJob{id}, FindLog{id},   ShowJob{"secret"}, History{0, 10, id}};
  const std::vector<Ask> nowhere = {ShowJob{JobId(9)},       CancelJob{JobId(9)},
                                    HoldJob{JobId(9), true}, ResizeJob{JobId(9), {1, 2, {}}},
                                    ExplainJob{JobId(9)},    FindLog{JobId(9)},
                                    ShowJob{"other"},        History{0, 10, JobId(9)}};
  for (std::size_t i = 0; i < asks.size(); ++i) {
    const Answer hidden = daemon.ask(kBob, asks[i]);
    const Answer absent = daemon.ask(kBob, nowhere[i]);
    EXPECT_EQ(hidden.status, 404) << i;
    EXPECT_EQ(absent.status, 404) << i;
    std::string text = absent.body["error"];
    for (const auto& [from, to] : {std::pair("9", "1"), {"\"other\"", "\"secret\""}}) {
      if (const auto at = text.find(from); at != std::string::npos)
        text.replace(at, std::string_view(from).size(), to);
    }
    EXPECT_EQ(hidden.body["error"], text) << "the same words";
  }
  EXPECT_TRUE(daemon.ask(kBob, ListJobs{}).body["jobs"].empty());
  const Json history = daemon.ask(kBob, History{}).body;
  for (const Json& event : history["events"]) EXPECT_TRUE(event["job"].is_null());
  const Json nodes = daemon.ask(kBob, ShowNodes{}).body;
  EXPECT_TRUE(nodes["nodes"][0]["used"][0]["job"].is_null())
      << "in use, by whom is not his to know";
  EXPECT_EQ(daemon.ask(kRoot, ShowJob{id}).status, 200);
  EXPECT_EQ(daemon.ask(kAda, ShowJob{"secret"}).body["id"], id.value());
}

TEST(Core, WhoseJobsCannotRunHereIsToldAtOnce) {
  TestDaemon daemon;
  daemon.options.may_run = [](const Caller& caller) -> Result<void> {
    if (caller.user == "ada") return {};
    return Error{"not here"};
  };
  daemon.options.log_limit = 12345;
  daemon.start();
  const JobId id = id_of(daemon.submit(kAda, job_file("hers", 100)));
  EXPECT_EQ(daemon.core->launch_of(id).user, "ada");
  EXPECT_EQ(daemon.core->launch_of(id).log_limit, 12345);
  for (const bool dry_run : {false, true}) {
    const Answer answer = daemon.ask(kBob, SubmitJob{job_file("his", 100), "", dry_run});
    EXPECT_EQ(answer.status, 403);
    EXPECT_EQ(answer.body["error"], "not here");
  }
  EXPECT_EQ(daemon.ask(kRoot, ListJobs{}).body["jobs"].size(), 1U) << "nothing is kept of it";
}

TEST(Core, CancelledJobsLetGoAndLeave) {
  TestDaemon daemon;
  daemon.options.policy = "fifo";
  daemon.start();
  const JobId running = id_of(daemon.submit(kAda, job_file("runs", 1e6, 8, 8)));
  const JobId waiting = id_of(daemon.submit(kAda, job_file("waits", 1e6, 8, 8)));
  daemon.pass(3);
  EXPECT_EQ(daemon.ask(kAda, CancelJob{waiting}).body["state"], "CANCELLED");
  EXPECT_EQ(daemon.ask(kAda, CancelJob{waiting}).status, 409);
  EXPECT_EQ(daemon.ask(kAda, CancelJob{running}).body["state"], "STOPPING");
  daemon.pass(3);
  EXPECT_EQ(daemon.state(running), "CANCELLED");
  EXPECT_EQ(daemon.show(running)["reason"], "cancelled by ada");
  EXPECT_FALSE(daemon.world.finished(running));
  daemon.expect_replay();
}

// One request is one turn: cancelled one by one, each would let the next one start.
TEST(Core, OfJobsThatAreCancelledAtOnceNoneStarts) {
  TestDaemon daemon("1x2");
  int starts = 0;
  daemon.before_command = [&](const Command& command) {
    starts += std::holds_alternative<Start>(command) ? 1 : 0;
  };
  daemon.start();
  constexpr int kJobs = 300;
  for (int i = 0; i < kJobs; ++i)
    EXPECT_EQ(daemon.submit(kAda, job_file("queue", 1e6, 1, 1)).status, 201);
  const JobId his = id_of(daemon.submit(kBob, job_file("his", 10, 1, 1)));
  daemon.pass(5);
  ASSERT_EQ(starts, 2);
  CancelJobs all;
  all.all = true;
  const Answer answer = daemon.ask(kAda, all);
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.body["cancelled"], kJobs);
  EXPECT_EQ(answer.body["jobs"].size(), kJobs);
  EXPECT_EQ(answer.body["jobs"][0]["state"], "STOPPING");
  EXPECT_EQ(answer.body["jobs"][kJobs - 1]["state"], "CANCELLED");
  EXPECT_EQ(daemon.ask(kAda, all).body["cancelled"], 0) << "they are leaving or gone";
  ASSERT_TRUE(daemon.pass_until([&] { return daemon.core->state().alive() == 0; }, 120));
  EXPECT_EQ(starts, 3) << "two of hers before, and his";
  EXPECT_EQ(daemon.state(his), "COMPLETED");
  EXPECT_TRUE(daemon.world.violations.empty());
  daemon.expect_replay();
}

TEST(Core, AllConditionsOfACancellationHold) {
  TestDaemon daemon("1x1");
  daemon.start();
  const auto submit = [&](const Caller& caller, const char* name) {
    return id_of(daemon.submit(caller, job_file(name, 1e6, 1, 1)));
  };
  const JobId running = submit(kAda, "sweep-1");
  const JobId waiting = submit(kAda, "sweep-2");
  const JobId other = submit(kAda, "other");
  const JobId his = submit(kBob, "sweep-3");
  daemon.pass(5);

  CancelJobs sweep;
  sweep.name = "sweep-*";
  sweep.states = {JobState::pending, JobState::held};
  Answer answer = daemon.ask(kAda, sweep);
  EXPECT_EQ(answer.body["cancelled"], 1);
  EXPECT_EQ(answer.body["jobs"][0]["id"], waiting.value());
  EXPECT_EQ(daemon.state(running), "RUNNING");
  EXPECT_EQ(daemon.state(other), "PENDING");
  EXPECT_EQ(daemon.state(his), "PENDING") << "nobody cancels another's";

  CancelJobs of_bob;
  of_bob.user = "bob";
  EXPECT_EQ(daemon.ask(kAda, of_bob).status, 403);
  CancelJobs named;
  named.jobs = {other, JobId(99), std::string("sweep-1"), his, waiting, other};
  answer = daemon.ask(kAda, named);
  EXPECT_EQ(answer.body["cancelled"], 2);
  EXPECT_EQ(answer.body["over"], 1);
  ASSERT_EQ(answer.body["jobs"].size(), 6U) << "one entry for each, in their order";
  EXPECT_EQ(answer.body["jobs"][0]["state"], "CANCELLED");
  EXPECT_EQ(answer.body["jobs"][1]["error"], "there is no job 99");
  EXPECT_EQ(answer.body["jobs"][2]["state"], "STOPPING");
  EXPECT_EQ(answer.body["jobs"][3]["status"], 404) << "another's is not there";
  EXPECT_EQ(answer.body["jobs"][4]["status"], 409);
  EXPECT_EQ(daemon.ask(kRoot, of_bob).body["cancelled"], 1);
  EXPECT_EQ(daemon.state(his), "CANCELLED");
  daemon.expect_replay();
}

TEST(Core, HeldJobsWaitAndGoOn) {
  TestDaemon daemon;
  daemon.start();
  const JobId id = id_of(daemon.submit(kAda, job_file("job", 400, 2, 2)));
  daemon.pass(5);
  EXPECT_EQ(daemon.ask(kAda, HoldJob{id, true}).body["state"], "STOPPING");
  daemon.pass(3);
  EXPECT_EQ(daemon.state(id), "HELD");
  const Work done = daemon.world.done(id);
  daemon.pass(10);
  EXPECT_EQ(daemon.world.done(id), done);
  EXPECT_EQ(daemon.ask(kAda, ExplainJob{id}).body["sentences"][0],
            "It is on hold: the policy does not see it.");
  daemon.ask(kAda, HoldJob{id, false});
  ASSERT_TRUE(daemon.pass_until([&] { return daemon.state(id) == "COMPLETED"; }, 60));
  EXPECT_EQ(daemon.show(id)["restarts"], 1);
  daemon.expect_replay();
}

TEST(Core, OwnersResizeTheirJobs) {
  TestDaemon daemon;
  for (const char* policy : {"rubato", "afs-l", "srtf", "elasticflow"}) {
    SCOPED_TRACE(policy);
    TestDaemon one;
    one.options.policy = policy;
    one.options.measuring = Duration(0);
    one.start();
    const JobId id = id_of(one.submit(kAda, job_file("job", 1e5, 1, 8)));
    one.pass(5);
    EXPECT_EQ(one.ask(kAda, ResizeJob{id, {2, 2, {}}}).status, 200);
    one.pass(5);
    EXPECT_EQ(one.show(id)["gpus"], 2);
    EXPECT_EQ(one.show(id)["limits"]["max"], 2);
    EXPECT_EQ(one.ask(kAda, ResizeJob{id, {9, 9, {}}}).status, 409);
    EXPECT_EQ(one.ask(kAda, ResizeJob{id, {3, 2, {}}}).status, 400);
    EXPECT_EQ(one.ask(kAda, ResizeJob{id, {4, 8, {}}}).status, 200);
    one.pass(5);
    EXPECT_GE(one.show(id)["gpus"], 4);
    EXPECT_TRUE(one.core->state().last_decision()->refused.empty());
    one.expect_replay();
  }
}

TEST(Core, ListsArePagedAndFiltered) {
  TestDaemon daemon;
  daemon.options.policy = "fifo";
  daemon.start();
  for (int i = 0; i < 5; ++i) daemon.submit(i % 2 == 0 ? kAda : kBob, job_file("job", 1e6, 8, 8));
  EXPECT_EQ(daemon.ask(kAda, ListJobs{}).body["jobs"].size(), 3U);
  ListJobs page;
  page.limit = 2;
  Json body = daemon.ask(kRoot, page).body;
  EXPECT_EQ(body["jobs"].size(), 2U);
  EXPECT_EQ(body["next"], 2);
  page.after = JobId(2);
  page.limit = 3;
  body = daemon.ask(kRoot, page).body;
  EXPECT_EQ(body["jobs"].size(), 3U);
  EXPECT_TRUE(body["next"].is_null());
  ListJobs pending;
  pending.states = {JobState::pending};
  EXPECT_EQ(daemon.ask(kRoot, pending).body["jobs"].size(), 4U);
  pending.user = "bob";
  EXPECT_EQ(daemon.ask(kRoot, pending).body["jobs"].size(), 2U);
}

TEST(Core, WhatCannotEverRunIsRefusedAndKept) {
  TestDaemon daemon;
  daemon.start();
  const Answer large = daemon.submit(kAda, job_file("large", 100, 9, 9));
  EXPECT_EQ(large.status, 409);
  EXPECT_EQ(large.body["state"], "REFUSED");
  EXPECT_EQ(large.body["verdict"]["admitted"], false);
  EXPECT_NE(large.body["reason"].get<std::string>().find("needs 9 GPUs"), std::string::npos);
  JobFile timeless = job_file("timeless", 1);
  timeless.work.reset();
  timeless.deadline_after = from_seconds(100);
  EXPECT_NE(
      daemon.submit(kAda, timeless).body["reason"].get<std::string>().find("deadline without work"),
      std::string::npos);
  JobFile late = job_file("late", 1);
  late.deadline = kWallStart - from_seconds(1);
  EXPECT_EQ(daemon.submit(kAda, late).body["reason"], "its deadline has passed");
  EXPECT_EQ(daemon.ask(kAda, ListJobs{}).body["jobs"].size(), 3U);
  daemon.expect_replay();
}

TEST(Core, WeightsAreBoundByTheUsersRecord) {
  TestDaemon daemon;
  daemon.start();
  JobFile heavy = job_file("heavy", 100);
  heavy.weight = 3;
  EXPECT_EQ(daemon.submit(kAda, heavy).status, 400);
  EXPECT_EQ(daemon.ask(kRoot, AddUser{"ada", false, 4, 0, digest_of(1)}).status, 201);
  EXPECT_EQ(daemon.submit(kAda, heavy).status, 201);
  EXPECT_EQ(daemon.submit(kRoot, heavy).status, 201) << "without a record, an admin may";
  EXPECT_EQ(daemon.ask(kRoot, AddUser{"eve", true, 2, 0, digest_of(2)}).status, 201);
  EXPECT_EQ(daemon.submit({"eve", true}, heavy).status, 400) << "an admin's record counts, too";
}

TEST(Core, WhatAFileSaysOfARunReachesItsMaster) {
  TestDaemon daemon;
  daemon.start();
  JobFile file = job_file("job", 100);
  const JobId plain = id_of(daemon.submit(kAda, file));
  EXPECT_EQ(daemon.core->launch_of(plain).grace, from_seconds(10));
  EXPECT_EQ(daemon.core->launch_of(plain).stop_after, std::nullopt);
  file.notice = from_seconds(30);
  file.max_failures = 7;
  file.stop_after = from_seconds(600);
  file.secrets = {{"HUB_TOKEN", "/data/hub.token"}};
  const JobLaunch launch = daemon.core->launch_of(id_of(daemon.submit(kAda, file)));
  EXPECT_EQ(launch.grace, from_seconds(30));
  EXPECT_EQ(launch.max_failures, 7);
  EXPECT_EQ(launch.stop_after, from_seconds(600));
  EXPECT_EQ(launch.secrets, file.secrets);
}

TEST(Core, FailuresOfWorkersAreCountedAndKept) {
  TestDaemon daemon;
  daemon.options.policy = "fifo";
  daemon.start();
  daemon.submit(kAda, job_file("runs", 1e6, 8, 8));
  JobStatus status;  // of a job that no machine speaks of
  status.job = id_of(daemon.submit(kAda, job_file("job", 100, 8, 8)));
  status.failures = 2;
  static_cast<void>(daemon.turn({status}));
  EXPECT_EQ(daemon.show(status.job)["failures"], 2);
  daemon.kill();
  daemon.start();
  EXPECT_EQ(daemon.show(status.job)["failures"], 2);
  daemon.ask(kAda, CancelJob{status.job});
  EXPECT_EQ(daemon.show(status.job)["failures"], 2) << "also when it is gone";
  daemon.expect_replay();
}

TEST(Core, FaultsOfTheMachinesAreNotTheJobsFailures) {
  TestDaemon daemon("1x2");
  daemon.options.policy = "fifo";
  daemon.world.sick.insert(node_id(0));
  daemon.start();
  std::vector<JobId> jobs;
  for (int i = 0; i < 12; ++i) jobs.push_back(id_of(daemon.submit(kAda, job_file("q", 10, 1, 1))));
  daemon.pass(60);
  for (const JobId id : jobs) {
    EXPECT_EQ(daemon.state(id), "PENDING");
    EXPECT_EQ(daemon.show(id)["failures"], 0);
  }
  EXPECT_NE(daemon.show(jobs[5])["reason"].get<std::string>().find("its disk is full"),
            std::string::npos);
  const Json node = daemon.ask(kAda, ShowNodes{}).body["nodes"][0];
  EXPECT_EQ(node["state"], "unknown");
  EXPECT_EQ(node["reason"], "its disk is full");
  daemon.kill();
  daemon.start();
  EXPECT_EQ(daemon.ask(kAda, ShowNodes{}).body["nodes"][0]["reason"], "its disk is full");
  daemon.world.sick.clear();
  ASSERT_TRUE(daemon.pass_until([&] {
    return std::all_of(jobs.begin(), jobs.end(),
                       [&](JobId id) { return daemon.state(id) == "COMPLETED"; });
  }));
  EXPECT_EQ(daemon.ask(kAda, ShowNodes{}).body["nodes"][0]["reason"], "");
  EXPECT_TRUE(daemon.world.violations.empty());
  daemon.expect_replay();
}

TEST(Core, AJobThatFailsAgainAndAgainStartsAfterLongerAndLongerPauses) {
  TestDaemon daemon("1x4");
  daemon.options.policy = "fifo";
  daemon.world.pace.loading = Duration(0);
  daemon.start();
  std::vector<JobId> jobs;
  for (int i = 0; i < 3; ++i) {
    JobFile file = job_file(fmt::format("no-such-{}", i), 1e-3, 1, 1);
    file.max_failures = 1'000'000;
    daemon.crashes[file.name] = 1'000'000;
    jobs.push_back(id_of(daemon.submit(kAda, file)));
  }
  const auto rows = [&] { return daemon.turn().stored.value(); };
  const auto before = rows();
  daemon.pass(15, 0.05);
  const Json shown = daemon.show(jobs[0]);
  EXPECT_EQ(shown["state"], "PENDING");
  EXPECT_GE(shown["failures"].get<int>(), 4);
  EXPECT_LE(shown["failures"].get<int>(), 6);
  EXPECT_LE(rows() - before, 200U);
  const std::string reason = shown["reason"].get<std::string>();
  EXPECT_NE(reason.find("starts again at"), std::string::npos) << reason;
  EXPECT_NE(reason.find(
                fmt::format("after failure {}: its program failed", shown["failures"].get<int>())),
            std::string::npos)
      << reason;
  const Json why = daemon.ask(kAda, ExplainJob{jobs[0]}).body;
  EXPECT_NE(why["sentences"][0].get<std::string>().find("It starts again at"), std::string::npos);
  // The pause is in the journal: a restart of the daemon does not cut it short.
  const auto until = daemon.core->state().job(jobs[0])->paused_until();
  ASSERT_TRUE(until);
  daemon.kill();
  daemon.start();
  EXPECT_EQ(daemon.core->state().job(jobs[0])->paused_until(), until);
  EXPECT_LE(daemon.core->again_at(), *until);
  // An hour later they are tried every five minutes.
  daemon.pass(3600);
  EXPECT_LE(daemon.show(jobs[0])["failures"].get<int>(), 25);
  EXPECT_GE(daemon.show(jobs[0])["failures"].get<int>(), 15);
  daemon.expect_replay();
}

TEST(Core, OwnersHoldAndReleaseAJobThatIsPausedAfterFailures) {
  TestDaemon daemon("1x1");
  daemon.world.pace.loading = Duration(0);
  JobFile file = job_file("frail", 100, 1, 1);
  file.max_failures = 100;
  daemon.crashes["frail"] = 7;
  daemon.start();
  const JobId id = id_of(daemon.submit(kAda, file));
  const auto paused = [&] { return daemon.core->state().job(id)->paused_until().has_value(); };
  ASSERT_TRUE(daemon.pass_until([&] { return daemon.show(id)["failures"] == 6 && paused(); }));
  EXPECT_EQ(daemon.ask(kAda, HoldJob{id, true}).body["state"], "HELD");
  daemon.pass(1000);
  EXPECT_EQ(daemon.state(id), "HELD") << "the end of the pause is not the owner's word";
  EXPECT_EQ(daemon.ask(kAda, HoldJob{id, false}).body["state"], "RUNNING");
  ASSERT_TRUE(daemon.pass_until([&] { return daemon.state(id) == "COMPLETED"; }));
  daemon.expect_replay();
}

TEST(Core, AJobThatIsReleasedDuringItsPauseStartsAtOnce) {
  TestDaemon daemon("1x1");
  daemon.world.pace.loading = Duration(0);
  JobFile file = job_file("frail", 100, 1, 1);
  file.max_failures = 100;
  daemon.crashes["frail"] = 8;
  daemon.start();
  const JobId id = id_of(daemon.submit(kAda, file));
  const auto paused = [&] { return daemon.core->state().job(id)->paused_until().has_value(); };
  ASSERT_TRUE(daemon.pass_until([&] { return daemon.show(id)["failures"] == 7 && paused(); }));
  EXPECT_EQ(daemon.ask(kAda, HoldJob{id, false}).body["state"], "RUNNING");
  ASSERT_TRUE(daemon.pass_until(paused));
  EXPECT_EQ(daemon.ask(kAda, CancelJob{id}).body["state"], "CANCELLED") << "also while it waits";
  EXPECT_TRUE(daemon.core->state().pausing().empty());
  daemon.expect_replay();
}

// It ended in time while no daemon was there to see it.
TEST(Core, AJobEndedWhenItsMachineSaysSo) {
  for (const bool told : {true, false}) {
    TestDaemon daemon("1x4");
    daemon.options.policy = "edf";
    if (told) daemon.world.wall = [&](Time) { return daemon.wall(); };
    daemon.start();
    JobFile file = job_file("due", 400);
    file.deadline = daemon.wall() + from_seconds(60);
    const JobId id = id_of(daemon.submit(kAda, file));
    daemon.pass(5);
    daemon.kill();
    for (int i = 0; i < 40; ++i) {  // it trains for ten seconds
      daemon.now += from_seconds(1);
      daemon.world.advance(daemon.now);
    }
    daemon.now += from_seconds(600);
    daemon.start();
    ASSERT_TRUE(daemon.pass_until([&] { return daemon.state(id) == "COMPLETED"; }));
    const JobRecord* job = daemon.core->state().job(id);
    EXPECT_EQ(*job->ended <= *job->deadline, told) << "else nobody knows better";
    const std::string metrics = daemon.ask(kRoot, ShowMetrics{}).body["text"];
    EXPECT_NE(metrics.find(fmt::format("rubato_deadlines_total{{result=\"{}\"}} 1",
                                       told ? "met" : "missed")),
              std::string::npos)
        << metrics;
    daemon.expect_replay();
  }
}

TEST(Core, AnEndThatCannotBeIsNotBelieved) {
  for (const double off : {-100.0, 3600.0}) {
    TestDaemon daemon("1x4");
    daemon.now += from_seconds(1000);
    daemon.world.wall = [&](Time) { return daemon.wall() + from_seconds(off); };
    daemon.start();
    const JobId id = id_of(daemon.submit(kAda, job_file("off", 400)));
    ASSERT_TRUE(daemon.pass_until([&] { return daemon.state(id) == "COMPLETED"; }));
    const JobRecord* job = daemon.core->state().job(id);
    EXPECT_GE(*job->ended, *job->started);
    EXPECT_LE(*job->ended, daemon.wall());
  }
}

TEST(Core, AJobThatFailsTooOftenIsGivenUp) {
  TestDaemon daemon;
  daemon.crashes["frail"] = 2;
  daemon.crashes["broken"] = 99;
  daemon.start();
  const JobId frail = id_of(daemon.submit(kAda, job_file("frail", 100)));
  const JobId broken = id_of(daemon.submit(kAda, job_file("broken", 100)));
  ASSERT_TRUE(daemon.pass_until([&] { return daemon.state(frail) == "COMPLETED"; }, 300));
  ASSERT_TRUE(daemon.pass_until([&] { return daemon.state(broken) == "FAILED"; }, 300));
  EXPECT_EQ(daemon.show(frail)["failures"], 2);
  EXPECT_EQ(daemon.show(broken)["failures"], 4);
  EXPECT_EQ(daemon.show(broken)["reason"], "failed 4 times; the last time: its program failed");
  daemon.expect_replay();
}

TEST(Core, TheQueueIsBounded) {
  TestDaemon daemon;
  daemon.options.most_jobs = 2;
  daemon.start();
  EXPECT_EQ(daemon.submit(kAda, job_file("a", 1e6)).status, 201);
  EXPECT_EQ(daemon.submit(kAda, job_file("b", 1e6)).status, 201);
  EXPECT_EQ(daemon.submit(kAda, job_file("c", 1e6)).status, 429);
}

TEST(Core, OneUserCannotFillTheQueue) {
  TestDaemon daemon;
  daemon.options.most_jobs = 6;
  daemon.options.most_jobs_of_user = 2;
  daemon.options.snapshot_rows = 5;
  daemon.start();
  const JobId first = id_of(daemon.submit(kAda, job_file("a", 1e6)));
  EXPECT_EQ(daemon.submit(kAda, job_file("b", 1e6)).status, 201);
  const Answer more = daemon.submit(kAda, job_file("c", 1e6));
  EXPECT_EQ(more.status, 429);
  EXPECT_EQ(more.body["error"],
            "you have 2 jobs that wait or run, which is as many as one user may have; try again "
            "when some have ended");
  EXPECT_EQ(daemon.submit(kBob, job_file("a", 1e6)).status, 201) << "others have their share";
  for (int i = 0; i < 3; ++i) EXPECT_EQ(daemon.submit(kRoot, job_file("r", 1e6)).status, 201);
  EXPECT_EQ(daemon.submit(kRoot, job_file("r", 1e6)).status, 429) << "there is one bound for all";
  daemon.kill();
  daemon.start();
  EXPECT_EQ(daemon.core->state().usage_of("ada").jobs, 2U);
  static_cast<void>(daemon.ask(kAda, CancelJob{first}));
  ASSERT_TRUE(daemon.pass_until([&] { return daemon.state(first) == "CANCELLED"; }, 60));
  EXPECT_EQ(daemon.submit(kAda, job_file("c", 1e6)).status, 201);
}

// --- large job files ---

JobFile large_file(const std::string& name, char filling = 'x') {
  JobFile file = job_file(name, 1e6, 1, 1);
  file.command.push_back(std::string(50'000, filling));
  file.env["LEVEL"] = "3";
  return file;
}

TEST(Core, LargeJobFilesAreOnDiskUntilTheirJobsEnd) {
  TestDaemon daemon("1x1");
  daemon.options.texts = std::make_shared<JobTexts>(daemon.directory.path() / "texts");
  daemon.options.snapshot_rows = 10;
  daemon.start();
  const auto kept = [&] {
    std::size_t files = 0;
    for (const auto& entry : std::filesystem::directory_iterator(daemon.directory.path() / "texts"))
      files += entry.is_regular_file() ? 1 : 0;
    return files;
  };
  const JobId first = id_of(daemon.submit(kAda, large_file("first"), "key"));
  const JobId same = id_of(daemon.submit(kBob, large_file("first")));
  const JobId other = id_of(daemon.submit(kAda, large_file("other", 'y')));
  const JobId small = id_of(daemon.submit(kAda, job_file("small", 1e6, 1, 1)));
  EXPECT_EQ(kept(), 2U) << "equal files are one";
  for (int life = 0; life < 2; ++life) {
    const JobRecord* record = daemon.core->state().job(first);
    EXPECT_LT(record->file.command.back().size(), 300U);
    EXPECT_EQ(record->text_bytes, text_of(large_file("first")).value().size());
    EXPECT_FALSE(daemon.core->state().job(small)->text_bytes);
    const JobLaunch launch = daemon.core->launch_of(other);
    EXPECT_EQ(launch.command, large_file("other", 'y').command);
    EXPECT_EQ(launch.env.at("LEVEL"), "3");
    const Json shown = daemon.ask(kAda, ShowJob{first}).body;
    EXPECT_EQ(shown["command"], large_file("first").command) << "alone it is shown whole";
    EXPECT_EQ(shown["command_cut"], false);
    const Json listed = daemon.ask(kAda, ListJobs{}).body["jobs"][0];
    EXPECT_EQ(listed["command_cut"], true);
    EXPECT_LT(listed.dump().size(), 3000U);
    EXPECT_EQ(id_of(daemon.submit(kAda, large_file("first"), "key")), first);
    EXPECT_EQ(daemon.submit(kAda, large_file("else"), "key").status, 422);
    if (life == 0) {
      ASSERT_TRUE(daemon.core->close());
    }
    daemon.kill();
    std::ofstream(daemon.directory.path() / "texts" / "left.new") << "by a daemon that died";
    daemon.start();
    EXPECT_EQ(kept(), 2U);
  }
  static_cast<void>(daemon.ask(kBob, CancelJob{same}));
  ASSERT_TRUE(daemon.pass_until([&] { return daemon.state(same) == "CANCELLED"; }, 60));
  EXPECT_EQ(kept(), 2U) << "another job needs it";
  static_cast<void>(daemon.ask(kAda, CancelJob{first}));
  ASSERT_TRUE(daemon.pass_until([&] { return daemon.state(first) == "CANCELLED"; }, 60));
  EXPECT_EQ(kept(), 1U);
  EXPECT_EQ(daemon.show(first)["command_cut"], true);
  daemon.expect_replay();

  // Half a command is never run: what should have been there is named.
  const std::string path = daemon.options.texts->path_of(*daemon.core->state().job(other)->digest);
  std::filesystem::remove(path);
  EXPECT_EQ(daemon.core->launch_of(other).command, std::vector<std::string>{path});
}

TEST(Core, TheBytesOfOneUsersJobFilesAreBounded) {
  TestDaemon daemon("1x1");
  daemon.options.texts = std::make_shared<JobTexts>(daemon.directory.path() / "texts");
  daemon.options.most_text_of_user = 120'000;
  daemon.start();
  const JobId first = id_of(daemon.submit(kAda, large_file("a")));
  EXPECT_EQ(daemon.submit(kAda, large_file("b")).status, 201);
  const Answer more = daemon.submit(kAda, large_file("c"));
  EXPECT_EQ(more.status, 429);
  EXPECT_EQ(daemon.submit(kAda, job_file("small", 1)).status, 201);
  EXPECT_EQ(daemon.submit(kBob, large_file("c")).status, 201);
  static_cast<void>(daemon.ask(kAda, CancelJob{first}));
  ASSERT_TRUE(daemon.pass_until([&] { return daemon.state(first) == "CANCELLED"; }, 60));
  EXPECT_EQ(daemon.submit(kAda, large_file("c")).status, 201);
}

TEST(Core, AFileThatCannotBeKeptIsNoJob) {
  TestDaemon daemon("1x1");
  std::ofstream(daemon.directory.path() / "texts") << "no directory";
  daemon.options.texts = std::make_shared<JobTexts>(daemon.directory.path() / "texts");
  daemon.start();
  const Answer answer = daemon.submit(kAda, large_file("a"));
  EXPECT_EQ(answer.status, 503);
  EXPECT_EQ(daemon.core->state().jobs().size(), 0U);
  EXPECT_EQ(daemon.submit(kAda, job_file("small", 1)).status, 201);
}

// --- answers at once ---

TEST(Core, PositionAndEstimatedStartUnderPoliciesThatPromiseNothing) {
  TestDaemon daemon;
  daemon.options.policy = "fifo";
  daemon.start();
  JobFile known = job_file("known", 800, 8, 8);
  known.profile = "net";
  daemon.submit(kAda, known);
  const Answer unknown = daemon.submit(kAda, known);
  EXPECT_EQ(unknown.body["verdict"]["position"], 1);
  daemon.pass(8);
  // 80 a second: 800 in about 10 s. The job before it runs as fast, as its profile says.
  const Answer third = daemon.submit(kAda, known);
  EXPECT_EQ(third.body["verdict"]["position"], 2);
  ASSERT_FALSE(third.body["verdict"]["estimated_start"].is_null()) << third.body.dump(1);
  const WallTime start =
      *parse_wall_time(third.body["verdict"]["estimated_start"].get<std::string>());
  EXPECT_NEAR(seconds(Duration(start - daemon.wall())), 14, 8);
  JobFile endless = job_file("endless", 1, 8, 8);
  endless.work.reset();
  daemon.submit(kAda, endless);
  EXPECT_TRUE(daemon.submit(kAda, known).body["verdict"]["estimated_start"].is_null())
      << "nobody knows when that one ends";
}

TEST(Core, ElasticflowPromisesAndRefusesAtOnce) {
  TestDaemon daemon;
  daemon.options.policy = "elasticflow";
  daemon.start();
  JobFile job = job_file("net", 400, 1, 8);
  job.profile = "net";
  const JobId first = id_of(daemon.submit(kAda, job));
  ASSERT_TRUE(daemon.pass_until([&] { return daemon.state(first) == "COMPLETED"; }, 600));
  ASSERT_NE(daemon.core->state().profile("ada/samples/net"), nullptr) << "its speed is known now";
  job.deadline_after = from_seconds(300);
  const Answer admitted = daemon.submit(kAda, job);
  EXPECT_EQ(admitted.status, 201) << admitted.body.dump(1);
  EXPECT_EQ(admitted.body["verdict"]["admitted"], true);
  EXPECT_NE(admitted.body["verdict"]["text"].get<std::string>().find("admitted, will finish by"),
            std::string::npos);
  EXPECT_NE(admitted.body["verdict"]["text"].get<std::string>().find("planned"), std::string::npos);
  EXPECT_EQ(admitted.body["promised"], admitted.body["deadline"]);
  job.work->amount = 1e6;
  const Answer refused = daemon.submit(kAda, job);
  EXPECT_EQ(refused.status, 409);
  EXPECT_EQ(refused.body["verdict"]["admitted"], false);
  EXPECT_FALSE(refused.body["verdict"]["earliest"].is_null()) << refused.body["verdict"].dump();
  const JobId promised = id_of(admitted);
  ASSERT_TRUE(daemon.pass_until([&] { return daemon.state(promised) == "COMPLETED"; }, 600));
  EXPECT_GE(daemon.show(promised)["slack_seconds"].get<double>(), 0);
  EXPECT_TRUE(daemon.world.violations.empty());
  daemon.expect_replay();
}

TEST(Core, AJobOfUnknownSpeedIsMeasuredBeforeItIsPromisedAnything) {
  TestDaemon daemon;
  daemon.options.policy = "elasticflow";
  daemon.speeds["net"] = [](int gpus) { return 10.0 * std::pow(gpus, 0.8); };
  daemon.start();
  JobFile job = job_file("net", 2000, 1, 8);
  job.deadline_after = from_seconds(600);
  const Answer answer = daemon.submit(kAda, job);
  EXPECT_EQ(answer.status, 201);
  EXPECT_EQ(answer.body["state"], "PROFILING");
  EXPECT_TRUE(answer.body["verdict"]["admitted"].is_null());
  EXPECT_FALSE(answer.body["verdict"]["by"].is_null());
  EXPECT_NE(answer.body["verdict"]["text"].get<std::string>().find("profiling, verdict by"),
            std::string::npos);
  const JobId id = id_of(answer);
  EXPECT_EQ(daemon.ask(kAda, ListJobs{}).body["jobs"].size(), 1U)
      << "the one that measures is not shown";
  ASSERT_TRUE(daemon.pass_until([&] { return daemon.state(id) != "PROFILING"; }, 130));
  const JobRecord* record = daemon.core->state().job(id);
  EXPECT_GE(record->rates.by_gpus.size(), 3U);
  EXPECT_TRUE(record->promise.has_value()) << daemon.show(id).dump(1);
  ASSERT_TRUE(daemon.pass_until([&] { return daemon.state(id) == "COMPLETED"; }, 700));
  EXPECT_GE(daemon.show(id)["slack_seconds"].get<double>(), 0);
  daemon.expect_replay();
}

TEST(Core, DryRunsSayWhatWouldHappenAndStoreNothing) {
  for (const char* policy : {"fifo-backfill", "elasticflow"}) {
    TestDaemon daemon;
    daemon.options.policy = policy;
    daemon.start();
    const RowNumber before = daemon.turn().stored;
    const Answer answer = daemon.ask(kAda, SubmitJob{job_file("try", 100), "", true});
    EXPECT_EQ(answer.status, 200);
    EXPECT_TRUE(answer.body["id"].is_null());
    EXPECT_NE(answer.body["verdict"]["text"].get<std::string>().find("would start now"),
              std::string::npos)
        << answer.body["verdict"].dump();
    JobFile large = job_file("large", 100, 9, 9);
    EXPECT_EQ(daemon.ask(kAda, SubmitJob{large, "", true}).body["verdict"]["admitted"], false);
    EXPECT_EQ(daemon.turn().stored, before);
    EXPECT_TRUE(daemon.ask(kAda, ListJobs{}).body["jobs"].empty());
  }
}

TEST(Core, ExplainsFromTheRecordedDecision) {
  TestDaemon daemon;
  daemon.options.policy = "fifo";
  daemon.start();
  const JobId runs = id_of(daemon.submit(kAda, job_file("runs", 1e6, 6, 6)));
  const JobId waits = id_of(daemon.submit(kAda, job_file("waits", 1e6, 4, 4)));
  daemon.pass(3);
  const Json why = daemon.ask(kAda, ExplainJob{waits}).body;
  EXPECT_EQ(why["waits_for"], Json::array({runs.value()}));
  EXPECT_EQ(why["decision"]["policy"], "fifo");
  EXPECT_NE(why["sentences"].dump().find(
                "it needs at least 4 GPUs, 1 job runs on 6 GPUs, and 2 are idle"),
            std::string::npos)
      << why.dump(1);
  EXPECT_FALSE(why["would_change"].empty());
  const Json running = daemon.ask(kAda, ExplainJob{runs}).body;
  EXPECT_EQ(running["holds"].size(), 6U);
  EXPECT_NE(running["sentences"].dump().find("fifo gave it 6 GPUs"), std::string::npos)
      << running.dump(1);
}

// A job that runs to its end, so that others of its profile know their speed on so many GPUs.
void make_known(TestDaemon& daemon, int gpus) {
  JobFile file = job_file("known", 200.0 * gpus, gpus, gpus);
  file.profile = "net";
  const JobId id = id_of(daemon.submit(kAda, file));
  ASSERT_TRUE(daemon.pass_until([&] { return daemon.state(id) == "COMPLETED"; }, 120));
  ASSERT_TRUE(daemon.core->state().profile("ada/samples/net")->by_gpus.contains(gpus));
}

JobFile due_job(double samples, int min, int max, double deadline_s) {
  JobFile file = job_file("due", samples, min, max);
  file.profile = "net";
  file.deadline_after = from_seconds(deadline_s);
  return file;
}

TEST(Core, ExplainsWhoIsBeforeItAndNamesNobodyElsesJob) {
  TestDaemon daemon;
  daemon.options.policy = "fifo";
  daemon.start();
  daemon.submit(kAda, job_file("runs", 1e6, 6, 6));
  const JobId head = id_of(daemon.submit(kAda, job_file("head", 1e6, 4, 4)));
  const JobId small = id_of(daemon.submit(kBob, job_file("small", 1e6, 1, 1)));
  const Json all = daemon.ask(kRoot, ExplainJob{small}).body;
  EXPECT_EQ(all["waits_for"], Json::array({head.value()})) << "two GPUs are free for it";
  EXPECT_NE(all["sentences"].dump().find("GPUs are kept free for them"), std::string::npos);
  const Json his = daemon.ask(kBob, ExplainJob{small}).body;
  EXPECT_TRUE(his["waits_for"].empty());
  EXPECT_NE(his["sentences"].dump().find("1 job that came before it waits too"), std::string::npos)
      << his.dump(1);
  for (const char* hers : {"job 1", "job 2", "head", "ada"})
    EXPECT_EQ(his.dump().find(hers), std::string::npos) << hers;
}

TEST(Core, PromisesOfOthersAreNotShown) {
  TestDaemon daemon;
  daemon.options.policy = "elasticflow";
  daemon.start();
  make_known(daemon, 8);
  daemon.submit(kAda, due_job(4000, 8, 8, 600));
  EXPECT_EQ(daemon.ask(kAda, ShowPolicy{}).body["promises"].size(), 1U);
  EXPECT_TRUE(daemon.ask(kBob, ShowPolicy{}).body["promises"].empty());
}

TEST(Core, ADryRunForeseesWhatASubmissionIsTold) {
  TestDaemon daemon;
  daemon.options.policy = "fifo";
  daemon.start();
  make_known(daemon, 8);
  JobFile file = job_file("next", 4000, 8, 8);
  file.profile = "net";
  daemon.submit(kAda, file);
  daemon.pass(10);
  const Json dry = daemon.ask(kAda, SubmitJob{file, "", true}).body["verdict"];
  const Json real = daemon.submit(kAda, file).body["verdict"];
  EXPECT_FALSE(dry["estimated_start"].is_null()) << dry.dump();
  EXPECT_EQ(dry["estimated_start"], real["estimated_start"]);
  EXPECT_EQ(dry["position"], real["position"]);
  // In one turn with a submission, which takes the number it was tried with.
  std::vector<Input> both;
  both.emplace_back(Asked{101, {kAda, SubmitJob{file, "", true}}});
  both.emplace_back(Asked{102, {kAda, SubmitJob{file, "", false}}});
  const Turn turn = daemon.turn(std::move(both));
  ASSERT_EQ(turn.answers.size(), 2U);
  EXPECT_EQ(turn.answers[0].second.body["verdict"]["position"], 3);
  daemon.ask(kRoot, SwitchPolicy{"edf-admission"});
  const Json admitted =
      daemon.ask(kAda, SubmitJob{due_job(400, 8, 8, 600), "", true}).body["verdict"];
  EXPECT_EQ(admitted["admitted"], true) << admitted.dump();
  EXPECT_EQ(admitted["text"], "would be admitted and start now on 8 GPUs");
}

// --- cooldown ---

TEST(Core, AJobThatCoolsDownIsGrownLater) {
  TestDaemon daemon;
  daemon.options.policy = "afs-l";
  daemon.options.measuring = Duration(0);
  daemon.start();
  const auto file =
      parse_job_file(R"({"command": ["train"], "name": "net", "work": {"samples": 1000000},)"
                     R"( "gpus": {"min": 1, "max": 8}, "cooldown": "60s"})",
                     "job");
  ASSERT_TRUE(file.ok());
  const JobId id = id_of(daemon.submit(kAda, *file));
  daemon.pass(5);
  ASSERT_EQ(daemon.show(id)["gpus"], 8);
  const JobId other = id_of(daemon.submit(kAda, job_file("other", 1e6, 1, 8)));
  daemon.pass(5);
  const int shrunk = daemon.show(id)["gpus"];
  ASSERT_LT(shrunk, 8) << "others do not wait for it";
  const Time resized = *daemon.core->state().view(id)->resized;
  daemon.ask(kAda, CancelJob{other});
  daemon.pass(20);
  EXPECT_EQ(daemon.show(id)["gpus"], shrunk);
  const std::string why = daemon.ask(kAda, ExplainJob{id}).body["sentences"].dump();
  EXPECT_NE(why.find("and its cooldown lasts until"), std::string::npos) << why;
  EXPECT_EQ(why.find("gave it 8 GPUs"), std::string::npos) << why;
  daemon.kill();
  daemon.start();
  ASSERT_TRUE(daemon.pass_until([&] { return daemon.show(id)["gpus"] == 8; }, 90));
  EXPECT_GE(daemon.core->time(), resized + from_seconds(60));
  daemon.expect_replay();
}

// --- measuring ---

TEST(Core, WhatIsMeasuredReachesThePolicyAndTheNextJobOfTheProfile) {
  TestDaemon daemon;
  daemon.options.policy = "afs-l";
  daemon.speeds["net"] = [](int gpus) { return 100.0 * std::sqrt(gpus); };
  daemon.start();
  JobFile file = job_file("net", 60'000, 1, 8);
  file.profile = "net";
  const JobId id = id_of(daemon.submit(kAda, file));
  daemon.pass(90);
  const auto& known = daemon.core->state().job(id)->rates.by_gpus;
  EXPECT_GE(known.size(), 2U) << "smaller counts are tried, too";
  for (const auto& [gpus, rate] : known) EXPECT_NEAR(rate, 100 * std::sqrt(gpus), 1);
  const auto& speed = *daemon.core->state().view(id)->speed;
  EXPECT_EQ(speed.measured().size(), known.size());
  const JobId next = id_of(daemon.submit(kAda, file));
  EXPECT_EQ(daemon.core->state().view(next)->speed->measured().size(), known.size());
  // At most one row a job in 5 s.
  std::size_t rows = 0;
  ASSERT_TRUE(read_journal(daemon.directory.path(), RowNumber(),
                           [&](RowNumber, const JournalRow& row) -> Result<void> {
                             rows += row.type == "measured" ? 1 : 0;
                             return {};
                           }));
  EXPECT_LE(rows, 90U / 5 + 2);
  EXPECT_GE(rows, 10U);
  daemon.expect_replay();
}

// A job that chooses its batch by itself, as it really is.
Goodput true_goodput() {
  Goodput truth;
  truth.time = {0.02, 0.0005, 0.01, 0.001, 0.03, 0.002, 2};
  truth.noise = {1, 20};
  truth.limits = {64, 2048, 1, 256, true};
  return truth;
}

JobFile adaptive_job(const std::string& name, double samples, int max = 8) {
  JobFile file = job_file(name, samples, 1, max);
  file.batch = {BatchMode::adaptive, 64, 2048};
  return file;
}

const GoodputEstimate* goodput_of(const TestDaemon& daemon, JobId id) {
  return dynamic_cast<const GoodputEstimate*>(daemon.core->state().view(id)->speed.get());
}

std::size_t rows_of(const TestDaemon& daemon, std::string_view type) {
  std::size_t rows = 0;
  EXPECT_TRUE(read_journal(daemon.directory.path(), RowNumber(),
                           [&](RowNumber, const JournalRow& row) -> Result<void> {
                             rows += row.type == type ? 1 : 0;
                             return {};
                           }));
  return rows;
}

TEST(Core, GoodputIsLearnedFromWhatAdaptiveJobsReport) {
  TestDaemon daemon;
  daemon.options.policy = "pollux:interval=10";
  const Goodput truth = true_goodput();
  daemon.goodputs["net"] = truth;
  daemon.start();
  JobFile file = adaptive_job("net", 1e7);
  file.profile = "net";
  const JobId id = id_of(daemon.submit(kAda, file));
  const JobId fixed = id_of(daemon.submit(kAda, job_file("fixed", 1e6, 1, 2)));
  ASSERT_NE(goodput_of(daemon, id), nullptr);
  EXPECT_FALSE(goodput_of(daemon, id)->seen()) << "nothing was measured yet";
  EXPECT_EQ(goodput_of(daemon, fixed), nullptr) << "a batch that never changes has a speed";
  daemon.pass(120);
  const GoodputEstimate* learned = goodput_of(daemon, id);
  ASSERT_TRUE(learned != nullptr && learned->seen());
  EXPECT_GE(learned->seen()->most_gpus, 4) << "it grew, twice as far each time";
  EXPECT_NEAR(learned->seen()->noise.scale(64), 64 * 20, 1);
  const auto& held = daemon.core->state().view(id)->held;
  const Footprint place{held.nodes(), held.gpus()};
  EXPECT_NEAR(learned->goodput().best(place)->goodput, truth.best(place)->goodput,
              0.1 * truth.best(place)->goodput);
  EXPECT_NEAR(daemon.core->state().view(id)->progress.rate,
              daemon.core->state().job(id)->rates.by_gpus.at(held.gpus()), 1)
      << "progress is in the job's own unit";
  EXPECT_FALSE(daemon.show(id)["eta"].is_null());
  EXPECT_LE(rows_of(daemon, "measured"), 2 * (120U / 5 + 2));
  EXPECT_LE(rows_of(daemon, "estimated"), 20U) << "only what makes a difference is told";
  // The next of its profile begins with it, the next daemon too.
  const JobId next = id_of(daemon.submit(kAda, file));
  ASSERT_TRUE(goodput_of(daemon, next) != nullptr && goodput_of(daemon, next)->seen());
  EXPECT_EQ(goodput_of(daemon, next)->seen()->most_gpus, learned->seen()->most_gpus);
  const auto before = daemon.core->state().snapshot().value();
  daemon.kill();
  daemon.start();
  EXPECT_EQ(daemon.core->state().snapshot().value(), before);
  ASSERT_TRUE(daemon.core->save());
  daemon.kill();
  daemon.start();
  EXPECT_EQ(daemon.core->state().snapshot().value(), before);
  // Other policies are told speeds.
  EXPECT_EQ(daemon.ask(kRoot, SwitchPolicy{"afs-l"}).status, 200);
  EXPECT_EQ(goodput_of(daemon, id), nullptr);
  EXPECT_EQ(daemon.ask(kRoot, SwitchPolicy{"pollux"}).status, 200);
  EXPECT_TRUE(goodput_of(daemon, id) != nullptr && goodput_of(daemon, id)->seen());
  daemon.pass(10);
  daemon.expect_replay();
}

TEST(Core, TheProgramsWordOnItsBatchCounts) {
  TestDaemon daemon;
  daemon.options.policy = "pollux:interval=10";
  daemon.goodputs["net"] = true_goodput();
  daemon.start();
  JobFile file = adaptive_job("net", 1e7);
  file.batch = {BatchMode::adaptive, 0, 0};  // what the program says
  const JobId id = id_of(daemon.submit(kAda, file));
  EXPECT_EQ(goodput_of(daemon, id), nullptr) << "nobody knows the batch it was tuned for";
  daemon.pass(30);
  ASSERT_TRUE(goodput_of(daemon, id) != nullptr && goodput_of(daemon, id)->seen());
  EXPECT_EQ(goodput_of(daemon, id)->limits().initial, 64);
  EXPECT_EQ(goodput_of(daemon, id)->limits().largest, 2048);
  const auto& env = daemon.core->launch_of(id).env;
  EXPECT_EQ(env.at("RUBATO_BATCH_MODE"), "adaptive");
  EXPECT_FALSE(env.contains("RUBATO_BATCH_MIN"));
  daemon.expect_replay();
}

TEST(Core, AJobIsToldWhatItsFileSaysOfTheBatch) {
  TestDaemon daemon;
  daemon.start();
  JobFile file = adaptive_job("net", 1e7);
  file.learning_rate = RateRule::square_root;
  file.env = {{"LEVEL", "3"}};
  const JobId id = id_of(daemon.submit(kAda, file));
  const std::map<std::string, std::string> told = {{"LEVEL", "3"},
                                                   {"RUBATO_BATCH_MAX", "2048"},
                                                   {"RUBATO_BATCH_MIN", "64"},
                                                   {"RUBATO_BATCH_MODE", "adaptive"},
                                                   {"RUBATO_LEARNING_RATE", "sqrt"}};
  EXPECT_EQ(daemon.core->launch_of(id).env, told);
  const JobId fixed = id_of(daemon.submit(kAda, job_file("fixed", 1e6, 1, 2)));
  EXPECT_TRUE(daemon.core->launch_of(fixed).env.empty());
}

// Steps are stored with the type of the GPUs, so the speeds of types that a job has seen are known.
TEST(Core, GoodputIsKnownByGpuType) {
  TestDaemon daemon("1x4:slow,1x4:fast");
  daemon.options.policy = "sia:interval=10";
  daemon.start();
  const JobId id = id_of(daemon.submit(kAda, adaptive_job("net", 1e9)));
  daemon.says = [&](JobStatus& status) {
    const Allocation& held = daemon.core->state().view(id)->held;
    const double step = held.type() == gpu_type(0) ? 0.4 : 0.1;
    status.progress.per_gpu = 64;
    status.progress.accumulation = 0;
    status.progress.noise = 1000;
    status.progress.workers = held.gpus();
    status.progress.tuning = JobTuning{64, 2048, 64, step, step};
  };
  daemon.pass(30);
  ASSERT_TRUE(goodput_of(daemon, id) != nullptr && goodput_of(daemon, id)->seen());
  EXPECT_TRUE(goodput_of(daemon, id)->types().empty()) << "it knows one type";
  const GpuType first = daemon.core->state().view(id)->held.type();
  EXPECT_EQ(
      daemon.ask(kRoot, SetNode{first == gpu_type(0) ? "0" : "1", NodeState::draining}).status,
      200);
  daemon.pass(60);
  ASSERT_NE(daemon.core->state().view(id)->held.type(), first) << "it has left the node";
  const auto* known = goodput_of(daemon, id);
  ASSERT_EQ(known->types().size(), 2U);
  const Shape slow{gpu_type(0), 1, 1, 1}, fast{gpu_type(1), 1, 1, 1};
  EXPECT_GT(known->rate(fast), 2 * known->rate(slow));
  const std::string before = daemon.core->state().snapshot().value();
  daemon.kill();
  daemon.start();
  EXPECT_EQ(daemon.core->state().snapshot().value(), before);
  daemon.expect_replay();
}

TEST(Core, APolicyAndALaterJobOfTheProfileKnowTheLargestTensor) {
  TestDaemon daemon;
  daemon.options.placement = Placement::skew;
  daemon.start();
  JobFile file = job_file("job", 1e6, 1, 2);
  file.profile = "net";
  const JobId id = id_of(daemon.submit(kAda, file));
  daemon.pass(10);
  EXPECT_EQ(daemon.core->state().view(id)->spec->skew, std::nullopt);
  daemon.says = [](JobStatus& status) { status.progress.skew = 0.7; };
  daemon.pass(10);
  EXPECT_EQ(daemon.core->state().view(id)->spec->skew, 0.7);
  daemon.says = nullptr;
  daemon.pass(10);
  EXPECT_EQ(daemon.core->state().view(id)->spec->skew, 0.7) << "later reports may leave it out";
  const JobId next = id_of(daemon.submit(kAda, file));
  EXPECT_EQ(daemon.core->state().view(next)->spec->skew, 0.7);
  const std::string before = daemon.core->state().snapshot().value();
  daemon.kill();
  daemon.start();
  EXPECT_EQ(daemon.core->state().snapshot().value(), before);
  daemon.expect_replay();
}

TEST(Core, AnotherBatchIsNoResize) {
  TestDaemon daemon;
  daemon.options.policy = "pollux:interval=10";
  daemon.goodputs["net"] = true_goodput();
  daemon.start();
  const JobId id = id_of(daemon.submit(kAda, adaptive_job("net", 1e7, 1)));
  daemon.pass(60);
  const auto& told = daemon.core->state().job(id)->told;
  ASSERT_TRUE(told && std::holds_alternative<Resize>(*told)) << "the batch was chosen anew";
  EXPECT_TRUE(std::get<Resize>(*told).batch);
  EXPECT_EQ(daemon.show(id)["resizes"], 0);
  EXPECT_EQ(daemon.show(id)["state"], "RUNNING");
  daemon.expect_replay();
}

TEST(Core, AJobThatDoesNotSayItsWorkRunsUntilItsProgramEnds) {
  TestDaemon daemon;
  for (const char* policy : {"rubato", "afs-l", "srtf", "tiresias-las"}) {
    TestDaemon one;
    one.options.policy = policy;
    one.start();
    JobFile file = job_file("open", 1, 1, 4);
    file.work.reset();
    const JobId id = id_of(one.submit(kAda, file));
    one.pass(10);
    EXPECT_TRUE(one.show(id)["eta"].is_null());
    EXPECT_TRUE(one.show(id)["progress"]["done"].is_null());
    ASSERT_TRUE(one.pass_until([&] { return one.state(id) == "COMPLETED"; }, 600)) << policy;
    one.expect_replay();
  }
}

// --- the cluster ---

// A limit of an account at the cluster manager.
TEST(Core, AJobHasWhatALimitOfItsUserAllowsAndTriesAgain) {
  TestDaemon daemon;
  daemon.options.policy = "equal";
  daemon.options.measuring = Duration(0);
  daemon.start();
  const JobId id = id_of(daemon.submit(kAda, job_file("job", 1e6, 1, 8)));
  daemon.pass(5);
  ASSERT_EQ(daemon.show(id)["slots"].size(), 8U);
  const auto quota = [&](std::uint64_t gpus) {
    Allocation running(daemon.core->state().now().cluster.node(node_id(0)).type);
    if (gpus != 0) running.add({node_id(0), gpus});
    return QuotaFact{id, daemon.core->state().view(id)->generation, running, "AssocGrpGRES"};
  };
  daemon.machine_facts = {quota(0b110)};
  daemon.pass(5);
  EXPECT_EQ(daemon.show(id)["slots"].get<std::vector<std::string>>(),
            (std::vector<std::string>{"0.1", "0.2"}));
  const auto explained = [&] { return daemon.ask(kAda, ExplainJob{id}).body.dump(); };
  EXPECT_NE(explained().find("It gets only 2 GPUs: AssocGrpGRES."), std::string::npos)
      << explained();
  daemon.kill();
  daemon.start();
  EXPECT_NE(explained().find("It gets only 2 GPUs: AssocGrpGRES."), std::string::npos);
  daemon.pass(40);
  EXPECT_EQ(daemon.show(id)["slots"].size(), 8U) << "it was tried again";
  // Too little: it waits, and is tried again after a longer time.
  daemon.ask(kAda, ResizeJob{id, {4, 8, {}}});
  daemon.pass(5);
  daemon.machine_facts = {quota(0b1)};
  daemon.pass(5);
  EXPECT_TRUE(daemon.show(id)["slots"].empty());
  EXPECT_NE(explained().find("it would get 1 of the 4 GPUs that it needs: AssocGrpGRES."),
            std::string::npos)
      << explained();
  daemon.pass(40);
  EXPECT_TRUE(daemon.show(id)["slots"].empty());
  daemon.pass(30);
  EXPECT_EQ(daemon.show(id)["slots"].size(), 8U);
  EXPECT_EQ(daemon.show(id)["failures"], 0);
  // The owner's new limits replace those of before.
  daemon.machine_facts = {quota(0b1111)};
  daemon.pass(5);
  EXPECT_EQ(daemon.show(id)["slots"].size(), 4U);
  daemon.ask(kAda, ResizeJob{id, {1, 2, {}}});
  daemon.pass(200);
  EXPECT_EQ(daemon.show(id)["slots"].size(), 2U);
  daemon.expect_no_strays();
  daemon.expect_replay();
}

TEST(Core, AJobLeavesGpusThatOthersUseAndGetsThemBack) {
  TestDaemon daemon;
  daemon.options.policy = "equal";
  daemon.options.measuring = Duration(0);
  daemon.start();
  const JobId id = id_of(daemon.submit(kAda, job_file("job", 1e6, 1, 8)));
  daemon.pass(5);
  ASSERT_EQ(daemon.show(id)["slots"].size(), 8U);
  daemon.machine_facts = {Reserved{node_id(0), 0b11, "a job of Slurm"}};
  daemon.pass(5);
  const auto slots = daemon.show(id)["slots"].get<std::vector<std::string>>();
  EXPECT_EQ(slots, (std::vector<std::string>{"0.2", "0.3", "1.0", "1.1", "1.2", "1.3"}));
  const Json node = daemon.ask(kRoot, ShowNodes{}).body["nodes"][0];
  EXPECT_EQ(node["others"], Json::array({0, 1}));
  EXPECT_EQ(node["others_reason"], "a job of Slurm");
  EXPECT_EQ(node["name"], "node0");
  EXPECT_EQ(daemon.ask(kRoot, ShowUse{}).body.dump().find("others use them") != std::string::npos,
            true);
  const JobId waits = id_of(daemon.submit(kAda, job_file("waits", 1e6, 7, 7)));
  daemon.pass(1);
  const std::string why = daemon.ask(kAda, ExplainJob{waits}).body.dump();
  EXPECT_NE(why.find("2 GPUs of node 0 are reserved: a job of Slurm."), std::string::npos) << why;
  daemon.ask(kAda, CancelJob{waits});
  const std::string lines = daemon.ask(kRoot, History{}).body.dump();
  EXPECT_NE(lines.find("node 0: 2 GPUs reserved: a job of Slurm"), std::string::npos) << lines;
  daemon.kill();
  daemon.start();
  EXPECT_EQ(daemon.ask(kRoot, ShowNodes{}).body["nodes"][0]["others"], Json::array({0, 1}));
  EXPECT_EQ(daemon.core->state().reserved_why(node_id(0)), "a job of Slurm");
  // Whoever says the same again writes no row.
  const auto rows = daemon.core->state().lines().size();
  daemon.machine_facts = {Reserved{node_id(0), 0b11, "a job of Slurm"}};
  daemon.pass(1);
  EXPECT_EQ(daemon.core->state().lines().size(), rows);
  daemon.machine_facts = {Reserved{node_id(0), 0, ""}, Reserved{node_id(9), 1, "no such node"}};
  daemon.pass(5);
  EXPECT_EQ(daemon.show(id)["slots"].size(), 8U);
  EXPECT_TRUE(daemon.ask(kRoot, ShowNodes{}).body["nodes"][0]["others"].empty());
  daemon.expect_no_strays();
  daemon.expect_replay();
}

TEST(Core, NodesJoinWithTheirNamesAndAreKnownByThem) {
  TestDaemon daemon;
  daemon.start();
  const NodeAdded added{node_id(2), {"tux07", "h100", 8, {{"rack", "3"}}}};
  daemon.machine_facts = {added, Reserved{node_id(2), 0xff, "all of it"}};
  daemon.pass(1);
  daemon.machine_facts = {added, NodeAdded{node_id(3), {"tux07", "gpu", 4}},
                          NodeAdded{node_id(9), {"tux09", "gpu", 4}}};
  daemon.pass(1);
  const Json nodes = daemon.ask(kRoot, ShowNodes{}).body["nodes"];
  ASSERT_EQ(nodes.size(), 3U) << "once, and in order";
  EXPECT_EQ(nodes[2]["name"], "tux07");
  EXPECT_EQ(nodes[2]["type"], "h100");
  EXPECT_EQ(nodes[2]["labels"]["rack"], "3");
  EXPECT_EQ(daemon.ask(kRoot, SetNode{"tux07", NodeState::draining}).body["id"], 2);
  EXPECT_EQ(daemon.ask(kRoot, SetNode{"1", NodeState::draining}).body["id"], 1);
  EXPECT_EQ(daemon.ask(kRoot, SetNode{"node1", NodeState::up}).body["state"], "up");
  EXPECT_EQ(daemon.ask(kRoot, SetNode{"tux08", NodeState::up}).status, 404);
  const std::string health = daemon.ask(kRoot, ShowHealth{}).body.dump();
  EXPECT_NE(health.find("node tux07 is drained"), std::string::npos) << health;
  EXPECT_NE(health.find("rubato resume tux07"), std::string::npos) << health;
  // The same from a snapshot, byte for byte, and from the rows.
  const auto snapshot = daemon.core->state().snapshot();
  ASSERT_TRUE(snapshot.ok());
  DaemonState again(daemon.options.state);
  ASSERT_TRUE(again.load({RowNumber(1), DaemonState::kSnapshotVersion, *snapshot}).ok());
  EXPECT_EQ(again.snapshot().value(), *snapshot);
  daemon.kill();
  daemon.options.cluster_of_journal = true;
  daemon.start();
  EXPECT_EQ(daemon.ask(kRoot, ShowNodes{}).body["nodes"][2]["name"], "tux07");
  EXPECT_EQ(daemon.ask(kRoot, ShowNodes{}).body["nodes"][2]["state"], "draining");
  daemon.expect_replay();
}

TEST(Core, ADrainedNodeBecomesEmpty) {
  for (const char* policy : {"fifo", "srtf", "tiresias-las", "elasticflow", "afs-l", "pollux",
                             "gandiva-fair", "rubato"}) {
    SCOPED_TRACE(policy);
    TestDaemon daemon;
    daemon.options.policy = policy;
    daemon.start();
    const JobId elastic = id_of(daemon.submit(kAda, job_file("elastic", 1e6, 1, 2)));
    const JobId rigid = id_of(daemon.submit(kAda, job_file("rigid", 1e6, 2, 2)));
    const auto run = [&] {
      return daemon.state(elastic) == "RUNNING" && daemon.state(rigid) == "RUNNING";
    };
    const auto used = [&](std::size_t node) {
      return daemon.ask(kRoot, ShowNodes{}).body["nodes"][node]["used"].size();
    };
    ASSERT_TRUE(daemon.pass_until(run, 400));
    const std::size_t drained = used(0) > 0 ? 0 : 1;
    daemon.ask(kRoot, SetNode{node_id(drained), NodeState::draining});
    EXPECT_TRUE(daemon.pass_until([&] { return used(drained) == 0 && run(); }, 400));
  }
}

TEST(Core, NodesAreDrainedAndComeBack) {
  TestDaemon daemon;
  daemon.options.policy = "fifo";
  daemon.start();
  EXPECT_EQ(daemon.ask(kAda, SetNode{node_id(0), NodeState::draining}).status, 403);
  EXPECT_EQ(daemon.ask(kRoot, SetNode{node_id(0), NodeState::draining}).body["state"], "draining");
  const JobId id = id_of(daemon.submit(kAda, job_file("job", 1e6, 4, 4)));
  EXPECT_EQ(daemon.show(id)["slots"][0], "1.0");
  const JobId waits = id_of(daemon.submit(kAda, job_file("waits", 1e6, 4, 4)));
  daemon.pass(2);
  EXPECT_EQ(daemon.state(waits), "PENDING");
  // Its agent cannot be reached for a while: it is still to be drained afterwards.
  daemon.world.silence(node_id(0));
  daemon.pass(10);
  EXPECT_EQ(daemon.ask(kRoot, ShowNodes{}).body["nodes"][0]["state"], "unknown");
  daemon.world.end_silence(node_id(0));
  daemon.pass(2);
  EXPECT_EQ(daemon.ask(kRoot, ShowNodes{}).body["nodes"][0]["state"], "draining");
  daemon.ask(kRoot, SetNode{node_id(0), NodeState::up});
  daemon.pass(2);
  EXPECT_EQ(daemon.state(waits), "RUNNING");
  EXPECT_EQ(daemon.ask(kRoot, SetNode{node_id(7), NodeState::up}).status, 404);
  daemon.expect_replay();
}

// Whatever the daemon lives to tell its engine.
TEST(Core, TheOperatorsWordOutlivesTheDaemon) {
  TestDaemon daemon;
  daemon.start();
  const JobId id = id_of(daemon.submit(kAda, job_file("job", 1e4, 4, 4)));
  daemon.pass(3);
  EXPECT_EQ(daemon.show(id)["slots"][0], "0.0");
  const auto dies_after = [&](NodeState state) {
    std::vector<Input> word;
    word.emplace_back(Asked{1, {kRoot, SetNode{node_id(0), state}}});
    const Turn stored = daemon.core->turn(daemon.loop_now(), daemon.wall(), std::move(word));
    ASSERT_EQ(stored.marks.size(), 1U);
    daemon.kill();
    daemon.start();
  };
  dies_after(NodeState::down);
  daemon.pass(3);
  EXPECT_EQ(daemon.show(id)["slots"][0], "1.0") << "it was started anew elsewhere";
  const auto state = [&] {
    return daemon.ask(kRoot, ShowNodes{}).body["nodes"][0]["state"].get<std::string>();
  };
  EXPECT_EQ(state(), "down");
  dies_after(NodeState::up);
  daemon.pass(3);
  EXPECT_EQ(state(), "up");
  EXPECT_EQ(daemon.core->state().reported(node_id(0)), NodeState::up);
  // Said twice, it is told twice.
  static_cast<void>(daemon.ask(kRoot, SetNode{node_id(0), NodeState::down}));
  std::vector<Input> again;
  again.emplace_back(Asked{2, {kRoot, SetNode{node_id(0), NodeState::down}}});
  EXPECT_EQ(daemon.turn(std::move(again)).marks.size(), 1U);
  EXPECT_TRUE(daemon.world.violations.empty());
  daemon.expect_replay();
}

TEST(Core, SilenceFreesNoGpu) {
  TestDaemon daemon;
  daemon.options.policy = "fifo-backfill";
  daemon.start();
  const JobId id = id_of(daemon.submit(kAda, job_file("away", 1e4, 4, 4)));
  daemon.pass(3);
  daemon.world.silence(node_id(0));
  const JobId other = id_of(daemon.submit(kAda, job_file("other", 200, 8, 8)));
  daemon.pass(30);
  EXPECT_EQ(daemon.show(id)["gpus"], 4);
  EXPECT_EQ(daemon.show(id)["reason"], "node 0 is unknown: its agent is not connected");
  EXPECT_EQ(daemon.ask(kAda, ExplainJob{id}).body["sentences"][0],
            "Node 0 is unknown: its agent is not connected. The job keeps its GPUs there, and "
            "nothing else is started on them.");
  const Json health = daemon.ask(kAda, ShowHealth{}).body;
  EXPECT_EQ(health["status"], "problems");
  ASSERT_EQ(health["problems"].size(), 1U) << health.dump();
  EXPECT_NE(health["problems"][0]["what"].get<std::string>().find("node 0 is unknown since"),
            std::string::npos);
  EXPECT_NE(health["problems"][0]["remedy"].get<std::string>().find("rubato drain --down 0"),
            std::string::npos);
  EXPECT_EQ(daemon.state(other), "PENDING");
  const Work before = daemon.world.done(id);
  daemon.pass(10);
  EXPECT_GT(daemon.world.done(id), before) << "training goes on";
  daemon.world.end_silence(node_id(0));
  ASSERT_TRUE(daemon.pass_until([&] { return daemon.state(other) == "COMPLETED"; }, 900));
  EXPECT_EQ(daemon.world.finishes(id), 1);
  EXPECT_TRUE(daemon.world.violations.empty());
}

TEST(Core, ThePolicyIsSwitchedWhileJobsRun) {
  TestDaemon daemon;
  daemon.options.policy = "elasticflow";
  daemon.start();
  JobFile job = job_file("net", 400, 1, 8);
  job.profile = "net";
  const JobId first = id_of(daemon.submit(kAda, job));
  ASSERT_TRUE(daemon.pass_until([&] { return daemon.state(first) == "COMPLETED"; }, 600));
  job.work->amount = 8000;
  job.deadline_after = from_seconds(2000);
  const JobId promised = id_of(daemon.submit(kAda, job));
  daemon.pass(5);
  EXPECT_EQ(daemon.ask(kRoot, ShowPolicy{}).body["promises"].size(), 1U);
  EXPECT_EQ(daemon.ask(kRoot, SwitchPolicy{"nonsense"}).status, 400);
  EXPECT_EQ(daemon.ask(kAda, SwitchPolicy{"fifo"}).status, 403);
  const Answer switched = daemon.ask(kRoot, SwitchPolicy{"afs-l"});
  EXPECT_EQ(switched.status, 200);
  EXPECT_EQ(switched.body["policy"], "afs-l");
  ASSERT_EQ(switched.body["not_honoured"].size(), 1U);
  EXPECT_EQ(switched.body["not_honoured"][0]["job"], promised.value());
  EXPECT_FALSE(daemon.show(promised)["promised"].is_null()) << "the promise stays on its job";
  EXPECT_EQ(daemon.show(promised)["honoured"], false);
  daemon.pass(5);
  EXPECT_EQ(daemon.show(promised)["restarts"], 0) << "nothing was stopped";
  daemon.kill();
  daemon.start();
  EXPECT_EQ(daemon.ask(kRoot, ShowPolicy{}).body["policy"], "afs-l");
  const Answer back = daemon.ask(kRoot, SwitchPolicy{"elasticflow"});
  EXPECT_TRUE(back.body["not_honoured"].empty());
  ASSERT_TRUE(daemon.pass_until([&] { return daemon.state(promised) == "COMPLETED"; }, 3000));
  daemon.expect_replay();
}

TEST(Core, ASwitchRefusesNobodyWhoWasTakenIn) {
  for (const char* policy : {"elasticflow", "edf-admission"}) {
    SCOPED_TRACE(policy);
    TestDaemon daemon;
    daemon.options.policy = "fifo";
    daemon.start();
    make_known(daemon, 8);
    daemon.submit(kAda, job_file("runs", 1e6, 8, 8));
    const JobId late = id_of(daemon.submit(kAda, due_job(1e4, 8, 8, 60)));  // takes two minutes
    EXPECT_EQ(daemon.state(late), "PENDING");
    EXPECT_EQ(daemon.ask(kRoot, SwitchPolicy{policy}).status, 200);
    EXPECT_NE(daemon.state(late), "REFUSED");
    daemon.kill();
    daemon.start();
    ASSERT_TRUE(daemon.pass_until([&] { return daemon.state(late) == "COMPLETED"; }, 600));
    EXPECT_EQ(daemon.submit(kAda, due_job(1e4, 8, 8, 60)).status, 409) << "who comes now may be";
    daemon.expect_replay();
  }
}

TEST(Core, AHoldCostsNobodyItsAdmission) {
  TestDaemon daemon;
  daemon.options.policy = "elasticflow";
  daemon.start();
  make_known(daemon, 8);
  daemon.submit(kAda, due_job(4000, 8, 8, 100));
  const JobId held = id_of(daemon.submit(kAda, due_job(4000, 8, 8, 250)));
  EXPECT_EQ(daemon.state(held), "PENDING");
  EXPECT_EQ(daemon.show(held)["honoured"], true);
  daemon.ask(kAda, HoldJob{held, true});
  const Answer other = daemon.submit(kAda, due_job(12'000, 8, 8, 250));
  EXPECT_EQ(other.body["verdict"]["admitted"], true) << "in the room that it left";
  daemon.ask(kAda, HoldJob{held, false});
  EXPECT_EQ(daemon.state(held), "PENDING");
  EXPECT_EQ(daemon.show(held)["honoured"], false);
  ASSERT_TRUE(daemon.pass_until([&] { return daemon.state(held) == "COMPLETED"; }, 900));
  EXPECT_GE(daemon.show(id_of(other))["slack_seconds"].get<double>(), 0);
  daemon.expect_replay();
}

TEST(Core, ASwitchListsEveryPromiseThatIsNotKept) {
  TestDaemon daemon;
  daemon.options.policy = "elasticflow";
  daemon.start();
  make_known(daemon, 8);
  const JobId id = id_of(daemon.submit(kAda, due_job(20'000, 8, 8, 1000)));
  const auto not_honoured = [&](const char* policy) {
    std::vector<JobId::rep> jobs;
    const Json body = daemon.ask(kRoot, SwitchPolicy{policy}).body;
    for (const Json& one : body["not_honoured"]) jobs.push_back(one["job"].get<JobId::rep>());
    daemon.pass(2);
    return jobs;
  };
  const std::vector<JobId::rep> listed = {id.value()};
  EXPECT_EQ(not_honoured("fifo"), listed);
  EXPECT_EQ(not_honoured("srtf"), listed) << "nor does the next one";
  EXPECT_TRUE(not_honoured("edf-admission").empty()) << "admitted, though without a plan";
  const JobId admitted = id_of(daemon.submit(kAda, due_job(400, 8, 8, 1000)));
  EXPECT_EQ(not_honoured("fifo"), (std::vector<JobId::rep>{id.value(), admitted.value()}));
  EXPECT_TRUE(not_honoured("elasticflow").empty());
  daemon.expect_replay();
}

TEST(Core, AfterASwitchJobsOfUnknownSpeedAreMeasuredBeforeTheyArePromisedAnything) {
  TestDaemon daemon;
  daemon.options.policy = "fifo";
  daemon.start();
  daemon.submit(kAda, job_file("runs", 1e6, 8, 8));
  JobFile file = job_file("net", 2000, 1, 4);
  file.deadline_after = from_seconds(1000);
  const JobId id = id_of(daemon.submit(kAda, file));
  const JobId held = id_of(daemon.submit(kAda, file));
  daemon.ask(kAda, HoldJob{held, true});
  EXPECT_EQ(daemon.ask(kRoot, SwitchPolicy{"elasticflow"}).status, 200);
  EXPECT_EQ(daemon.state(id), "PROFILING");
  EXPECT_EQ(daemon.state(held), "HELD");
  EXPECT_EQ(daemon.ask(kAda, HoldJob{held, false}).body["state"], "PROFILING");
  daemon.pass(5);
  const auto before = daemon.core->state().snapshot().value();
  daemon.kill();
  daemon.start();
  EXPECT_EQ(daemon.core->state().snapshot().value(), before);
  for (const JobId one : {id, held}) {
    ASSERT_TRUE(daemon.pass_until([&] { return daemon.state(one) != "PROFILING"; }, 130));
    EXPECT_TRUE(daemon.core->state().job(one)->promise) << daemon.show(one).dump(1);
  }
  daemon.expect_replay();
}

TEST(Core, AProfileThatWasMeasuredAtOtherCountsDoesNotDo) {
  struct Case {
    std::vector<int> known;
    int min, max;
    bool measured;
  };
  for (const auto& [known, min, max, measured] :
       {Case{{1}, 8, 8, true}, Case{{4, 8}, 1, 2, true}, Case{{1}, 1, 8, false}}) {
    TestDaemon daemon;
    daemon.options.policy = "elasticflow";
    daemon.start();
    for (const int gpus : known) make_known(daemon, gpus);
    const JobId id = id_of(daemon.submit(kAda, due_job(1000, min, max, 600)));
    EXPECT_EQ(daemon.state(id) == "PROFILING", measured) << min << ":" << max;
    ASSERT_TRUE(daemon.pass_until([&] { return daemon.state(id) != "PROFILING"; }, 130));
    EXPECT_TRUE(daemon.core->state().job(id)->promise) << daemon.show(id).dump(1);
    daemon.expect_replay();
  }
}

TEST(Core, ARunThatIsOverBeforeItWasMeasuredHasShownItsSpeedAllTheSame) {
  for (const bool hasty : {false, true}) {
    TestDaemon daemon;
    daemon.options.policy = "elasticflow";
    if (hasty) daemon.hasty.insert("due");
    daemon.start();
    const JobId id = id_of(daemon.submit(kAda, due_job(80, 4, 6, 600)));
    EXPECT_EQ(daemon.state(id), "PROFILING");
    ASSERT_TRUE(daemon.pass_until([&] { return daemon.state(id) == "COMPLETED"; }, 100))
        << daemon.show(id)["reason"];
    EXPECT_FALSE(daemon.show(id)["started"].is_null());
    daemon.expect_replay();
  }
}

TEST(Core, AStartWithAnotherPolicyIsASwitch) {
  TestDaemon daemon;
  daemon.options.policy = "fifo";
  daemon.start();
  daemon.submit(kAda, job_file("runs", 1e6, 6, 6));
  const JobId head = id_of(daemon.submit(kAda, job_file("head", 1e6, 4, 4)));
  const JobId small = id_of(daemon.submit(kAda, job_file("small", 1e6, 1, 1)));
  daemon.pass(5);
  EXPECT_EQ(daemon.state(small), "PENDING");
  daemon.kill();
  daemon.options.policy = "fifo-backfill";
  daemon.options.switch_policy = true;
  daemon.start();
  daemon.pass(3);
  EXPECT_EQ(daemon.state(small), "RUNNING");
  EXPECT_EQ(daemon.state(head), "PENDING");
  daemon.expect_replay();
}

TEST(Core, MeasuringGoesBeforeJobsWithoutADeadline) {
  for (const char* policy : {"edf-admission", "elasticflow"}) {
    SCOPED_TRACE(policy);
    TestDaemon daemon;
    daemon.options.policy = policy;
    daemon.start();
    daemon.submit(kAda, job_file("long", 1e6, 1, 8));
    daemon.submit(kAda, job_file("rigid", 1e6, 4, 4));
    daemon.submit(kAda, job_file("rigid", 1e6, 4, 4));
    daemon.pass(5);
    const JobId id = id_of(daemon.submit(kAda, due_job(2000, 1, 4, 600)));
    EXPECT_EQ(daemon.state(id), "PROFILING");
    ASSERT_TRUE(daemon.pass_until([&] { return daemon.state(id) != "PROFILING"; }, 130));
    EXPECT_NE(daemon.state(id), "REFUSED") << daemon.show(id)["reason"];
    ASSERT_TRUE(daemon.pass_until([&] { return daemon.state(id) == "COMPLETED"; }, 700));
    EXPECT_GE(daemon.show(id)["slack_seconds"].get<double>(), 0);
    daemon.expect_replay();
  }
}

TEST(Core, ARefusalSaysHowTheMeasuringRunEnded) {
  TestDaemon daemon;
  daemon.options.policy = "elasticflow";
  daemon.crashes["due"] = 99;
  daemon.start();
  const JobId id = id_of(daemon.submit(kAda, due_job(20, 1, 4, 600)));
  ASSERT_TRUE(daemon.pass_until([&] { return daemon.state(id) == "REFUSED"; }, 100));
  const std::string reason = daemon.show(id)["reason"];
  EXPECT_NE(reason.find("the measuring run ended: failed 4 times; the last time: its "
                        "program failed"),
            std::string::npos)
      << reason;
  const auto lines = texts(daemon.ask(kAda, History{0, 1000, id}).body["events"]);
  EXPECT_EQ(std::count(lines.begin(), lines.end(),
                       "its speed was measured; the policy decides on it now"),
            0);
  EXPECT_TRUE(std::any_of(lines.begin(), lines.end(), [](const std::string& line) {
    return line.starts_with("its speed could not be measured");
  }));
  daemon.expect_replay();
}

TEST(Core, AProgramThatTellsNothingIsPromisedNothingUnlessItsSpeedIsKnown) {
  TestDaemon daemon;
  daemon.options.policy = "elasticflow";
  daemon.start();
  JobFile file = due_job(400, 8, 8, 600);
  file.elastic = false;
  const Answer refused = daemon.submit(kAda, file);
  EXPECT_EQ(refused.status, 409);
  EXPECT_NE(refused.body["reason"].get<std::string>().find("(elastic: false)"), std::string::npos);
  make_known(daemon, 8);
  EXPECT_EQ(daemon.submit(kAda, file).body["verdict"]["admitted"], true);
  daemon.expect_replay();
}

// --- users ---

TEST(Core, UsersAndTokens) {
  TestDaemon daemon;
  daemon.start();
  EXPECT_EQ(daemon.ask(kAda, AddUser{"eve", true, 1, 0, digest_of(1)}).status, 403);
  EXPECT_EQ(daemon.ask(kRoot, AddUser{"eve", true, 2, 0, digest_of(1)}).status, 201);
  EXPECT_EQ(daemon.ask(kRoot, AddUser{"eve", true, 2, 0, digest_of(2)}).status, 409);
  EXPECT_EQ(daemon.core->who(digest_of(1)), (Caller{"eve", true}));
  EXPECT_EQ(daemon.core->who(digest_of(2)), std::nullopt);
  EXPECT_EQ(daemon.ask(kRoot, AddToken{"eve", digest_of(2)}).status, 201);
  EXPECT_EQ(daemon.core->who(digest_of(2)), (Caller{"eve", true}));
  daemon.kill();
  daemon.start();
  EXPECT_EQ(daemon.core->who(digest_of(2)), (Caller{"eve", true}));
  const std::string name = std::string(kTokenNameDigits, '0');
  EXPECT_EQ(daemon.ask(kRoot, RemoveToken{"eve", name}).status, 404);
  EXPECT_EQ(daemon.ask(kRoot, RemoveToken{"eve", "010101010101"}).status, 200);
  EXPECT_EQ(daemon.core->who(digest_of(1)), std::nullopt);
  EXPECT_EQ(daemon.ask(kRoot, ListUsers{}).body["users"][0]["tokens"],
            Json::array({"020202020202"}));
  EXPECT_EQ(daemon.ask(kRoot, RemoveUser{"eve"}).status, 200);
  EXPECT_EQ(daemon.core->who(digest_of(2)), std::nullopt);
  EXPECT_EQ(daemon.ask(kRoot, RemoveUser{"eve"}).status, 404);
}

TEST(Core, APageHasItsOwnTokenWhichEnds) {
  TestDaemon daemon;
  daemon.start();
  EXPECT_EQ(daemon.ask(kRoot, AddUser{"eve", false, 2, 0, digest_of(1)}).status, 201);
  const Caller eve{"eve", false};
  const Answer opened = daemon.ask(eve, OpenPage{digest_of(3)});
  EXPECT_EQ(opened.status, 201);
  EXPECT_EQ(opened.body["user"], "eve");
  EXPECT_EQ(opened.body["role"], "user");
  EXPECT_EQ(daemon.core->who(digest_of(3)), eve);
  EXPECT_EQ(daemon.ask(kRoot, ListUsers{}).body["users"][0]["pages"][0]["token"], "030303030303");
  daemon.kill();
  daemon.start();
  EXPECT_EQ(daemon.core->who(digest_of(3)), eve) << "it outlives the daemon";
  EXPECT_EQ(daemon.ask(eve, ClosePage{digest_of(1)}).status, 409) << "a lasting token";
  EXPECT_EQ(daemon.ask(kAda, ClosePage{digest_of(3)}).status, 409) << "of another user";
  EXPECT_EQ(daemon.ask(eve, ClosePage{digest_of(3)}).status, 200);
  EXPECT_EQ(daemon.core->who(digest_of(3)), std::nullopt);

  EXPECT_EQ(daemon.ask(eve, OpenPage{digest_of(4)}).status, 201);
  EXPECT_EQ(daemon.ask(kRoot, RemoveToken{"eve", "040404040404"}).status, 200) << "by an admin";
  EXPECT_EQ(daemon.core->who(digest_of(4)), std::nullopt);
  EXPECT_EQ(daemon.core->who(digest_of(1)), eve) << "the lasting token is still there";
}

TEST(Core, WhoHasNoRecordGetsOneWithTheirPage) {
  TestDaemon daemon;
  daemon.start();
  EXPECT_EQ(daemon.ask(kAda, OpenPage{digest_of(1)}).status, 201);
  EXPECT_EQ(daemon.core->who(digest_of(1)), (Caller{kAda.user, kAda.admin}));
  for (std::uint8_t i = 2; i < 40; ++i)
    EXPECT_EQ(daemon.ask(kAda, OpenPage{digest_of(i)}).status, 201);
  EXPECT_EQ(daemon.core->who(digest_of(1)), std::nullopt) << "the oldest made room";
  EXPECT_EQ(daemon.core->who(digest_of(39)), (Caller{kAda.user, kAda.admin}));
  EXPECT_EQ(daemon.ask(kRoot, RemoveUser{kAda.user}).status, 200);
  EXPECT_EQ(daemon.core->who(digest_of(39)), std::nullopt);
}

// --- history, metrics, health ---

TEST(Core, HistoryIsTheSameFromMemoryAndFromTheJournal) {
  TestDaemon daemon;
  daemon.start();
  daemon.submit(kAda, job_file("a", 100, 2, 2));
  daemon.pass(20);
  const Json before = daemon.ask(kRoot, History{0, 1000, {}}).body;
  const auto lines = texts(before["events"]);
  for (const char* line : {"a submitted by ada", "started on 2 GPUs (0.0-1)", "finished"}) {
    EXPECT_NE(std::find(lines.begin(), lines.end(), line), lines.end()) << line;
  }
  ASSERT_TRUE(daemon.core->save());
  daemon.kill();
  daemon.start();
  EXPECT_TRUE(daemon.core->state().lines().empty()) << "they are in the journal now";
  const Json after = daemon.ask(kRoot, History{0, 1000, {}}).body;
  EXPECT_EQ(after["events"].dump(), before["events"].dump());
  // Without a number, the newest; of what the restart itself has added, too.
  const Json all = daemon.ask(kRoot, History{0, 1000, {}}).body["events"];
  const Json newest = daemon.ask(kRoot, History{{}, 2, {}}).body["events"];
  ASSERT_EQ(newest.size(), 2U);
  EXPECT_EQ(newest[0], all[all.size() - 2]);
  EXPECT_EQ(newest[1], all.back());
  EXPECT_EQ(daemon.ask(kRoot, History{}).body["events"], all);
  // In pages, nothing is lost.
  Json paged = Json::array();
  std::uint64_t next = 0;
  for (bool more = true; more;) {
    const Json page = daemon.ask(kRoot, History{next, 2, {}}).body;
    for (const Json& event : page["events"]) paged.push_back(event);
    more = !page["next"].is_null();
    if (more) next = page["next"].get<std::uint64_t>();
  }
  ASSERT_GE(paged.size(), before["events"].size());
  for (std::size_t i = 0; i < before["events"].size(); ++i)
    EXPECT_EQ(paged[i], before["events"][i]);
}

TEST(Core, AQuestionAboutALongPastIsAnsweredInParts) {
  TestDaemon daemon;
  daemon.start();
  daemon.submit(kAda, job_file("a", 100, 2, 2));
  daemon.pass(20);
  const Json whole = daemon.ask(kRoot, History{0, 1000, {}}).body["events"];
  ASSERT_TRUE(daemon.core->save());
  daemon.kill();
  daemon.options.history_rows = 3;
  daemon.start();
  Json parts = Json::array();
  std::uint64_t next = 0;
  int asked = 0;
  for (bool more = true; more; ++asked) {
    const Json part = daemon.ask(kRoot, History{next, 1000, {}}).body;
    for (const Json& event : part["events"]) parts.push_back(event);
    more = !part["next"].is_null();
    if (more) next = part["next"].get<std::uint64_t>();
  }
  EXPECT_GT(asked, 3);
  ASSERT_GE(parts.size(), whole.size());
  for (std::size_t i = 0; i < whole.size(); ++i) EXPECT_EQ(parts[i], whole[i]);
}

TEST(Core, EndedJobsOfOneUserPushOutNobodyElses) {
  TestDaemon daemon;
  daemon.options.state.ended_kept = 5;
  daemon.options.snapshot_rows = 10;
  daemon.start();
  const JobId hers = id_of(daemon.submit(kAda, job_file("hers", 100, 2, 2), "key"));
  const JobId his = id_of(daemon.submit(kBob, job_file("his", 100, 2, 2), "key"));
  daemon.pass(20);
  ASSERT_EQ(daemon.state(his), "COMPLETED");
  const auto used_by = [&](const std::string& user) {
    const std::string text = daemon.ask(kRoot, ShowMetrics{}).body["text"];
    const std::string name = "rubato_user_gpu_seconds_total{user=\"" + user + "\"} ";
    const auto at = text.find(name);
    return at == std::string::npos ? -1 : std::stod(text.substr(at + name.size()));
  };
  const double used = used_by("bob");
  EXPECT_GT(used, 0);
  std::set<JobId> forgotten;
  daemon.before_told = [&](const Turn& turn) {
    forgotten.insert(turn.forgotten.begin(), turn.forgotten.end());
  };
  for (int i = 0; i < 6; ++i) {
    static_cast<void>(daemon.submit(kBob, job_file("short", 10, 2, 2)));
    daemon.pass(10);
  }
  EXPECT_EQ(daemon.core->state().alive(), 0U);
  EXPECT_EQ(daemon.core->state().jobs().size(), 5U);
  EXPECT_EQ(daemon.state(hers), "COMPLETED");
  EXPECT_EQ(id_of(daemon.submit(kAda, job_file("hers", 100, 2, 2), "key")), hers);
  EXPECT_EQ(daemon.ask(kBob, ShowJob{his}).status, 404);
  EXPECT_TRUE(forgotten.contains(his)) << "so that its directory is removed";
  EXPECT_FALSE(forgotten.contains(hers));
  const double more = used_by("bob");
  EXPECT_GT(more, used) << "a counter does not fall";
  daemon.kill();
  daemon.start();
  EXPECT_DOUBLE_EQ(used_by("bob"), more);
  EXPECT_EQ(daemon.state(hers), "COMPLETED");
  daemon.expect_replay();
}

// Who cancels a long queue keeps what is known of the jobs that ran, and their directories.
TEST(Core, JobsThatNeverStartedPushOutNoneThatRan) {
  TestDaemon daemon("1x1");
  daemon.options.state.ended_kept = 8;
  daemon.options.snapshot_rows = 10;
  daemon.start();
  std::vector<JobId> ran;
  for (int i = 0; i < 5; ++i) {
    ran.push_back(id_of(daemon.submit(i < 3 ? kAda : kBob, job_file("ran", 10, 1, 1))));
    daemon.pass(10);
    ASSERT_EQ(daemon.state(ran.back()), "COMPLETED");
  }
  std::vector<JobId> forgotten;
  daemon.before_told = [&](const Turn& turn) {
    forgotten.insert(forgotten.end(), turn.forgotten.begin(), turn.forgotten.end());
  };
  static_cast<void>(daemon.submit(kAda, job_file("blocks", 1e6, 1, 1)));
  JobId last;
  for (int i = 0; i < 30; ++i) last = id_of(daemon.submit(kAda, job_file("waits", 1e6, 1, 1)));
  CancelJobs waiting;
  waiting.states = {JobState::pending};
  const Answer answer = daemon.ask(kAda, waiting);
  EXPECT_EQ(answer.body["cancelled"], 30) << "whether they are remembered or not";
  EXPECT_EQ(answer.body["jobs"][0]["state"], "CANCELLED");
  for (int life = 0; life < 2; ++life) {
    for (const JobId id : ran) EXPECT_EQ(daemon.state(id), "COMPLETED");
    EXPECT_EQ(daemon.state(last), "CANCELLED") << "the newest of them are remembered, too";
    daemon.kill();
    daemon.start();
  }
  EXPECT_TRUE(forgotten.empty()) << "they have no directories";
  // Refused ones are remembered long enough to be answered, however many ran.
  EXPECT_EQ(daemon.submit(kBob, job_file("never", 1, 9, 9)).status, 409);
  daemon.expect_replay();
}

TEST(Core, MetricsAndHealth) {
  TestDaemon daemon;
  daemon.start();
  daemon.submit(kAda, job_file("a", 1e6, 2, 2));
  daemon.pass(5);
  const std::string text = daemon.ask(kRoot, ShowMetrics{}).body["text"];
  EXPECT_NE(text.find("rubato_"), std::string::npos);
  EXPECT_EQ(daemon.ask(kRoot, ShowHealth{}).body,
            Json({{"status", "ok"}, {"problems", Json::array()}}));
  const Json log = daemon.ask(kAda, FindLog{"a"}).body;
  EXPECT_EQ(log["id"], 1);
  EXPECT_EQ(log["ended"], false);
}

TEST(Core, HealthSaysWhatIsWrongAndWhatToDo) {
  TestDaemon daemon;
  daemon.options.policy = "fifo-backfill";
  daemon.crashes["frail"] = 99;
  daemon.options.problems = [] { return std::vector<Problem>{{"the disk is full", "make room"}}; };
  daemon.start();
  JobFile late = job_file("late", 1e6, 1, 1);
  late.deadline_after = from_seconds(60);
  const JobId id = id_of(daemon.submit(kAda, late));
  JobFile frail = job_file("frail", 100, 1, 1);
  frail.max_failures = 90;
  const JobId fails = id_of(daemon.submit(kBob, frail));
  ASSERT_TRUE(daemon.pass_until([&] { return daemon.show(fails)["failures"] >= 3; }, 600));
  daemon.ask(kRoot, SetNode{node_id(1), NodeState::draining});
  const auto whats = [&](const Caller& caller) {
    std::string all;
    const Answer answer = daemon.ask(caller, ShowHealth{});
    EXPECT_EQ(answer.status, 200);
    for (const Json& one : answer.body["problems"])
      all += one["what"].get<std::string>() + " -> " + one["remedy"].get<std::string>() + "\n";
    return all;
  };
  const std::string all = whats(kRoot);
  for (const char* part : {"the disk is full -> make room", "node 1 is drained since",
                           "rubato resume 1", "job 1 (late) ", "its deadline",
                           "job 2 (frail) has failed 3 times -> look at rubato logs 2"})
    EXPECT_NE(all.find(part), std::string::npos) << part << "\n" << all;
  EXPECT_EQ(whats(kAda).find("frail"), std::string::npos) << "of others nothing is told";
  EXPECT_NE(whats(kAda).find("job 1 (late)"), std::string::npos);
  daemon.ask(kAda, CancelJob{id});
  EXPECT_EQ(whats(kAda).find("late"), std::string::npos) << "what is over is not wrong now";
}

TEST(Core, WithoutMemoryNoNewJobIsTakenInAndTheRestGoesOn) {
  TestDaemon daemon;
  bool enough = true;
  daemon.options.may_grow = [&]() -> Result<void> {
    if (enough) return {};
    return Error{"the daemon is short of memory"};
  };
  daemon.start();
  const JobId id = id_of(daemon.submit(kAda, job_file("runs", 300, 2, 2), "first"));
  enough = false;
  const Answer refused = daemon.submit(kAda, job_file("new", 100), "second");
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.body["error"], "the daemon is short of memory");
  EXPECT_EQ(daemon.submit(kAda, job_file("runs", 300, 2, 2), "first").status, 200)
      << "one that is there already is answered";
  EXPECT_EQ(daemon.ask(kAda, ListJobs{}).body["jobs"].size(), 1U);
  ASSERT_TRUE(daemon.pass_until([&] { return daemon.state(id) == "COMPLETED"; }, 60));
  enough = true;
  EXPECT_EQ(daemon.submit(kAda, job_file("new", 100), "second").status, 201);
  daemon.expect_replay();
}

TEST(Core, WhoIsAddedAndCannotSubmitIsWarnedOf) {
  TestDaemon daemon;
  daemon.options.may_run = [](const Caller& caller) -> Result<void> {
    if (caller.user == "ada") return {};
    return Error{"this machine has no such user"};
  };
  daemon.start();
  EXPECT_FALSE(
      daemon.ask(kRoot, AddUser{"ada", false, 1, 0, digest_of(1)}).body.contains("warning"));
  const Answer added = daemon.ask(kRoot, AddUser{"nobody", false, 1, 0, digest_of(2)});
  EXPECT_EQ(added.status, 201) << "others may look";
  EXPECT_EQ(added.body["warning"], "they can look, but not submit: this machine has no such user");
}

TEST(Core, EndedJobsShowTheLimitsThatTheyHad) {
  TestDaemon daemon;
  daemon.start();
  const JobId id = id_of(daemon.submit(kAda, job_file("a", 1e6, 1, 4)));
  daemon.pass(2);
  EXPECT_EQ(daemon.ask(kAda, ResizeJob{id, {2, 2, {}}}).status, 200);
  daemon.pass(5);
  daemon.ask(kAda, CancelJob{id});
  ASSERT_TRUE(daemon.pass_until([&] { return daemon.state(id) == "CANCELLED"; }, 60));
  const Json limits = daemon.show(id)["limits"];
  EXPECT_EQ(limits["min"], 2);
  EXPECT_EQ(limits["max"], 2);
  const auto lines = texts(daemon.ask(kRoot, History{0, 1000, {}}).body["events"]);
  EXPECT_NE(std::find(lines.begin(), lines.end(), "may have 2 GPUs from now on"), lines.end());
  ASSERT_TRUE(daemon.core->save());
  daemon.kill();
  daemon.start();
  EXPECT_EQ(daemon.show(id)["limits"], limits) << "also from a snapshot";
  daemon.expect_replay();
}

TEST(Core, AResizeOfAProgramThatIsStartedAgainIsARestart) {
  TestDaemon daemon;
  daemon.start();
  JobFile file = job_file("plain", 1e6, 1, 4);
  file.elastic = false;
  const JobId id = id_of(daemon.submit(kAda, file));
  daemon.pass(2);
  daemon.ask(kAda, ResizeJob{id, {2, 2, {}}});
  ASSERT_TRUE(daemon.pass_until([&] { return daemon.show(id)["gpus"] == 2; }, 60));
  daemon.pass(2);
  JobStatus status = *daemon.core->status(id);
  status.pauses = {2.5};
  std::vector<Input> inputs;
  inputs.emplace_back(status);
  static_cast<void>(daemon.core->turn(daemon.loop_now() + from_seconds(6),
                                      daemon.wall() + from_seconds(6), std::move(inputs)));
  const Json job = show_job({daemon.core->state(), {}, [](JobId) { return nullptr; }},
                            *daemon.core->state().job(id));
  EXPECT_EQ(job["resizes"], 1);
  EXPECT_EQ(job["restarts"], 1);
  EXPECT_EQ(job["last_pause_seconds"], 2.5);
}

TEST(Core, AJobShowsWhatItsProgramReports) {
  TestDaemon daemon;
  daemon.start();
  const JobId id = id_of(daemon.submit(kAda, job_file("job", 1e6, 1, 1)));
  daemon.pass(8);
  EXPECT_EQ(daemon.show(id)["progress"]["metrics"], Json::object());
  JobStatus status = *daemon.core->status(id);
  status.progress.skew = 0.7;
  status.progress.metrics = {{"accuracy", 0.5}, {"top 5", 0.75}};
  daemon.pass(10, 10);
  static_cast<void>(daemon.turn({status}));
  const Json progress = daemon.show(id)["progress"];
  EXPECT_EQ(progress["skew"], 0.7);
  EXPECT_EQ(progress["metrics"], (Json{{"accuracy", 0.5}, {"top 5", 0.75}}));
}

TEST(Core, AJobBeyondItsDeclaredWorkHasNoExpectedEnd) {
  TestDaemon daemon;
  daemon.start();
  JobFile file = job_file("long", 100, 1, 1);
  const JobId id = id_of(daemon.submit(kAda, file));
  daemon.pass(8);
  EXPECT_FALSE(daemon.show(id)["eta"].is_null());
  JobStatus status = *daemon.core->status(id);
  status.progress.samples = 150;
  std::vector<Input> inputs;
  inputs.emplace_back(status);
  inputs.emplace_back(Asked{1000, {kAda, ShowJob{id}}});
  const Turn turn = daemon.core->turn(daemon.loop_now(), daemon.wall(), std::move(inputs));
  ASSERT_EQ(turn.answers.size(), 1U);
  const Json& job = turn.answers[0].second.body;
  EXPECT_EQ(job["state"], "RUNNING");
  EXPECT_TRUE(job["eta"].is_null()) << job.dump();
  EXPECT_EQ(job["progress"]["done"], 1.0);
}

TEST(Core, ThePolicyAndTheJobShowOnePromisedTime) {
  TestDaemon daemon;
  daemon.options.policy = "elasticflow";
  daemon.start();
  JobFile file = job_file("net", 1000, 1, 4);
  file.profile = "net";
  file.deadline_after = from_seconds(7200);
  const JobId id = id_of(daemon.submit(kAda, file));
  ASSERT_TRUE(daemon.pass_until([&] { return !daemon.show(id)["promised"].is_null(); }, 300));
  const Json promises = daemon.ask(kAda, ShowPolicy{}).body["promises"];
  ASSERT_EQ(promises.size(), 1U);
  EXPECT_EQ(promises[0]["promised"], daemon.show(id)["promised"]);
}

// --- a journal whose beginning is no longer kept ---

TEST(Core, TheJournalIsPrunedAndHistoryAndReplaySayFromWhereOnTheySee) {
  TestDaemon daemon;
  daemon.options.keep_journal = from_seconds(3600);
  daemon.start();
  const auto segments = [&] {
    int count = 0;
    for (const auto& file : std::filesystem::directory_iterator(daemon.directory.path()))
      count += file.path().filename().string().starts_with("journal-0") ? 1 : 0;
    return count;
  };
  for (int hour = 0; hour < 5; ++hour) {
    daemon.submit(kAda, job_file("job" + std::to_string(hour), 100, 2, 2));
    daemon.pass(1800, 5);
    ASSERT_TRUE(daemon.core->save());
    if (hour == 1) {
      daemon.kill();
      daemon.now += from_seconds(600);  // downtime counts, too
      daemon.start();
    }
  }
  EXPECT_LT(segments(), 5);
  EXPECT_GE(segments(), 2);
  const Json history = daemon.ask(kRoot, History{0, 1000, {}}).body;
  const auto first = history["first"].get<std::uint64_t>();
  EXPECT_GT(first, 1U);
  const auto lines = texts(history["events"]);
  EXPECT_GE(history["events"][0]["number"].get<std::uint64_t>(), first);
  EXPECT_EQ(std::find(lines.begin(), lines.end(), "job0 submitted by ada"), lines.end());
  EXPECT_NE(std::find(lines.begin(), lines.end(), "job4 submitted by ada"), lines.end());
  EXPECT_EQ(daemon.show(JobId(1))["state"], "COMPLETED") << "jobs are remembered all the same";
  const auto replayed = replay(daemon.directory.path(), daemon.options.state);
  ASSERT_TRUE(replayed) << replayed.error().message;
  EXPECT_FALSE(replayed->difference);
  EXPECT_GE(replayed->after.value() + 1, first);
  EXPECT_GT(replayed->decisions, 0U);
  daemon.kill();
  daemon.start();
  EXPECT_EQ(daemon.dropped, "");
  daemon.submit(kAda, job_file("last", 100, 2, 2));
  daemon.pass(60);
  daemon.expect_replay();
}

// --- time ---

TEST(Core, MetricsCountWaitsRestartsAndPauses) {
  TestDaemon daemon;
  double clock = 0;
  daemon.options.stopwatch = [&clock] { return clock += 0.001; };
  daemon.start();
  const JobId id = id_of(daemon.submit(kAda, job_file("job", 4000, 2, 2)));
  daemon.pass(3);
  daemon.ask(kAda, HoldJob{id, true});
  daemon.pass(3);
  daemon.ask(kAda, HoldJob{id, false});
  daemon.pass(3);
  JobStatus status;
  status.job = id_of(daemon.submit(kAda, job_file("untold", 100, 8, 8)));
  for (const std::vector<double>& pauses :
       {std::vector<double>(), {0.5}, {0.5}, {0.5, 0.5}, {0.5, 2}}) {
    status.pauses = pauses;
    static_cast<void>(daemon.turn({status}));
  }
  const std::string text = daemon.ask(kRoot, ShowMetrics{}).body["text"];
  for (const char* line : {"rubato_waiting_seconds_count 1\n", "rubato_restarts_total 1\n",
                           "rubato_resize_pause_seconds_count 3\n"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
  }
  EXPECT_EQ(text.find("rubato_turn_seconds_count 0\n"), std::string::npos);
}

// The value of a sample, as "name" or "name{label=\"value\"}".
double metric(const std::string& text, const std::string& sample) {
  const auto at = text.find("\n" + sample + " ");
  EXPECT_NE(at, std::string::npos) << sample << text;
  return at == std::string::npos ? -1 : std::stod(text.substr(at + sample.size() + 2));
}

TEST(Core, MetricsTellDecisionsDeadlinesAndShares) {
  TestDaemon daemon;
  daemon.options.policy = "elasticflow";
  constexpr double kTick = 1.0 / 1024;  // whose sums are exact
  double clock = 0;
  daemon.options.stopwatch = [&clock] { return clock += kTick; };
  daemon.start();
  JobFile file = job_file("net", 400, 2, 2);
  file.profile = "net";
  const JobId first = id_of(daemon.submit(kAda, file));
  ASSERT_TRUE(daemon.pass_until([&] { return daemon.state(first) == "COMPLETED"; }, 600));
  file.work->amount = 4000;  // 200 s at 20 a second
  file.deadline_after = from_seconds(900);
  const JobId id = id_of(daemon.submit(kAda, file));
  daemon.pass(5);
  const Turn turn =
      daemon.turn({Asked{901, {kRoot, ShowMetrics{}}}, Asked{902, {kRoot, ShowJob{id}}}});
  ASSERT_EQ(turn.answers.size(), 2U);
  const std::string text = turn.answers[0].second.body["text"];
  EXPECT_EQ(metric(text, "rubato_deadline_jobs{expected=\"met\"}"), 1);
  EXPECT_EQ(metric(text, "rubato_deadline_jobs{expected=\"missed\"}"), 0);
  const double slack = metric(text, "rubato_deadline_slack_seconds");
  EXPECT_EQ(slack, turn.answers[1].second.body["slack_seconds"].get<double>());
  EXPECT_NEAR(slack, 900 - 200, 15) << "but for the time that the start took";
  EXPECT_EQ(metric(text, "rubato_user_gpus{user=\"ada\"}"), 2);
  EXPECT_EQ(metric(text, "rubato_samples_per_second"), 20);
  EXPECT_EQ(metric(text, "rubato_goodput_samples_per_second"), 20) << "its batch never changes";
  const double decisions = metric(text, "rubato_decisions_total");
  EXPECT_GE(decisions, 3) << "two came, and one ended";
  EXPECT_EQ(metric(text, "rubato_decision_seconds_count"), decisions);
  EXPECT_EQ(metric(text, "rubato_decision_seconds_sum"), decisions * kTick);
  EXPECT_EQ(metric(text, "rubato_decision_seconds_bucket{le=\"0.0005\"}"), 0);
  EXPECT_EQ(metric(text, "rubato_decision_seconds_bucket{le=\"0.001\"}"), decisions);
}

TEST(Core, GoodputIsThePartOfTheSamplesThatCounts) {
  TestDaemon daemon;
  daemon.options.policy = "pollux:interval=10";
  daemon.goodputs["net"] = true_goodput();
  daemon.start();
  const JobId id = id_of(daemon.submit(kAda, adaptive_job("net", 1e7)));
  daemon.pass(65);  // between two decisions
  ASSERT_EQ(daemon.state(id), "RUNNING");
  const std::string text = daemon.ask(kRoot, ShowMetrics{}).body["text"];
  const JobProgress& told = daemon.core->status(id)->progress;
  ASSERT_GT(told.batch, 64);
  EXPECT_EQ(metric(text, "rubato_samples_per_second"), told.rate);
  EXPECT_NEAR(metric(text, "rubato_goodput_samples_per_second"),
              told.rate * true_goodput().efficiency(told.batch), 1e-6 * told.rate);
  EXPECT_LT(true_goodput().efficiency(told.batch), 0.99);
}

TEST(Core, LoopTimeGoesOnAndDeadlinesAreWallTimes) {
  TestDaemon daemon;
  daemon.options.policy = "edf";
  daemon.start();
  JobFile job = job_file("net", 1e5, 1, 8);
  job.deadline_after = from_seconds(7200);
  const JobId id = id_of(daemon.submit(kAda, job));
  daemon.pass(10);
  const Json before = daemon.show(id);
  const Time deadline = *daemon.core->state().view(id)->spec->deadline;
  daemon.clock_jump = from_seconds(3600);  // somebody sets the clock
  daemon.pass(1);
  EXPECT_EQ(*daemon.core->state().view(id)->spec->deadline, deadline - from_seconds(3600));
  EXPECT_EQ(daemon.show(id)["deadline"], before["deadline"]) << "the wall time it was";
  EXPECT_EQ(daemon.ask(kRoot, ShowNodes{}).body["nodes"][0]["state"], "up") << "no lease is lost";
  const auto lines = texts(daemon.ask(kRoot, History{0, 1000, {}}).body["events"]);
  EXPECT_NE(std::find_if(lines.begin(), lines.end(),
                         [](const std::string& line) {
                           return line.find("moved by 3600.0 s") != std::string::npos &&
                                  line.find("1 deadline re-planned") != std::string::npos;
                         }),
            lines.end());
  const Time stopped = daemon.core->time();
  daemon.kill();
  daemon.now += from_seconds(100);  // nobody is there
  daemon.start();
  EXPECT_GE(daemon.core->time(), stopped - from_seconds(1));
  EXPECT_LE(daemon.core->time(), stopped) << "loop time does not jump";
  EXPECT_EQ(daemon.show(id)["deadline"], before["deadline"]);
  const Json newest = daemon.ask(kRoot, History{{}, 1000, {}}).body["events"];
  std::string down;
  for (const std::string& line : texts(newest)) {
    if (line.find("the daemon was down for 1") == 0) down = line;
  }
  EXPECT_NE(down.find("1 deadline re-planned"), std::string::npos) << newest.dump();
  daemon.clock_jump += from_seconds(60);  // while it runs, that is the clock and nothing else
  daemon.pass(1);
  const auto later = texts(daemon.ask(kRoot, History{{}, 1000, {}}).body["events"]);
  EXPECT_NE(std::find_if(later.begin(), later.end(),
                         [](const std::string& line) {
                           return line.find("the wall clock moved by 60.0 s") == 0;
                         }),
            later.end());
  daemon.expect_replay();
}

TEST(Core, LoopTimeGoesOnWhereNothingIsSaid) {
  TestDaemon daemon;
  daemon.options.measure_every = std::chrono::hours(1);
  daemon.start();
  const JobId id = id_of(daemon.submit(kAda, job_file("silent", 1e5, 2, 2)));
  daemon.pass(600);
  const std::size_t clocks = rows_of(daemon, "clock");
  EXPECT_GT(clocks, 15U);
  EXPECT_LT(clocks, 25U);
  const auto lines = texts(daemon.ask(kRoot, History{0, 1000, {}}).body["events"]);
  EXPECT_EQ(std::count_if(
                lines.begin(), lines.end(),
                [](const std::string& line) { return line.find("clock") != std::string::npos; }),
            1)
      << "the hours are not struck";
  const Time stopped = daemon.core->time();
  daemon.kill();
  daemon.start();
  EXPECT_GE(daemon.core->time(), stopped - from_seconds(30));
  EXPECT_LE(daemon.core->time(), stopped);
  // A clean stop says it to the last.
  daemon.pass(10);
  const Time left = daemon.core->time();
  ASSERT_TRUE(daemon.core->close());
  daemon.kill();
  daemon.start();
  EXPECT_EQ(daemon.core->time(), left);
  EXPECT_EQ(daemon.state(id), "RUNNING");
  daemon.expect_replay();
}

// Leases, speeds and plans are on the loop's clock; only what people were told is on the wall's.
TEST(Core, AJumpOfTheWallClockLosesNoLeaseAndNoPromise) {
  constexpr double kHour = 3600;
  TestDaemon daemon;
  daemon.options.policy = "elasticflow";
  daemon.start();
  JobFile file = job_file("net", 400, 1, 4);
  file.profile = "net";
  const JobId first = id_of(daemon.submit(kAda, file));
  ASSERT_TRUE(daemon.pass_until([&] { return daemon.state(first) == "COMPLETED"; }, 600));
  file.work->amount = 20'000;  // about ten minutes on four GPUs
  file.deadline_after = from_seconds(3 * kHour);
  const JobId late = id_of(daemon.submit(kAda, file));
  file.deadline_after = from_seconds(kHour / 2);  // impossible if the clock is right
  const JobId soon = id_of(daemon.submit(kAda, file));
  daemon.pass(20);
  const auto deadline = [&](JobId id) { return *daemon.core->state().view(id)->spec->deadline; };
  const std::map<JobId, Time> due = {{late, deadline(late)}, {soon, deadline(soon)}};
  std::map<JobId, Json> promised;
  for (const auto& [id, at] : due) {
    promised[id] = daemon.show(id)["promised"];
    ASSERT_FALSE(promised[id].is_null());
    ASSERT_EQ(daemon.show(id)["honoured"], true);
  }
  for (const double jump : {kHour, 0.0, -kHour, 0.0}) {
    SCOPED_TRACE(jump);
    const Time before = daemon.core->time();
    daemon.clock_jump = from_seconds(jump);
    daemon.pass(20);
    EXPECT_EQ(daemon.core->time(), before + from_seconds(20)) << "loop time never jumps";
    const Json nodes = daemon.ask(kRoot, ShowNodes{}).body;
    for (const Json& node : nodes["nodes"]) EXPECT_EQ(node["state"], "up");
    for (const auto& [id, at] : due) {
      EXPECT_EQ(deadline(id), at - from_seconds(jump)) << "planned anew";
      const Json job = daemon.show(id);
      EXPECT_EQ(job["promised"], promised[id]) << "a wall time";
      EXPECT_EQ(job["restarts"], 0);
      EXPECT_NE(job["state"], "REFUSED");
      if (jump <= 0 || id == late) {
        EXPECT_EQ(job["honoured"], true) << job.dump();
      }
    }
  }
  const auto lines = texts(daemon.ask(kRoot, History{0, 1000, {}}).body["events"]);
  for (const char* moved : {"moved by 3600.0 s", "moved by -3600.0 s"}) {
    EXPECT_EQ(std::count_if(lines.begin(), lines.end(),
                            [&](const std::string& line) {
                              return line.find(moved) != std::string::npos &&
                                     line.find("2 deadlines re-planned") != std::string::npos;
                            }),
              2)
        << moved;
  }
  ASSERT_TRUE(daemon.pass_until([&] { return daemon.core->state().alive() == 0; }, 3 * kHour));
  for (const auto& [id, at] : due) {
    const JobRecord* job = daemon.core->state().job(id);
    EXPECT_EQ(job->ending->how, Ending::completed);
    EXPECT_LE(*job->ended, *job->deadline);
  }
  EXPECT_TRUE(daemon.world.violations.empty());
  daemon.expect_replay();
}

TEST(Core, TheHistoryOfANewJournalBeginsNow) {
  TestDaemon daemon;
  daemon.start();
  const Json events = daemon.ask(kRoot, History{0, 1000, {}}).body["events"];
  ASSERT_GE(events.size(), 2U);
  EXPECT_EQ(events[0]["text"], "the clock was set");
  for (const Json& event : events)
    EXPECT_EQ(event["at"], jobfile::to_text(kWallStart)) << event.dump();
}

// --- trouble ---

class CoreOnABadDisk : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Errors, CoreOnABadDisk,
                         ::testing::Values(SQLITE_FULL, SQLITE_READONLY, SQLITE_IOERR_WRITE));

TEST_P(CoreOnABadDisk, NewWorkIsRefusedAndNothingStops) {
  TestDaemon daemon;
  daemon.start();
  const JobId runs = id_of(daemon.submit(kAda, job_file("runs", 300, 2, 2)));
  daemon.pass(4);
  daemon.judge = [](std::string_view) { return GetParam(); };
  const Answer refused = daemon.submit(kAda, job_file("new", 100), "key");
  EXPECT_EQ(refused.status, 503);
  EXPECT_NE(refused.body["error"].get<std::string>().find("nothing can be stored"),
            std::string::npos);
  EXPECT_EQ(daemon.ask(kAda, ShowJob{runs}).status, 200) << "looking is still possible";
  EXPECT_EQ(daemon.ask(kAda, ShowHealth{}).status, 503);
  EXPECT_EQ(daemon.ask(kAda, ListJobs{}).body["jobs"].size(), 1U);
  daemon.pass(30);
  EXPECT_TRUE(daemon.world.finished(runs)) << "it went on and came to its end";
  EXPECT_EQ(daemon.state(runs), "RUNNING") << "which could not be stored";
  daemon.judge = nullptr;
  daemon.pass(2);
  EXPECT_EQ(daemon.state(runs), "COMPLETED");
  EXPECT_EQ(daemon.ask(kAda, ShowHealth{}).status, 200);
  EXPECT_EQ(daemon.submit(kAda, job_file("new", 100), "key").status, 201);
  daemon.pass(20);
  daemon.expect_replay();
}

TEST(Core, AJournalThatCannotBeReadBackEndsTheDaemonAndNotTheJobs) {
  TestDaemon daemon;
  daemon.start();
  const JobId runs = id_of(daemon.submit(kAda, job_file("runs", 300, 2, 2)));
  daemon.pass(4);
  const auto file = daemon.directory.path() / "journal.sqlite";
  const auto away = daemon.directory.path() / "elsewhere";
  daemon.judge = [&](std::string_view) {
    if (std::filesystem::exists(file)) std::filesystem::rename(file, away);
    return SQLITE_FULL;
  };
  EXPECT_EQ(daemon.submit(kAda, job_file("new", 100), "key").status, 503);
  EXPECT_TRUE(daemon.core->lost());
  EXPECT_NE(daemon.core->trouble().find("cannot be read back"), std::string::npos);
  EXPECT_EQ(daemon.ask(kAda, ShowJob{runs}).status, 503);
  daemon.kill();
  daemon.judge = nullptr;
  std::filesystem::rename(away, file);
  daemon.start();
  EXPECT_EQ(daemon.state(runs), "RUNNING");
  EXPECT_EQ(daemon.submit(kAda, job_file("new", 100), "key").status, 201);
  ASSERT_TRUE(daemon.pass_until([&] { return daemon.core->state().alive() == 0; }, 300));
  daemon.expect_replay();
}

// --- what programs say ---

JobStatus status_saying(const TestDaemon& daemon, JobId id, double samples, double rate) {
  JobStatus status;
  status.job = id;
  status.generation = daemon.core->state().view(id)->generation;
  status.running = true;
  status.progress.samples = samples;
  status.progress.rate = rate;
  status.progress.workers = daemon.core->state().view(id)->held.gpus();
  return status;
}

// A program that does not speak to its launcher, in its one slot.
JobStatus silent_status(const TestDaemon& daemon, JobId id, const Slot& slot) {
  JobStatus status = status_saying(daemon, id, 0, 0);
  status.running = false;
  status.silent = true;
  status.in_use = {slot};
  return status;
}

TEST(Core, AProgramThatDoesNotSpeakKeepsTheGpuOfItsOneProcess) {
  TestDaemon daemon;
  daemon.options.policy = "afs-l";
  daemon.options.measuring = Duration(0);
  daemon.options.hello = from_seconds(7);
  daemon.start();
  const JobId id = id_of(daemon.submit(kAda, job_file("plain", 1e6, 4, 8)));
  ASSERT_EQ(daemon.core->state().view(id)->held.gpus(), 8);
  EXPECT_TRUE(daemon.show(id)["note"].is_null());
  EXPECT_EQ(daemon.core->launch_of(id).hello, from_seconds(7));
  EXPECT_FALSE(daemon.core->launch_of(id).silent);
  static_cast<void>(
      daemon.core->turn(daemon.loop_now(), daemon.wall(), {silent_status(daemon, id, "1.2")}));
  for (const bool again : {false, true}) {
    if (again) {
      daemon.kill();
      daemon.start();
    }
    const JobView* view = daemon.core->state().view(id);
    EXPECT_EQ(view->target, gpus_on({{1, 0b100}})) << "where its process is";
    EXPECT_EQ(view->spec->limits.max, 1) << "though its owner wanted four";
    EXPECT_TRUE(daemon.core->launch_of(id).silent);
    const Json shown = daemon.core->show(id);
    EXPECT_NE(shown["note"].get<std::string>().find("--no-elastic"), std::string::npos);
  }
  EXPECT_EQ(daemon.ask(kAda, ResizeJob{id, {1, 4, {}}}).status, 409);
  const Json explained = daemon.ask(kAda, ExplainJob{id}).body;
  EXPECT_NE(explained.dump().find("has one process on one GPU"), std::string::npos);
  const Json events = daemon.ask(kAda, History{}).body["events"];
  EXPECT_TRUE(std::any_of(events.begin(), events.end(),
                          [](const Json& event) { return event["type"] == "plain"; }));
  // The machines of this test speak.
  ASSERT_TRUE(daemon.pass_until([&] { return daemon.show(id)["note"].is_null(); }, 60));
  EXPECT_EQ(daemon.core->state().view(id)->spec->limits.min, 4);
  EXPECT_EQ(daemon.core->state().view(id)->spec->limits.max, 8);
  ASSERT_TRUE(
      daemon.pass_until([&] { return daemon.core->state().view(id)->held.gpus() == 8; }, 60));
  EXPECT_EQ(daemon.core->state().job(id)->failures, 0);
  daemon.expect_replay();
}

TEST(Core, AProgramThatFinishesWithoutAWordHasRunAsOneProcess) {
  TestDaemon daemon;
  daemon.start();
  const JobId id = id_of(daemon.submit(kAda, job_file("plain", 1e6, 2, 4)));
  const JobId one = id_of(daemon.submit(kAda, job_file("one", 1e6, 1, 1)));
  const auto finish = [&](JobId job, const Slot& slot) {
    JobStatus status = silent_status(daemon, job, slot);
    status.ended = JobEnd{};
    const Generation told = daemon.core->state().view(job)->generation;
    static_cast<void>(
        daemon.core->turn(daemon.loop_now(), daemon.wall(), {status, Fact{Finished{job, told}}}));
  };
  finish(id, "0.0");
  finish(one, "0.2");
  EXPECT_EQ(daemon.state(id), "COMPLETED");
  EXPECT_FALSE(daemon.show(id)["note"].is_null());
  EXPECT_TRUE(daemon.show(one)["note"].is_null()) << "one GPU is what it asked for";
  for (const HistoryLine& line : daemon.core->state().lines()) EXPECT_NE(line.type, "limited");
  daemon.expect_replay();
}

TEST(Core, NumbersThatNoMachineHasAreAsIfNotReported) {
  for (const auto& [samples, rate] :
       {std::pair(1e-310, 1e-310), {1e-310, 1e308}, {1e308, 1e-310}, {1e308, 1e308}}) {
    for (const bool says_work : {false, true}) {
      TestDaemon daemon;
      daemon.options.settle = from_seconds(20);  // so this is the first that counts
      daemon.start();
      JobFile file = job_file("odd", 1e6, 1, 4);
      if (!says_work) file.work.reset();
      const JobId odd = id_of(daemon.submit(kAda, file));
      const JobId other = id_of(daemon.submit(kBob, job_file("other", 1e6, 1, 4)));
      daemon.pass(10);
      daemon.now += from_seconds(25);
      const Generation told = daemon.core->state().view(other)->generation;
      const Turn turn =
          daemon.core->turn(daemon.loop_now(), daemon.wall(),
                            {status_saying(daemon, odd, samples, rate), Fact{Finished{other, told}},
                             Asked{7, {kBob, SubmitJob{job_file("more", 1e6, 1, 4), "", false}}}});
      EXPECT_EQ(turn.trouble, "");
      ASSERT_EQ(turn.answers.size(), 1U);
      EXPECT_EQ(turn.answers[0].second.status, 201);
      EXPECT_EQ(daemon.core->state().job(other)->ending->how, Ending::completed);
      const JobRecord* job = daemon.core->state().job(odd);
      EXPECT_TRUE(job->scale == 0 || (job->scale > 1e-12 && job->scale < 1e15)) << job->scale;
      for (const auto& [gpus, known] : job->rates.by_gpus) EXPECT_LT(known, 1e15);
      EXPECT_EQ(daemon.ask(kRoot, SwitchPolicy{"srtf"}).status, 200);
      daemon.kill();
      EXPECT_EQ(daemon.up(), "");
      daemon.expect_replay();
    }
  }
}

TEST(Core, WhatCannotBeTakenInKeepsNobodyElseFromBeingHeard) {
  TestDaemon daemon;
  daemon.start();
  const JobId odd = id_of(daemon.submit(kAda, job_file("odd", 1e6, 1, 1)));
  const JobId other = id_of(daemon.submit(kBob, job_file("other", 1e6, 1, 1)));
  daemon.pass(10);
  const double no_number = std::numeric_limits<double>::quiet_NaN();
  const Generation told = daemon.core->state().view(other)->generation;
  const Turn turn = daemon.core->turn(
      daemon.loop_now() + from_seconds(6), daemon.wall() + from_seconds(6),
      {status_saying(daemon, odd, no_number, no_number), Fact{Finished{other, told}},
       Asked{7, {kBob, SubmitJob{job_file("more", 1e6, 1, 4), "", false}}}});
  EXPECT_EQ(turn.trouble, "");
  ASSERT_EQ(turn.answers.size(), 1U);
  EXPECT_EQ(turn.answers[0].second.status, 201);
  EXPECT_EQ(daemon.core->state().job(other)->ending->how, Ending::completed);
  EXPECT_EQ(daemon.state(odd), "RUNNING");
  daemon.expect_replay();
}

// --- another past ---

// A journal like this daemon's, but for the last row of commands.
void write_with_other_commands(const TestDaemon& daemon, const std::function<void(Json&)>& change,
                               const std::filesystem::path& directory) {
  std::vector<JournalRow> rows;
  std::size_t last = 0;
  EXPECT_TRUE(read_journal(daemon.directory.path(), RowNumber(),
                           [&](RowNumber, const JournalRow& row) -> Result<void> {
                             if (row.type == "commands") last = rows.size();
                             rows.push_back(row);
                             return {};
                           }));
  Json body = parse_json(rows[last].body, "a row").value();
  change(body["commands"]);
  rows[last].body = canonical_json(body).value();
  JournalOptions options;
  options.directory = directory;
  options.types = DaemonState::row_types();
  auto opened = Journal::open(options);
  EXPECT_TRUE(opened);
  EXPECT_TRUE(opened->journal.append(rows));
}

TEST(Core, RecoveryFollowsWhatWasToldAndOnlyReplayCompares) {
  TestDaemon then;
  then.start();
  const JobId id = id_of(then.submit(kAda, job_file("job", 100, 2, 2)));
  const std::vector<std::function<void(Json&)>> changes = {
      [](Json& commands) { commands[0]["command"]["generation"] = 5; },
      [](Json& commands) { commands = Json::array(); }};
  for (std::size_t i = 0; i < changes.size(); ++i) {
    SCOPED_TRACE(i);
    TestDaemon now;
    write_with_other_commands(then, changes[i], now.directory.path());
    now.now = then.now;
    ASSERT_EQ(now.up(), "");
    const JobView* view = now.core->state().view(id);
    EXPECT_EQ(view->generation, Generation(i == 0 ? 5 : 0));
    EXPECT_EQ(view->held.gpus(), i == 0 ? 2 : 0);
    EXPECT_EQ(now.core->told().size(), i == 0 ? 1U : 0U);
    const auto replayed = replay(now.directory.path(), now.options.state);
    ASSERT_TRUE(replayed) << replayed.error().message;
    ASSERT_TRUE(replayed->difference);
    EXPECT_EQ(replayed->difference->type, "commands");
    ASSERT_TRUE(now.pass_until([&] { return now.state(id) == "COMPLETED"; }, 100));
    EXPECT_EQ(now.world.finishes(id), 1);
    EXPECT_TRUE(now.world.violations.empty());
  }
}

TEST(Core, AnotherClusterIsRefused) {
  TestDaemon daemon;
  daemon.start();
  daemon.kill();
  daemon.options.cluster = cluster_of("3x4");
  EXPECT_NE(daemon.up().find("another cluster (2x4)"), std::string::npos);
  daemon.options.cluster = cluster_of("2x4");
  EXPECT_EQ(daemon.up(), "");
}

TEST(Core, WhoNamesNoClusterGetsTheOneOfTheJournal) {
  TestDaemon daemon;
  daemon.start();
  daemon.kill();
  daemon.options.cluster = cluster_of("1x1");
  daemon.options.cluster_of_journal = true;
  ASSERT_EQ(daemon.up(), "");
  EXPECT_EQ(machines_text(daemon.core->state().now().cluster), "2x4");
  EXPECT_EQ(daemon.submit(kAda, job_file("wide", 100, 8, 8)).status, 201);
  TestDaemon fresh("1x8:v100,2x4:k80");
  fresh.options.cluster_of_journal = true;
  fresh.start();
  EXPECT_EQ(machines_text(fresh.core->state().now().cluster), "1x8:v100,2x4:k80");
}

TEST(Core, SettingsMayChangeBetweenStarts) {
  TestDaemon daemon;
  daemon.start();
  daemon.submit(kAda, job_file("a", 2000, 2, 2));
  daemon.pass(3);
  daemon.kill();
  daemon.options.placement = Placement::spread;
  daemon.options.policy = "srtf";
  daemon.options.switch_policy = true;
  daemon.start();
  EXPECT_EQ(daemon.core->state().policy().text, "srtf");
  EXPECT_EQ(daemon.core->state().placement(), Placement::spread);
  EXPECT_EQ(daemon.state(JobId(1)), "RUNNING");
  daemon.submit(kAda, job_file("b", 200, 2, 2));
  ASSERT_TRUE(daemon.pass_until([&] { return daemon.core->state().alive() == 0; }, 900));
  daemon.expect_replay();
}

// As a repair may leave it: also in the middle of a turn.
TEST(Core, AJournalThatWasCutAnywhereStartsAndGoesOn) {
  TestDaemon whole;
  whole.options.policy = "elasticflow";
  whole.options.switch_policy = false;
  whole.start();
  for (int i = 0; i < 4; ++i) {
    JobFile file = job_file("job" + std::to_string(i), 150, 1, 4);
    if (i % 2 == 1) file.deadline_after = from_seconds(500);
    whole.submit(kAda, file, "key" + std::to_string(i));
    whole.pass(2);
  }
  whole.ask(kAda, CancelJob{JobId(1)});
  JobFile never = job_file("never", 150, 9, 9);
  EXPECT_EQ(whole.submit(kAda, never).status, 409);
  whole.ask(kRoot, SetNode{node_id(1), NodeState::draining});
  whole.clock_jump = from_seconds(30);
  whole.pass(6);
  const auto rows = whole.turn().stored.value();
  whole.kill();
  ASSERT_GT(rows, 40U);
  for (std::uint64_t last = 1; last < rows; ++last) {
    SCOPED_TRACE("cut after row " + std::to_string(last));
    TestDaemon daemon;
    daemon.options.policy = "elasticflow";
    std::filesystem::copy_file(whole.directory.path() / "journal.sqlite",
                               daemon.directory.path() / "journal.sqlite");
    sqlite3* file = nullptr;
    ASSERT_EQ(sqlite3_open((daemon.directory.path() / "journal.sqlite").c_str(), &file), SQLITE_OK);
    const std::string cut = "DELETE FROM journal WHERE number > " + std::to_string(last);
    ASSERT_EQ(sqlite3_exec(file, cut.c_str(), nullptr, nullptr, nullptr), SQLITE_OK);
    sqlite3_close(file);
    daemon.now = whole.now;
    daemon.clock_jump = whole.clock_jump;
    ASSERT_EQ(daemon.up(), "");
    ASSERT_TRUE(daemon.pass_until([&] { return daemon.core->state().alive() == 0; }, 900));
    EXPECT_EQ(daemon.submit(kAda, job_file("more", 50)).status, 201);
    EXPECT_TRUE(daemon.world.violations.empty());
  }
}

// The machines have heard what the journal has lost: newer generations, and jobs that it does not
// know of. They must not take what they are told now for old news.
TEST(Core, AfterALossAllThatIsSaidIsNewToTheMachines) {
  for (int lost = 1; lost <= 24; lost += 2) {
    SCOPED_TRACE("lost " + std::to_string(lost));
    TestDaemon daemon;
    daemon.options.policy = "afs-l";
    daemon.start();
    for (int i = 0; i < 4; ++i) {
      daemon.submit(kAda, job_file("job" + std::to_string(i), 300, 1, 4));
      daemon.pass(2);
    }
    const auto rows = static_cast<int>(daemon.turn().stored.value());
    ASSERT_GT(rows, 30);
    daemon.kill();
    sqlite3* file = nullptr;
    ASSERT_EQ(sqlite3_open((daemon.directory.path() / "journal.sqlite").c_str(), &file), SQLITE_OK);
    const std::string spoil =
        "UPDATE journal SET body = 'spoilt' WHERE number > " + std::to_string(rows - lost);
    ASSERT_EQ(sqlite3_exec(file, spoil.c_str(), nullptr, nullptr, nullptr), SQLITE_OK);
    sqlite3_close(file);
    daemon.start();
    EXPECT_NE(daemon.dropped, "");
    ASSERT_TRUE(daemon.pass_until([&] { return daemon.core->state().alive() == 0; }, 900));
    const JobId next = id_of(daemon.submit(kAda, job_file("more", 50)));
    EXPECT_GT(next.value(), 1000U) << "another job may have had its number";
    ASSERT_TRUE(daemon.pass_until([&] { return daemon.state(next) == "COMPLETED"; }, 900));
    daemon.expect_replay();
  }
}

// What was recovered is what was there, to the byte; at any moment, with and without snapshots.
TEST(Core, WhatIsRecoveredIsWhatWasThere) {
  for (const char* policy : {"rubato", "fifo-backfill", "afs-l", "elasticflow", "tiresias-las",
                             "gavel-las", "pollux:interval=5,population=10,generations=10"}) {
    SCOPED_TRACE(policy);
    TestDaemon daemon;
    for (int i = 0; i < 40; i += 8) daemon.goodputs["job" + std::to_string(i)] = true_goodput();
    daemon.options.policy = policy;
    daemon.options.snapshot_rows = 40;
    daemon.start();
    for (int i = 0; i < 40; ++i) {
      if (i % 4 == 0) {
        JobFile file = job_file("job" + std::to_string(i), 100 + 40 * i, 1, 1 + i % 8);
        if (i % 8 == 0) {
          file.batch = {BatchMode::adaptive, 64, 2048};
          file.work->amount *= 400;  // they are faster
        }
        if (i % 8 == 0) file.deadline_after = from_seconds(400);
        file.profile = i % 3 == 0 ? "net" : "";
        daemon.submit(i % 2 == 0 ? kAda : kBob, file, "key" + std::to_string(i));
      }
      if (i == 17) daemon.ask(kRoot, CancelJob{JobId(3)});
      if (i == 21) daemon.ask(kRoot, HoldJob{JobId(5), true});
      daemon.pass(2);
      const auto before = daemon.core->state().snapshot();
      ASSERT_TRUE(before);
      daemon.kill();
      daemon.start();
      const auto after = daemon.core->state().snapshot();
      ASSERT_TRUE(after);
      ASSERT_EQ(*after, *before);
    }
    daemon.expect_replay();
  }
}

}  // namespace
}  // namespace rubato::daemon
