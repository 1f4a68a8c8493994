// Tenants' cells in the daemon: requests, journal, recovery, replay, what-ifs of users, and faults.
#include <gtest/gtest.h>
#include <string>

#include "rubato/base/random.h"
#include "rubato/base/testing_seeds.h"
#include "rubato/daemon/testing_daemon.h"
#include "rubato/daemon/what_if.h"

namespace rubato::daemon {
namespace {

JobId number_of(const Answer& answer) { return JobId(answer.body.at("id").get<JobId::rep>()); }

int gpus_of_job(const TestDaemon& daemon, JobId id) {
  const JobView* view = daemon.core->state().view(id);
  return view == nullptr ? 0 : view->held.gpus();
}

std::string explained(TestDaemon& daemon, const Caller& caller, JobId id) {
  return daemon.ask(caller, ExplainJob{id}).body["sentences"].dump();
}

// Runs such a job once, so that its speed is known.
void run_once(TestDaemon& daemon, const Caller& owner, const JobFile& job) {
  const JobId id = number_of(daemon.submit(owner, job));
  ASSERT_TRUE(daemon.pass_until([&] { return daemon.state(id) == "COMPLETED"; }, 600));
}

// A longer one with a deadline that can be promised.
JobId promise(TestDaemon& daemon, const Caller& owner, JobFile job) {
  job.work->amount = 8000;
  job.deadline_after = from_seconds(2000);
  return number_of(daemon.submit(owner, job));
}

TEST(Cells, AreSetListedAndRemoved) {
  TestDaemon daemon;
  daemon.start();
  const Answer set = daemon.ask(kRoot, SetCells{"vision", "1xnode", {"ada"}});
  EXPECT_EQ(set.status, 200) << set.body.dump();
  EXPECT_EQ(set.body["cells"], "1x4");
  EXPECT_EQ(set.body["places"].size(), 1U);
  const Answer bad = daemon.ask(kRoot, SetCells{"speech", "1x3", {}});
  EXPECT_EQ(bad.status, 400);
  EXPECT_NE(bad.body.dump().find("is not the size of a cell"), std::string::npos);
  EXPECT_EQ(daemon.ask(kRoot, SetCells{"two words", "1x2", {}}).status, 400);
  EXPECT_EQ(daemon.ask(kRoot, SetCells{"speech", "1x2", {"b#"}}).status, 400);
  EXPECT_EQ(daemon.ask(kRoot, SetCells{"speech", "2xnode", {}}).status, 409);
  EXPECT_EQ(daemon.ask(kRoot, SetCells{"speech", "1x2", {"ada"}}).status, 409);
  EXPECT_EQ(daemon.ask(kAda, SetCells{"speech", "1x2", {}}).status, 403);
  EXPECT_EQ(daemon.ask(kAda, ListCells{}).status, 403);
  EXPECT_EQ(daemon.ask(kRoot, RemoveCells{"speech"}).status, 404);
  EXPECT_EQ(daemon.ask(kRoot, SetCells{"speech", "1x2", {}}).status, 200);
  const auto cells_of = [&](const Caller& caller) {
    std::string tenants;
    const Json body = daemon.ask(caller, ShowNodes{}).body;
    for (const Json& node : body["nodes"]) {
      if (!node.contains("cells")) continue;
      for (const Json& one : node["cells"]) tenants += one["tenant"].get<std::string>() + " ";
    }
    return tenants;
  };
  EXPECT_EQ(cells_of(kRoot), "vision speech ");
  EXPECT_EQ(cells_of(kAda), "vision ") << "only her own";
  EXPECT_EQ(cells_of(kBob), "");
  daemon.kill();
  daemon.start();
  const Json listed = daemon.ask(kRoot, ListCells{}).body;
  ASSERT_EQ(listed["tenants"].size(), 2U);
  EXPECT_EQ(listed["tenants"][1]["members"], Json::array({"ada"}));
  EXPECT_EQ(daemon.ask(kRoot, RemoveCells{"vision"}).status, 200);
  EXPECT_EQ(daemon.ask(kRoot, RemoveCells{"speech"}).status, 200);
  EXPECT_TRUE(daemon.ask(kRoot, ListCells{}).body["tenants"].empty());
  daemon.expect_replay();
}

TEST(Cells, ABorrowerGivesBackWhatTheTenantNeeds) {
  for (const char* policy : {"afs-l", "rubato", "elasticflow"}) {
    SCOPED_TRACE(policy);
    TestDaemon daemon;
    daemon.options.policy = policy;
    daemon.start();
    EXPECT_EQ(daemon.ask(kRoot, SetCells{"ada", "1xnode", {}}).status, 200);
    const JobId first = number_of(daemon.submit(kBob, job_file("first", 1e5, 1, 4)));
    const JobId second = number_of(daemon.submit(kBob, job_file("second", 1e5, 1, 4)));
    daemon.pass(200);
    EXPECT_EQ(gpus_of_job(daemon, first) + gpus_of_job(daemon, second), 8);
    const std::string why = explained(daemon, kRoot, first) + explained(daemon, kRoot, second);
    EXPECT_NE(why.find("borrowed: ada may take"), std::string::npos) << why;
    const std::string to_bob = explained(daemon, kBob, first) + explained(daemon, kBob, second);
    EXPECT_EQ(to_bob.find("ada"), std::string::npos) << to_bob;
    const JobId own = number_of(daemon.submit(kAda, job_file("own", 1e5, 4, 4)));
    EXPECT_TRUE(daemon.pass_until([&] { return gpus_of_job(daemon, own) == 4; }, 30));
    EXPECT_NE(explained(daemon, kAda, own).find("in the cells of its tenant ada (4 GPUs): nobody"),
              std::string::npos);
    EXPECT_EQ(daemon.ask(kRoot, ListCells{}).body["tenants"][0]["used"], 4);
    daemon.kill();
    daemon.start();
    daemon.pass(20);
    EXPECT_EQ(gpus_of_job(daemon, own), 4);
    daemon.expect_no_strays();
    daemon.expect_replay();
  }
}

TEST(Cells, PromisesStandWhenCellsAreSetWhereTheyFit) {
  TestDaemon daemon("2x4");
  daemon.options.policy = "elasticflow";
  daemon.start();
  JobFile known = job_file("net", 400, 1, 8);
  known.profile = "net";
  for (const int most : {4, 8}) {  // so it is known how fast it is on both
    known.gpus.max = most;
    ASSERT_NO_FATAL_FAILURE(run_once(daemon, kBob, known));
  }
  const JobId promised = promise(daemon, kBob, known);
  daemon.pass(5);
  EXPECT_EQ(daemon.ask(kRoot, SetCells{"ada", "1xnode", {}}).status, 200);
  daemon.pass(5);
  EXPECT_EQ(daemon.show(promised)["honoured"], true) << daemon.show(promised).dump();
  known.work->amount = 8000;
  known.deadline_after = from_seconds(130);  // in time on 8 GPUs, not on 4
  EXPECT_EQ(daemon.submit(kBob, known).status, 409);
  daemon.kill();
  daemon.start();
  ASSERT_TRUE(daemon.pass_until([&] { return daemon.state(promised) == "COMPLETED"; }, 2500));
  EXPECT_EQ(daemon.ask(kRoot, RemoveCells{"ada"}).status, 200);
  daemon.expect_replay();
}

// It runs on 8 GPUs only. When the cells of others leave 4, it is no longer promised, and borrows.
TEST(Cells, APromiseThatTheyLeaveNoRoomForIsNotHonoured) {
  TestDaemon daemon("2x4");
  daemon.options.policy = "elasticflow";
  daemon.start();
  JobFile known = job_file("net", 400, 8, 8);
  known.profile = "net";
  ASSERT_NO_FATAL_FAILURE(run_once(daemon, kBob, known));
  const JobId promised = promise(daemon, kBob, known);
  daemon.pass(5);
  EXPECT_EQ(daemon.show(promised)["honoured"], true);
  EXPECT_EQ(daemon.ask(kRoot, SetCells{"ada", "1xnode", {}}).status, 200);
  daemon.pass(20);
  EXPECT_EQ(daemon.show(promised)["honoured"], false);
  EXPECT_EQ(gpus_of_job(daemon, promised), 8);
  const std::string why = explained(daemon, kBob, promised);
  EXPECT_NE(why.find("does not honour that now"), std::string::npos) << why;
  EXPECT_NE(why.find("borrowed: their tenants may take them back, within 30 s"), std::string::npos)
      << why;
  daemon.expect_replay();
}

// Under the default policy, a promised job stands in its own cells and says so, and so does the
// market.
TEST(Cells, APromisedJobSaysThatItIsInItsCells) {
  TestDaemon daemon("2x4");
  daemon.options.policy = "rubato";
  daemon.start();
  EXPECT_EQ(daemon.ask(kRoot, SetCells{"ada", "1xnode", {}}).status, 200);
  JobFile known = job_file("net", 400, 1, 4);
  known.profile = "net";
  ASSERT_NO_FATAL_FAILURE(run_once(daemon, kAda, known));
  const JobId promised = promise(daemon, kAda, known);
  for (int i = 0; i < 20; ++i) {
    daemon.pass(5);
    const CellUse& use = *daemon.core->state().last_decision()->cell_use;
    ASSERT_NE(use.of(promised), nullptr);
    EXPECT_TRUE(use.of(promised)->borrowed.empty());
    EXPECT_EQ(use.by_owner(daemon.core->state().view(promised)->held)[0],
              gpus_of_job(daemon, promised));
  }
  EXPECT_GT(gpus_of_job(daemon, promised), 0);
  const std::string why = explained(daemon, kAda, promised);
  EXPECT_NE(why.find("in the cells of its tenant ada (4 GPUs): nobody takes"), std::string::npos)
      << why;
  EXPECT_NE(why.find("It borrows no others, because its deadline is"), std::string::npos) << why;
  EXPECT_NE(why.find("The job bids "), std::string::npos) << why;
  EXPECT_EQ(why.find("restarted"), std::string::npos) << why;
  daemon.expect_replay();
}

// A what-if begins with the cells that were there, and gets those that came.
TEST(Cells, AreInWhatIfs) {
  TestDaemon daemon("2x4");
  daemon.options.policy = "fifo-backfill";
  daemon.start();
  EXPECT_EQ(daemon.ask(kRoot, SetCells{"ada", "1xnode", {}}).status, 200);
  daemon.submit(kBob, job_file("one", 9000, 4, 4));
  daemon.submit(kBob, job_file("two", 9000, 4, 4));
  daemon.pass(60);
  daemon.submit(kAda, job_file("own", 4000, 4, 4));
  daemon.pass(60);
  EXPECT_EQ(daemon.ask(kRoot, SetCells{"ada", "1x2", {}}).status, 200);
  daemon.pass(20);
  EXPECT_EQ(daemon.ask(kRoot, RemoveCells{"ada"}).status, 200);
  ASSERT_TRUE(daemon.pass_until([&] { return daemon.core->state().alive() == 0; }));
  daemon.kill();
  for (const int since : {0, 90}) {
    WhatIfOrder order;
    order.directory = daemon.directory.path();
    order.range.now = daemon.wall();
    order.range.since = Moment(kWallStart + std::chrono::seconds(since));
    order.policies = {kAsRun};
    order.state = daemon.options.state;
    const auto result = what_if(order, nullptr);
    ASSERT_TRUE(result) << result.error().message;
    const Json& run = (*result)["policies"][0];
    EXPECT_EQ(run["jobs"].size(), 3U);
    EXPECT_LE(run["differences"]["worst"], 0.10) << run["jobs"].dump(1);
  }
}

// Nodes, masters and the daemon fail while cells come and go. In the end every job is done, and
// every decision comes out again.
TEST(Cells, SurviveFaults) {
  for (std::uint64_t seed = 1; seed <= seeds(24); ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    TestDaemon daemon("3x4", seed);
    daemon.options.policy =
        std::vector<const char*>{"afs-l", "rubato", "tiresias-las", "elasticflow"}[seed % 4];
    daemon.options.snapshot_rows = 20 + random.below(100);
    daemon.world.faults = {random.uniform(0, 0.03), random.uniform(0, 0.3), random.uniform(0, 0.3),
                           from_seconds(random.uniform(0, 2))};
    daemon.start();
    std::vector<JobId> jobs;
    for (int step = 0; step < 60; ++step) {
      const Caller& caller = random.below(2) == 0 ? kAda : kBob;
      const std::string tenant = caller.user;
      switch (random.below(6)) {
        case 0:
          static_cast<void>(daemon.ask(
              kRoot, SetCells{tenant,
                              std::vector<const char*>{"1xnode", "1x2,2x1", "1x2"}[random.below(3)],
                              {}}));
          break;
        case 1:
          static_cast<void>(daemon.ask(kRoot, RemoveCells{tenant}));
          break;
        case 2:
          daemon.kill();
          daemon.start();
          break;
        default:
          if (jobs.size() < 12) {
            const int min = 1 + static_cast<int>(random.below(2));
            jobs.push_back(number_of(
                daemon.submit(caller, job_file("job" + std::to_string(step),
                                               200 + 100.0 * static_cast<double>(random.below(20)),
                                               min, min + static_cast<int>(random.below(6))))));
          }
      }
      daemon.pass(4);
      daemon.expect_no_strays();
      ASSERT_TRUE(daemon.world.violations.empty()) << daemon.world.violations.front();
    }
    daemon.world.faults = {};
    for (const JobId id : jobs) {
      ASSERT_TRUE(daemon.pass_until(
          [&] {
            const std::string state = daemon.state(id);
            return state == "COMPLETED" || state == "FAILED";
          },
          3000))
          << "job " << id.value() << " is " << daemon.state(id) << ": "
          << explained(daemon, kRoot, id);
    }
    daemon.expect_replay();
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace rubato::daemon
