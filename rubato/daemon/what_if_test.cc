#include "rubato/daemon/what_if.h"

#include <gtest/gtest.h>
#include <string>

#include "rubato/daemon/testing_daemon.h"

namespace rubato::daemon {
namespace {

WhatIfOrder order_for(const TestDaemon& daemon, std::vector<std::string> policies) {
  WhatIfOrder order;
  order.directory = daemon.directory.path();
  order.range.now = daemon.wall();
  order.policies = std::move(policies);
  order.state = daemon.options.state;
  return order;
}

// Six jobs of two users, one of them cancelled, under a policy that measures as it goes.
void live_through(TestDaemon& daemon, const std::string& policy) {
  daemon.options.policy = policy;
  daemon.speeds["sublinear"] = [](int gpus) { return gpus == 1 ? 10.0 : 10.0 + 6.0 * (gpus - 1); };
  daemon.start();
  daemon.submit(kAda, job_file("first", 9000, 1, 8));
  daemon.pass(60);
  daemon.submit(kBob, job_file("sublinear", 4000, 1, 4));
  daemon.submit(kAda, job_file("third", 2500, 2, 4));
  daemon.pass(40);
  daemon.submit(kBob, job_file("never", 1e7, 1, 1));
  daemon.submit(kBob, job_file("fifth", 6000, 1, 8));
  daemon.pass(100);
  daemon.ask(kBob, CancelJob{JobId(4)});
  ASSERT_TRUE(daemon.pass_until([&] { return daemon.core->state().alive() == 0; }));
  daemon.kill();
}

class WhatIfOf : public testing::TestWithParam<const char*> {};

TEST_P(WhatIfOf, RepeatsWhatReallyHappened) {
  TestDaemon daemon;
  live_through(daemon, GetParam());
  const auto result = what_if(order_for(daemon, {kAsRun}), nullptr);
  ASSERT_TRUE(result) << result.error().message;
  const Json& run = (*result)["policies"][0];
  EXPECT_EQ(run["differences"]["jobs"], 4) << run["jobs"].dump(1);
  const std::string both = run["jobs"].dump(1) + (*result)["truth"]["jobs"].dump(1);
  EXPECT_LE(run["differences"]["worst"], 0.10) << both;
  EXPECT_EQ(run["summary"]["cancelled"], 1);
  EXPECT_FALSE(run["spans"].empty());
}

INSTANTIATE_TEST_SUITE_P(Policies, WhatIfOf,
                         testing::Values("fifo-backfill", "srtf", "afs-l", "rubato"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::erase(name, '-');
                           return name;
                         });

TEST(WhatIf, ComparesPoliciesOnTheSameJobsAndIsDeterministic) {
  TestDaemon daemon;
  live_through(daemon, "fifo-backfill");
  const auto order = order_for(daemon, {"srtf,afs-l", "sjf"});
  double last = 0;
  const auto result = what_if(order, [&](double share) {
    EXPECT_GE(share, last);
    EXPECT_LE(share, 1);
    last = share;
  });
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_GT(last, 0.9);
  ASSERT_EQ((*result)["policies"].size(), 3U);
  for (const Json& one : (*result)["policies"]) {
    EXPECT_EQ(one["jobs"].size(), 5U);
    EXPECT_EQ(one["summary"]["completed"], 4);
    EXPECT_TRUE(one["differences"].is_null());
  }
  EXPECT_FALSE((*result)["taken_as_truth"].empty());
  EXPECT_FALSE((*result)["unknown"].empty());
  EXPECT_EQ(what_if(order, nullptr).value().dump(), result->dump());
}

TEST(WhatIf, BeginsInTheMiddleWithWhatWasThere) {
  TestDaemon daemon;
  live_through(daemon, "fifo-backfill");
  WhatIfOrder order = order_for(daemon, {kAsRun});
  order.range.since = Moment(kWallStart + std::chrono::seconds(80));
  const auto result = what_if(order, nullptr);
  ASSERT_TRUE(result) << result.error().message;
  const Json& run = (*result)["policies"][0];
  EXPECT_EQ(run["jobs"].size(), (*result)["truth"]["jobs"].size());
  EXPECT_LE(run["differences"]["worst"], 0.10) << run["jobs"].dump(1);
}

// Here the first job ends a little later than it really did.
TEST(WhatIf, WhoWaitedForAnEndWaitsHereToo) {
  TestDaemon daemon;
  daemon.start();
  daemon.submit(kAda, job_file("first", 200, 1, 1));
  ASSERT_TRUE(daemon.pass_until([&] { return daemon.core->state().alive() == 0; }));
  daemon.now += from_seconds(0.05);
  daemon.submit(kBob, job_file("second", 200, 1, 1));
  ASSERT_TRUE(daemon.pass_until([&] { return daemon.core->state().alive() == 0; }));
  daemon.kill();
  const auto result = what_if(order_for(daemon, {kAsRun}), nullptr);
  ASSERT_TRUE(result) << result.error().message;
  const Json real = (*result)["truth"]["jobs"];
  const Json here = (*result)["policies"][0]["jobs"];
  EXPECT_GT(here[0]["end"], real[1]["submitted"]);
  EXPECT_GT(here[1]["submitted"], here[0]["end"]);
}

TEST(WhatIf, SaysWhatIsWrong) {
  TestDaemon daemon;
  live_through(daemon, "fifo-backfill");
  const auto wrong = [&](WhatIfOrder order) {
    const auto result = what_if(order, nullptr);
    EXPECT_FALSE(result);
    return result ? "" : result.error().message;
  };
  EXPECT_NE(wrong(order_for(daemon, {"no-such"})).find("no-such"), std::string::npos);
  EXPECT_NE(wrong(order_for(daemon, {""})), "");
  WhatIfOrder backwards = order_for(daemon, {"srtf"});
  backwards.range.until = Moment(Duration(std::chrono::hours(48)));
  EXPECT_NE(wrong(backwards).find("begin before it ends"), std::string::npos);
  WhatIfOrder nowhere = order_for(daemon, {"srtf"});
  nowhere.directory /= "nowhere";
  EXPECT_NE(wrong(nowhere), "");
}

}  // namespace
}  // namespace rubato::daemon
