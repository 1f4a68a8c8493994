#include "rubato/daemon/searches.h"

#include <gtest/gtest.h>

#include "rubato/daemon/testing_daemon.h"
#include "rubato/daemon/what_if.h"

namespace rubato::daemon {
namespace {

JobId number_of(const Answer& answer) { return JobId(answer.body["id"].get<JobId::rep>()); }

// Jobs report the loss that stands in their name, "t0.5".
class SearchDaemon : public TestDaemon {
 public:
  explicit SearchDaemon(std::string_view cluster) : TestDaemon(cluster) {
    says = [this](JobStatus& status) {
      if (const JobRecord* job = core->state().job(status.job)) {
        status.progress.loss = std::stod(job->name.substr(1));
        status.progress.metrics["accuracy"] = 1 - *status.progress.loss;
      }
    };
  }
  JobId trial(const std::string& name, const SearchWish& search, double samples = 1000) {
    JobFile file = job_file(name, samples, 1, 1);
    file.search = search;
    return number_of(submit(kAda, file));
  }
  std::string reason(JobId id) { return show(id)["reason"].get<std::string>(); }
  std::string explained(JobId id) { return ask(kAda, ExplainJob{id}).body["sentences"].dump(); }
};

SearchWish wish(int trials, bool wait = true) {
  return {"lr", {trials, 2, false}, {WorkUnit::samples, 100}, "loss", wait};
}

TEST(DaemonSearches, TrialsWaitAndTheWorstAreStopped) {
  SearchDaemon daemon("1x2");
  daemon.start();
  std::vector<JobId> trials;
  for (const char* name : {"t0.5", "t0.3", "t0.7", "t0.1"})
    trials.push_back(daemon.trial(name, wish(4)));
  EXPECT_NE(daemon.explained(trials[0]).find(
                "It is trial 1 of 4 of the search lr, and has not finished a stage."),
            std::string::npos);
  ASSERT_TRUE(daemon.pass_until([&] { return daemon.state(trials[1]) == "HELD"; }, 60));
  EXPECT_EQ(daemon.reason(trials[1]), "waits at the end of stage 1 for other trials");
  EXPECT_EQ(daemon.show(trials[1])["trial"]["stages"], Json::array({0.3}));
  EXPECT_NE(
      daemon.explained(trials[1]).find("of 2 by loss after stage 1, from which 2 of 4 trials"),
      std::string::npos);
  EXPECT_NE(daemon.explained(trials[1]).find("It waits until enough other trials"),
            std::string::npos);
  daemon.kill();  // what is known of the search comes back
  daemon.start();
  EXPECT_EQ(daemon.reason(trials[1]), "waits at the end of stage 1 for other trials");
  ASSERT_TRUE(daemon.pass_until([&] { return daemon.core->state().alive() == 0; }, 600));
  EXPECT_EQ(daemon.state(trials[3]), "COMPLETED");
  EXPECT_EQ(daemon.reason(trials[1]), "stopped after stage 2: 2nd of 2 by loss");
  for (const JobId id : {trials[0], trials[2]}) {
    EXPECT_EQ(daemon.state(id), "CANCELLED");
    EXPECT_NE(daemon.reason(id).find("stopped after stage 1: "), std::string::npos);
  }
  EXPECT_NE(
      daemon.explained(trials[1]).find(
          "It was trial 2 of 4 of the search lr; its loss at the end of each stage: 0.3, 0.3"),
      std::string::npos);
  const std::string lines = daemon.ask(kAda, History{}).body["events"].dump();
  EXPECT_NE(lines.find("finished stage 1 of its search with loss 0.7"), std::string::npos);
  EXPECT_NE(lines.find("cancelled: stopped after stage 2: 2nd of 2 by loss"), std::string::npos);
  daemon.expect_replay();
}

TEST(DaemonSearches, ByAnotherMetricAndWithoutWaiting) {
  SearchDaemon daemon("1x2");
  daemon.start();
  SearchWish search = wish(2, false);
  search.metric = "accuracy";
  search.rule.highest = true;
  const JobId worse = daemon.trial("t0.5", search);
  const JobId better = daemon.trial("t0.2", search);
  ASSERT_TRUE(daemon.pass_until([&] { return daemon.core->state().job(worse)->gone(); }, 60));
  EXPECT_EQ(daemon.reason(worse), "stopped after stage 1: 2nd of 2 by accuracy");
  EXPECT_EQ(daemon.state(better), "RUNNING");
  daemon.expect_replay();
}

TEST(DaemonSearches, TheOwnerMayReleaseOrHoldATrialThatWaits) {
  SearchDaemon daemon("1x1");
  daemon.start();
  const JobId first = daemon.trial("t0.5", wish(4));
  const JobId second = daemon.trial("t0.4", wish(4));
  const JobId third = daemon.trial("t0.3", wish(4));
  ASSERT_TRUE(daemon.pass_until([&] { return daemon.state(first) == "HELD"; }, 60));
  ASSERT_EQ(daemon.ask(kAda, HoldJob{first, false}).status, 200);
  EXPECT_NE(daemon.state(first), "HELD");
  ASSERT_TRUE(daemon.pass_until([&] { return daemon.state(second) == "HELD"; }, 600));
  ASSERT_EQ(daemon.ask(kAda, HoldJob{second, true}).status, 200);
  EXPECT_EQ(daemon.reason(second), "on hold");
  ASSERT_TRUE(daemon.pass_until([&] { return daemon.core->state().job(first)->gone(); }, 600));
  EXPECT_EQ(daemon.state(second), "HELD") << "its owner holds it";
  ASSERT_TRUE(daemon.pass_until([&] { return daemon.core->state().job(third)->gone(); }, 600));
  daemon.expect_replay();
}

TEST(DaemonSearches, ASearchHasOneSetOfSettingsAndAnEnd) {
  SearchDaemon daemon("1x4");
  daemon.start();
  const JobId first = daemon.trial("t0.5", wish(2));
  JobFile other = job_file("t0.4", 1000, 1, 1);
  other.search = wish(3);
  const Answer refused = daemon.submit(kAda, other);
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(refused.body["error"],
            "job 1 is a trial of the search \"lr\" with other settings: use the same settings for "
            "all of its trials, or another name");
  const JobId second = daemon.trial("t0.4", wish(2));
  EXPECT_EQ(daemon.core->state().job(second)->trial->search, first);
  const JobId third = daemon.trial("t0.3", wish(2));  // the first search has its two
  EXPECT_EQ(daemon.core->state().job(third)->trial->search, third);
  ASSERT_TRUE(daemon.pass_until([&] { return daemon.core->state().alive() == 0; }, 600));
  const JobId later =
      number_of(daemon.submit(kAda, other));  // all have ended: other settings are fine
  EXPECT_EQ(daemon.core->state().job(later)->trial->number, 1);
  daemon.expect_replay();
}

TEST(DaemonSearches, ATrialThatEndsEarlyCountsWithItsLastMetric) {
  SearchDaemon daemon("1x4");
  daemon.start();
  const JobId shorter = daemon.trial("t0.2", wish(4), 50);  // done before the end of stage 1
  const JobId worse = daemon.trial("t0.4", wish(4));
  const JobId better = daemon.trial("t0.3", wish(4));
  const JobId worst = daemon.trial("t0.5", wish(4));
  ASSERT_TRUE(daemon.pass_until([&] { return daemon.core->state().alive() == 0; }, 3000));
  EXPECT_EQ(daemon.state(shorter), "COMPLETED");
  EXPECT_NE(daemon.reason(worse).find("stopped after stage 1: "), std::string::npos);
  EXPECT_NE(daemon.reason(worst).find("stopped after stage 1: "), std::string::npos);
  EXPECT_EQ(daemon.reason(better), "stopped after stage 2: 2nd of 2 by loss");
  daemon.expect_replay();
}

// t0.1 finishes stage 1 as the best and then fails for good, long before t0.9 gets there.
TEST(DaemonSearches, ATrialThatFailsTakesNoPlace) {
  SearchDaemon daemon("1x2");
  daemon.crashes["t0.1"] = 100;
  daemon.speeds["t0.9"] = [](int /*gpus*/) { return 0.1; };
  daemon.start();
  const JobId fails = daemon.trial("t0.1", wish(3, false), 300);  // it crashes in the middle
  const JobId other = daemon.trial("t0.9", wish(3, false), 120);
  ASSERT_TRUE(daemon.pass_until([&] { return daemon.core->state().alive() == 0; }, 3000));
  EXPECT_EQ(daemon.state(fails), "FAILED");
  EXPECT_EQ(daemon.show(fails)["trial"]["stages"].size(), 1U);
  EXPECT_EQ(daemon.state(other), "COMPLETED");
  daemon.expect_replay();
}

TEST(DaemonSearches, NobodyWaitsForATrialThatFailsOrIsCancelled) {
  for (const bool cancel : {false, true}) {
    SearchDaemon daemon("1x2");
    daemon.speeds["t0.1"] = [](int /*gpus*/) { return 1; };
    if (!cancel) daemon.crashes["t0.1"] = 100;
    daemon.start();
    const JobId gone = daemon.trial("t0.1", wish(3), 150);  // would crash before the end of stage 1
    const JobId other = daemon.trial("t0.3", wish(3), 600);
    ASSERT_TRUE(daemon.pass_until([&] { return daemon.state(other) == "HELD"; }, 60));
    if (cancel) {
      ASSERT_EQ(daemon.ask(kAda, CancelJob{gone}).status, 200);
    }
    ASSERT_TRUE(daemon.pass_until([&] { return daemon.core->state().alive() == 0; }, 3000));
    EXPECT_EQ(daemon.state(gone), cancel ? "CANCELLED" : "FAILED");
    EXPECT_EQ(daemon.state(other), "COMPLETED");
    daemon.expect_replay();
  }
}

// What the past knows: trials are held, released and stopped when they were.
TEST(DaemonSearches, AWhatIfRepeatsThem) {
  SearchDaemon daemon("1x2");
  daemon.start();
  for (const char* name : {"t0.5", "t0.3", "t0.7", "t0.1"}) daemon.trial(name, wish(4));
  ASSERT_TRUE(daemon.pass_until([&] { return daemon.core->state().alive() == 0; }, 600));
  daemon.kill();
  WhatIfOrder order;
  order.directory = daemon.directory.path();
  order.range.now = daemon.wall();
  order.policies = {kAsRun, "srtf"};
  order.state = daemon.options.state;
  const auto result = what_if(order, nullptr);
  ASSERT_TRUE(result.ok()) << result.error().message;
  for (const Json& one : (*result)["policies"]) {
    EXPECT_EQ(one["summary"]["completed"], 1) << one["jobs"].dump(1);
    EXPECT_EQ(one["summary"]["cancelled"], 3);
  }
  EXPECT_LE((*result)["policies"][0]["differences"]["worst"], 0.10) << result->dump(1);
  EXPECT_EQ(what_if(order, nullptr).value().dump(), result->dump());
}

}  // namespace
}  // namespace rubato::daemon
