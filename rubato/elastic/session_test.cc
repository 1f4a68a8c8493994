#include "rubato/elastic/session.h"

#include <cstring>
#include <fstream>
#include <gtest/gtest.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>

#include "rubato/base/random.h"
#include "rubato/elastic/testing_job.h"

namespace rubato::elastic {
namespace {

using member::Step;
using Uids = std::vector<Uid>;

// Trains until each of these workers has applied so many more steps.
void train(ToyJob& job, const Uids& uids, Step steps) {
  std::map<Uid, Step> goal;
  for (const Uid uid : uids) goal[uid] = job.reported(uid) + steps;
  job.until("more steps are applied", [&] {
    return std::all_of(goal.begin(), goal.end(),
                       [&](const auto& g) { return job.reported(g.first) >= g.second; });
  });
}

void found_job(ToyJob& job, const ToyOptions& options) {
  job.start(1, options);
  job.until("the founder trains", [&] { return job.working({1}); });
}

// Adds one worker after the other, until all of these train.
void grow_to(ToyJob& job, const Uids& uids, const ToyOptions& options) {
  for (const Uid uid : uids) {
    if (!job.has(uid)) job.start(uid, options);
  }
  job.plan(uids);
  job.until("all workers train", [&] { return job.working(uids); });
}

// Stops the job. These workers must end with the state of the plain loop, each sample used once.
void expect_end(ToyJob& job, const ToySize& size, const Uids& uids) {
  job.stop();
  std::optional<Step> last;
  for (const Uid uid : uids) {
    job.wait_for_end(uid);
    EXPECT_EQ(job.worker(uid).ended->code, wire::kLeft) << job.describe();
    const auto finished = job.told(uid, "finished");
    ASSERT_TRUE(finished) << job.describe();
    const auto step = finished->at("finished").get<Step>();
    EXPECT_EQ(step, last.value_or(step));
    last = step;
    EXPECT_EQ(finished->at("digest"), job.plain_loop().digest_after(step));
    std::uint64_t mark = 0;
    for (std::int64_t i = 0; i < step * size.leaves; ++i) mark += sample_mark(0, i);
    EXPECT_EQ(finished->at("used_mark"), mark);
  }
}

TEST(Session, AloneTrainsAsAPlainLoop) {
  ToyOptions options;
  options.last_step = [](const StepPlan& plan) { return plan.step == 20; };
  ToyWorker worker({}, options);
  EXPECT_EQ(worker.run(), wire::kFinished);
  EXPECT_EQ(worker.applied(), 20);
  EXPECT_EQ(worker.digest(), PlainLoop(options.size).digest_after(20));
}

TEST(Session, WorkersComeAndGoAndTheBitsStay) {
  ToyOptions options;
  options.size.leaves = 7;  // so the ranges are not subtrees
  ToyJob job(options.size);
  found_job(job, options);
  grow_to(job, {1, 2, 3}, options);
  train(job, {1, 2, 3}, 3);
  job.plan({2, 3});  // the leader leaves
  job.wait_for_end(1);
  EXPECT_EQ(job.worker(1).ended->code, wire::kLeft);
  job.until("two workers train", [&] { return job.working({2, 3}); });
  train(job, {2, 3}, 3);
  grow_to(job, {2, 3, 4, 5}, options);
  train(job, {2, 3, 4, 5}, 3);
  job.plan({5});
  for (const Uid uid : {2, 3, 4}) job.wait_for_end(uid);
  job.until("one worker trains", [&] { return job.working({5}); });
  train(job, {5}, 2);
  expect_end(job, options.size, {5});
}

TEST(Session, MoreWorkersThanLeaves) {
  ToyOptions options;
  options.size.leaves = 2;
  ToyJob job(options.size);
  found_job(job, options);
  grow_to(job, {1, 2, 3}, options);
  train(job, {1, 2, 3}, 4);
  expect_end(job, options.size, {1, 2, 3});
}

// More than the window of state on its way, and more than the sockets can hold.
TEST(Session, AJoiningWorkerReceivesALargeState) {
  ToyOptions options;
  options.size.parameters = {400'000, 500'000, 7, 600'000};
  options.size.bucket_floats = 300'000;
  options.size.leaves = 3;
  options.report_steps = false;
  ToyJob job(options.size);
  found_job(job, options);
  grow_to(job, {1, 2, 3}, options);
  expect_end(job, options.size, {1, 2, 3});
}

// --- deaths ---

struct Death {
  std::string name;
  Uid victim;
  std::function<void(ToyOptions&, const std::function<void(const Record&)>& die)> arrange;
};

// So that gtest does not print bytes.
void PrintTo(const Death& death, std::ostream* out) { *out << death.name; }

class SessionDeath : public ::testing::TestWithParam<Death> {};

TEST_P(SessionDeath, TheOthersGoOnWithTheSameBits) {
  ToyOptions options;
  ToyJob job(options.size);
  ToyOptions dying = options;
  // In the third step of three workers.
  GetParam().arrange(dying, [seen = std::make_shared<int>(0)](const Record& record) {
    if (record.working().size() == 3 && ++*seen == 3) die();
  });
  const auto options_of = [&](Uid uid) { return uid == GetParam().victim ? dying : options; };
  job.start(1, options_of(1));
  job.until("the founder trains", [&] { return job.working({1}); });
  job.start(2, options_of(2));
  job.start(3, options_of(3));
  job.plan({1, 2, 3});
  job.wait_for_end(GetParam().victim);
  EXPECT_EQ(job.worker(GetParam().victim).ended->signal, SIGKILL);
  Uids left{1, 2, 3};
  left.erase(std::find(left.begin(), left.end(), GetParam().victim));
  job.until("the others go on", [&] { return job.working(left); });
  train(job, left, 3);
  left.push_back(4);
  grow_to(job, left, options);
  train(job, left, 2);
  expect_end(job, options.size, left);
}

using Die = std::function<void(const Record&)>;

std::vector<Death> deaths() {
  const std::vector<std::pair<std::string, std::function<void(ToyOptions&, const Die&)>>> moments{
      {"BeforeComputing",
       [](ToyOptions& options, const Die& die) {
         options.before_computing = [die](const Session::Work& work) { die(work.record); };
       }},
      {"AfterTheFirstBucket",
       [](ToyOptions& options, const Die& die) {
         options.after_bucket = [die](const Session::Work& work, int bucket) {
           if (bucket == 0) die(work.record);
         };
       }},
      {"BeforeItsWord",
       [](ToyOptions& options, const Die& die) {
         options.before_word = [die](const Session::Work& work, const Word&) { die(work.record); };
       }},
      {"AfterItsWord",
       [](ToyOptions& options, const Die& die) {
         options.after_word = [die](const Session::Work& work) { die(work.record); };
       }},
      {"BeforeApplying",
       [](ToyOptions& options, const Die& die) {
         options.before_applying = [die](const Session::Completed& completed) {
           die(completed.record);
         };
       }},
  };
  std::vector<Death> deaths;
  for (const auto& [name, arrange] : moments) {
    deaths.push_back({name + "Leader", 1, arrange});
    deaths.push_back({name + "Newest", 3, arrange});
  }
  return deaths;
}

INSTANTIATE_TEST_SUITE_P(Moments, SessionDeath, ::testing::ValuesIn(deaths()),
                         [](const auto& info) { return info.param.name; });

TEST(Session, KilledAtAnyMoment) {
  ToyOptions options;
  ToyJob job(options.size);
  found_job(job, options);
  Random random(7);
  Uids uids{1, 2, 3};
  grow_to(job, uids, options);
  for (Uid next = 4; next < 12; ++next) {
    train(job, uids, random.below(3) + 1);
    const auto victim = uids.begin() + static_cast<std::ptrdiff_t>(random.below(3));
    job.kill(*victim);
    uids.erase(victim);
    uids.push_back(next);
    grow_to(job, uids, options);
  }
  train(job, uids, 2);
  expect_end(job, options.size, uids);
}

TEST(Session, AJoiningWorkerThatDiesCostsNothing) {
  ToyOptions options;
  ToyJob job(options.size);
  found_job(job, options);
  ToyOptions dying = options;
  dying.before_applying = [](const Session::Completed& completed) {
    if (completed.role == Role::joining) die();
  };
  job.start(2, dying);
  job.plan({1, 2});
  job.wait_for_end(2);
  EXPECT_EQ(job.worker(2).ended->signal, SIGKILL);
  grow_to(job, {1, 3}, options);
  train(job, {1, 3}, 2);
  expect_end(job, options.size, {1, 3});
}

TEST(Session, WhenTheDonorDiesAnotherFeedsTheJoiningWorker) {
  ToyOptions options;
  // The worker that feeds worker 3 dies in the step after it has sent its state. The worker that is
  // then alone survives.
  options.before_computing = [](const Session::Work& work) {
    const member::Member* joining = work.record.find(3);
    if (joining == nullptr || joining->role != Role::joining) return;
    const Uid self = work.record.working()[work.range.first == 0 ? 0 : 1];
    if (work.record.working().size() == 2 && joining->donor == self &&
        work.plan.step > joining->since) {
      die();
    }
  };
  ToyJob job(options.size);
  found_job(job, options);
  grow_to(job, {1, 2}, options);
  job.start(3, options);
  job.plan({1, 2, 3});
  job.until("the donor dies", [&] { return job.worker(1).ended || job.worker(2).ended; });
  const Uid left = job.worker(1).ended ? 2 : 1;
  job.until("the two that are left train", [&] { return job.working({left, 3}); });
  train(job, {left, 3}, 2);
  expect_end(job, options.size, {left, 3});
}

TEST(Session, WithoutAnyStateTheWorkersSayThatTheyAreStranded) {
  ToyOptions options;
  ToyJob job(options.size);
  ToyOptions dying = options;
  dying.before_applying = [](const Session::Completed& completed) {
    if (completed.feeding) die();  // the other one is a member, but has received nothing yet
  };
  found_job(job, dying);
  job.start(2, options);
  job.plan({1, 2});
  job.wait_for_end(1);
  job.until("worker 2 is stranded", [&] { return job.noticed(2, "stranded"); });
  EXPECT_FALSE(job.worker(2).ended);
}

// Gives this process its own network, whose connections hold little data. If the machine does not
// permit that, nothing changes, and the test below has to send more.
void shrink_connections() {
  if (::unshare(CLONE_NEWNET) != 0) return;
  for (const char* name : {"tcp_rmem", "tcp_wmem"}) {
    std::ofstream(std::string("/proc/sys/net/ipv4/") + name) << "4096 65536 262144\n";
  }
  const wire::Fd any(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq loopback{};
  std::strcpy(loopback.ifr_name, "lo");
  loopback.ifr_flags = IFF_UP | IFF_RUNNING;
  EXPECT_EQ(::ioctl(any.get(), SIOCSIFFLAGS, &loopback), 0);
}

// How many bytes a connection holds while nobody reads.
std::size_t bytes_in_flight() {
  std::size_t sum = 0;
  for (const char* name : {"tcp_rmem", "tcp_wmem"}) {
    std::ifstream file(std::string("/proc/sys/net/ipv4/") + name);
    std::size_t least = 0;
    std::size_t usual = 0;
    std::size_t most = 0;
    file >> least >> usual >> most;
    EXPECT_GT(most, 0U);
    sum += most;
  }
  return sum;
}

// Workers 1 and 2 compute. Worker 3 has no leaf. Worker 3 has sent its word of step T, and then its
// network thread is blocked. 1 and 2 complete T. What 2 sends to 3 is more than the connection
// holds. So when 2 dies, 3 can never complete T by itself. Only 1 can give it the gradient.
TEST(Session, AWorkerThatMissedAStepReceivesItsGradient) {
  shrink_connections();
  ToyOptions options;
  options.size.leaves = 2;
  options.size.tail = 2 * (bytes_in_flight() / sizeof(float) + 500'000);
  options.report_steps = false;
  const auto of_three = [](const Record& record) { return record.working().size() == 3; };

  ToyJob job(options.size);
  ToyOptions first = options;
  first.before_applying = [&](const Session::Completed& completed) {
    if (of_three(completed.record)) job.line().tell({{"completed", completed.plan.step}});
  };
  ToyOptions second = options;
  second.before_computing = [&](const Session::Work& work) {
    if (of_three(work.record)) job.line().wait();
  };
  ToyOptions third = options;
  third.after_word = [&](const Session::Work& work) {
    if (of_three(work.record)) job.line().tell({{"said", work.plan.step}});
  };
  third.when_dialled = [&, count = 0]() mutable {
    job.line().tell({{fmt::format("dialled {}", ++count), true}});
    if (count == 2) job.line().wait();
  };
  job.start(1, first);
  job.until("the founder trains", [&] { return job.working({1}); });
  job.start(2, second);
  job.plan({1, 2});
  job.until("two workers train", [&] { return job.working({1, 2}); });
  job.start(3, third);
  job.plan({1, 2, 3});
  job.until("worker 3 has said its word", [&] { return job.told(3, "said").has_value(); });
  const auto step = job.told(3, "said")->at("said").get<Step>();

  // When worker 3 answers a worker that connects, it has already sent its word. The next worker
  // that connects finds it blocked.
  job.start(4, options);
  job.until("worker 3 was dialled", [&] { return job.told(3, "dialled 1").has_value(); });
  job.start(5, options);
  job.until("worker 3 stands still", [&] { return job.told(3, "dialled 2").has_value(); });
  job.let_go(2);
  job.until("worker 1 has completed the step",
            [&] { return job.told(1, "completed").has_value(); });
  EXPECT_EQ(job.told(1, "completed")->at("completed"), step);
  job.kill(2);
  job.let_go(3);
  job.until("worker 3 has caught up", [&] { return job.told(3, "caught_up").has_value(); });
  EXPECT_EQ(job.told(3, "caught_up")->at("caught_up"), step);
  job.until("both go on", [&] { return job.working({1, 3}); });
  expect_end(job, options.size, {1, 3});
}

// As above, in the last step, which has no gradient. Worker 1 has completed it and is about to end.
// Worker 3 never can, because the word of 2 is too long for the connection. It ends by itself, and
// applies nothing.
TEST(Session, AWorkerThatMissedTheLastStepAppliesNothing) {
  shrink_connections();
  ToyOptions options;
  options.report_steps = false;
  ToyJob job(options.size);
  ToyOptions first = options;
  first.before_applying = [&](const Session::Completed& completed) {
    if (!completed.plan.finish) return;
    job.line().tell({{"completed", completed.plan.step}});
    job.line().wait();
  };
  ToyOptions second = options;
  second.before_word = [&](const Session::Work& work, Word& word) {
    if (!work.plan.finish) return;
    // The proposal of a worker that does not lead is ignored.
    member::Proposal proposal{work.record, work.plan};
    const std::size_t size = Json(proposal).dump().size();
    word.proposal.assign((bytes_in_flight() + 4000000) / size, proposal);
    job.line().wait();
  };
  ToyOptions third = options;
  third.after_word = [&](const Session::Work& work) {
    if (work.plan.finish) job.line().tell({{"said", work.plan.step}});
  };
  third.when_dialled = [&, count = 0]() mutable {
    job.line().tell({{fmt::format("dialled {}", ++count), true}});
    if (count == 2) job.line().wait();
  };
  job.start(1, first);
  job.until("the founder trains", [&] { return job.working({1}); });
  job.start(2, second);
  job.plan({1, 2});
  job.until("two workers train", [&] { return job.working({1, 2}); });
  job.start(3, third);
  job.plan({1, 2, 3});
  job.until("three workers train", [&] { return job.working({1, 2, 3}); });
  job.stop();
  job.until("worker 3 has said its word", [&] { return job.told(3, "said").has_value(); });
  const auto step = job.told(3, "said")->at("said").get<Step>();
  job.start(4, options);
  job.until("worker 3 was dialled", [&] { return job.told(3, "dialled 1").has_value(); });
  job.start(5, options);
  job.until("worker 3 stands still", [&] { return job.told(3, "dialled 2").has_value(); });
  job.let_go(2);
  job.until("worker 1 has completed the step",
            [&] { return job.told(1, "completed").has_value(); });
  EXPECT_EQ(job.told(1, "completed")->at("completed"), step);
  job.kill(2);
  job.let_go(3);
  // This is its second word: it has recovered and tries the last step again.
  job.until("worker 3 goes on without worker 2", [&] {
    const std::vector<Json>& told = job.worker(3).told;
    return std::count_if(told.begin(), told.end(),
                         [](const Json& message) { return message.contains("said"); }) == 2;
  });
  EXPECT_EQ(job.worker(3).told.back().at("said"), step);
  job.let_go(1);
  expect_end(job, options.size, {1, 3});
  EXPECT_FALSE(job.told(3, "caught_up"));
}

// --- ends ---

TEST(Session, AWorkerOfAnotherBuildIsRefused) {
  ToyOptions options;
  ToyJob job(options.size);
  found_job(job, options);
  ToyOptions other = options;
  other.build = "other";
  job.start(2, other);
  job.plan({1, 2});
  job.wait_for_end(2);
  EXPECT_EQ(job.worker(2).ended->code, wire::kRefused);
  EXPECT_EQ(job.told(2, "end")->at("why"), "another build");
  EXPECT_TRUE(job.noticed(2, "refused"));
  train(job, {1}, 2);
  expect_end(job, options.size, {1});
}

TEST(Session, ReplicasThatDifferEndTheJobEverywhere) {
  ToyOptions options;
  ToyJob job(options.size);
  found_job(job, options);
  ToyOptions wrong = options;
  wrong.before_word = [](const Session::Work&, Word& word) {
    if (!word.digest.empty()) word.digest = "0000";
  };
  job.start(2, wrong);
  job.plan({1, 2});
  for (const Uid uid : {1, 2}) {
    job.wait_for_end(uid);
    EXPECT_EQ(job.worker(uid).ended->code, wire::kJobFailed);
    const auto end = job.told(uid, "end");
    ASSERT_TRUE(end);
    EXPECT_NE(end->at("why").get<std::string>().find("0000"), std::string::npos);
  }
}

TEST(Session, CodeThatFailsEndsTheJobEverywhere) {
  ToyOptions options;
  ToyJob job(options.size);
  found_job(job, options);
  ToyOptions failing = options;
  failing.instead_of_computing = [](Session& session, const Session::Work&) {
    session.fail("the loss is a cat");
  };
  job.start(2, failing);
  job.plan({1, 2});
  for (const Uid uid : {1, 2}) {
    job.wait_for_end(uid);
    EXPECT_EQ(job.worker(uid).ended->code, wire::kJobFailed);
    EXPECT_EQ(job.told(uid, "end")->at("why"), "the loss is a cat");
  }
}

TEST(Session, TrainingGoesOnWithoutALauncher) {
  ToyOptions options;
  ToyJob job(options.size);
  // The step at which the launcher vanished. Only the leader uses it.
  const auto vanished = std::make_shared<Step>(0);
  options.before_computing = [&, vanished](const Session::Work& work) {
    if (!work.leader || work.record.working().size() != 2 || *vanished > 0) return;
    *vanished = work.plan.step;
    job.line().tell({{"two", true}});
    job.line().wait();
  };
  options.last_step = [vanished](const StepPlan& plan) {
    return *vanished > 0 && plan.step == *vanished + 5;
  };
  found_job(job, options);
  job.start(2, options);
  job.plan({1, 2});
  job.until("two workers train", [&] { return job.told(1, "two").has_value(); });
  job.vanish();
  job.let_go(1);
  for (const Uid uid : {1, 2}) {
    job.wait_for_end(uid);
    EXPECT_EQ(job.worker(uid).ended->code, wire::kFinished);
    const auto finished = job.told(uid, "finished");
    ASSERT_TRUE(finished);
    EXPECT_EQ(finished->at("digest"),
              job.plain_loop().digest_after(finished->at("finished").get<Step>()));
  }
}

}  // namespace
}  // namespace rubato::elastic
