// Which submission a job is: its nonce, and numbers that are never given twice although the journal
// that gave them is lost.
#include <gtest/gtest.h>
#include <string>
#include <utility>

#include "rubato/daemon/testing_daemon.h"

namespace rubato::daemon {
namespace {

constexpr const char* kNonce = "00112233445566778899aabbccddeeff";

JobId submit_with_nonce(TestDaemon& daemon, JobFile file) {
  SubmitJob ask;
  ask.file = std::move(file);
  ask.nonce = kNonce;
  return JobId(daemon.ask(kAda, std::move(ask)).body["id"].get<JobId::rep>());
}

std::string history(TestDaemon& daemon) {
  return daemon.ask(kRoot, History{}).body["events"].dump();
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(Submission, KeepsItsNonceOverRestarts) {
  TestDaemon daemon;
  daemon.start();
  const JobId with = submit_with_nonce(daemon, job_file("one", 200, 1, 1));
  const Answer answer = daemon.submit(kAda, job_file("two", 200, 1, 1));
  const JobId without(answer.body["id"].get<JobId::rep>());
  EXPECT_FALSE(contains(answer.body.dump() + daemon.show(with).dump(), kNonce)) << "nobody sees it";
  for (const bool snapshot : {false, true}) {
    if (snapshot) {
      ASSERT_TRUE(daemon.core->save().ok());
    }
    daemon.kill();
    daemon.start();
    EXPECT_EQ(daemon.core->state().job(with)->nonce, kNonce);
    EXPECT_FALSE(daemon.core->state().job(without)->nonce) << "as those of older versions";
  }
  daemon.expect_replay();
}

TEST(Submission, TheRunThatMeasuresItHasANonceOfItsOwn) {
  TestDaemon daemon;
  daemon.options.policy = "elasticflow";
  daemon.start();
  JobFile file = job_file("dated", 2000, 1, 4);
  file.deadline_after = from_seconds(3600);
  const JobId job = submit_with_nonce(daemon, file);
  const JobRecord* waiting = daemon.core->state().job(job);
  ASSERT_TRUE(waiting->measured_by);
  const JobRecord* run = daemon.core->state().job(*waiting->measured_by);
  ASSERT_TRUE(run->nonce);
  EXPECT_EQ(run->nonce->size(), waiting->nonce->size());
  EXPECT_NE(run->nonce, waiting->nonce);
  daemon.expect_replay();
}

// The journal was deleted, and the directories of its jobs are there.
TEST(Submission, NumbersGoOnAfterTheDirectoriesOfAnOldJournal) {
  TestDaemon daemon;
  daemon.options.newest_directory = JobId(41);
  daemon.options.jobs_directory = "S/jobs";
  daemon.start();
  EXPECT_TRUE(contains(daemon.core->made_up_for(), "a directory S/jobs/41"))
      << daemon.core->made_up_for();
  const JobId first = submit_with_nonce(daemon, job_file("one", 200, 1, 1));
  EXPECT_GT(first, JobId(41));
  EXPECT_TRUE(contains(history(daemon), "rows of the journal were lost"));
  // Once: now the journal knows of these numbers.
  daemon.options.newest_directory = first;
  daemon.kill();
  daemon.start();
  EXPECT_EQ(daemon.core->made_up_for(), "");
  EXPECT_EQ(submit_with_nonce(daemon, job_file("two", 200, 1, 1)), first.next());
  ASSERT_TRUE(daemon.pass_until([&] { return daemon.state(first) == "COMPLETED"; }, 100));
  daemon.expect_replay();
}

// Nothing else shows that a log was cut between two transactions.
TEST(Submission, ADirectoryOfAJobThatNoRowNamesShowsThatRowsAreLost) {
  TestDaemon daemon;
  daemon.start();
  const JobId one = submit_with_nonce(daemon, job_file("one", 500, 1, 1));
  daemon.pass(3);
  daemon.options.newest_directory = JobId(one.value() + 2);
  daemon.kill();
  daemon.start();
  EXPECT_NE(daemon.core->made_up_for(), "");
  EXPECT_GT(submit_with_nonce(daemon, job_file("two", 200, 1, 1)), JobId(one.value() + 2));
  ASSERT_TRUE(daemon.pass_until([&] { return daemon.state(one) == "COMPLETED"; }, 200));
  EXPECT_TRUE(daemon.world.violations.empty());
}

TEST(Submission, ManyNumbersAreSkippedInSeveralRows) {
  TestDaemon daemon;
  daemon.options.newest_directory = JobId(3'500'000);
  daemon.start();
  EXPECT_EQ(submit_with_nonce(daemon, job_file("one", 20, 1, 1)), JobId(3'501'001));
  daemon.expect_replay();
}

TEST(Submission, ADirectoryBeyondAllNumbersIsAnError) {
  TestDaemon daemon;
  daemon.options.newest_directory = JobId(4'000'000'000U);
  daemon.options.jobs_directory = "S/jobs";
  EXPECT_TRUE(contains(daemon.up(), "S/jobs/4000000000 has a number that no job can have had"));
}

TEST(Submission, TheLogOfAnotherJobIsNotShown) {
  TestDaemon daemon;
  daemon.options.check_directory = [](JobId) -> Result<void> { return Error{"of another job"}; };
  daemon.start();
  const JobId one = submit_with_nonce(daemon, job_file("one", 500, 1, 1));
  const Answer answer = daemon.ask(kAda, FindLog{one});
  EXPECT_EQ(answer.status, 409);
  EXPECT_EQ(answer.body["error"], "of another job");
  EXPECT_EQ(daemon.ask(kBob, FindLog{one}).status, 404) << "whose it is comes first";
}

}  // namespace
}  // namespace rubato::daemon
