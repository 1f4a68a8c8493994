// The policy rubato in the daemon: what it is told of jobs, and what people are told of its market.
#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <memory>
#include <string>

#include "rubato/daemon/testing_background.h"
#include "rubato/daemon/testing_daemon.h"

namespace rubato::daemon {
namespace {

JobId job_of(const Answer& answer) { return JobId(answer.body["id"].get<JobId::rep>()); }

struct Market : ::testing::Test {
  TestDaemon daemon{"1x4"};
  Market() { daemon.options.policy = "rubato"; }

  JobId submit(const Caller& caller, const std::string& name, double samples, int gpus = 4) {
    JobFile file = job_file(name, samples, gpus, gpus);
    file.profile = "net";  // so its speed is known once another of its owner has run
    return job_of(daemon.submit(caller, file));
  }
  Json explain(const Caller& caller, JobId id) { return daemon.ask(caller, ExplainJob{id}).body; }
  std::string metrics() { return daemon.ask(kRoot, ShowMetrics{}).body["text"]; }
};

bool says(const Json& explanation, const std::string& part) {
  const Json& sentences = explanation["sentences"];
  return std::any_of(sentences.begin(), sentences.end(), [&](const Json& sentence) {
    return sentence.get<std::string>().find(part) != std::string::npos;
  });
}

TEST(MarketDefault, IsThePolicyOfANewCluster) { EXPECT_EQ(CoreOptions().policy, "rubato"); }

TEST(MarketDefault, AnOldJournalKeepsItsPolicy) {
  TestDaemon daemon;
  daemon.options.policy = "afs-l";
  daemon.start();
  daemon.kill();
  daemon.options.policy = CoreOptions().policy;
  daemon.start();
  EXPECT_EQ(daemon.core->state().policy().text, "afs-l");
  EXPECT_TRUE(daemon.core->state().prices().empty());
}

TEST_F(Market, ExplainsThePriceTheBidAndHowManyBidMore) {
  daemon.start();
  submit(kAda, "runs", 300);
  submit(kBob, "runs2", 300);
  daemon.pass(40);
  submit(kAda, "long", 1e5);
  daemon.pass(10);
  const JobId ada = submit(kAda, "hers", 2e5);
  const JobId bob = submit(kBob, "his", 3e5);
  const JobId last = submit(kBob, "last", 9e5);
  daemon.pass(1);
  const Json why = explain(kBob, last);
  EXPECT_TRUE(says(why, "rubato did not run it at ")) << why;
  EXPECT_TRUE(says(why, "The price of a GPU is ")) << why;
  EXPECT_TRUE(says(why, "The job bids ")) << why;
  EXPECT_TRUE(says(why, "2 jobs that want more GPUs bid more.")) << why;
  EXPECT_FALSE(says(why, "that came before it")) << "that is not why it waits: " << why;
  EXPECT_GT(why["market"]["price"], why["market"]["bid"]);
  EXPECT_EQ(why["market"]["outbid"], 2);
  EXPECT_EQ(why["market"]["outbid_by"], Json::array({bob.value()})) << "others are not named";
  EXPECT_EQ(explain(kRoot, last)["market"]["outbid_by"], Json::array({ada.value(), bob.value()}));
  daemon.expect_replay();
}

TEST_F(Market, HasAPriceThatOutlivesTheDaemon) {
  daemon.start();
  EXPECT_EQ(metrics().find("rubato_gpu_price"), std::string::npos) << "nothing was traded yet";
  const JobId first = submit(kAda, "one", 1e5);
  submit(kBob, "two", 1e5);
  daemon.pass(1);
  const auto line = [&] {
    const std::string text = metrics();
    const auto at = text.find("rubato_gpu_price{type=\"gpu\"} ");
    return at == std::string::npos ? "" : text.substr(at, text.find('\n', at) - at);
  };
  const std::string before = line();
  ASSERT_NE(before, "");
  EXPECT_EQ(explain(kAda, first)["market"]["price"], daemon.core->state().prices()[0]);
  daemon.kill();
  daemon.start();
  EXPECT_EQ(line(), before);
  daemon.ask(kRoot, SwitchPolicy{"fifo"});
  EXPECT_EQ(line(), "") << "that policy has no market";
  EXPECT_TRUE(explain(kAda, first)["market"].is_null());
  daemon.expect_replay();
}

// While the policy thinks, readers see what it said before.
TEST_F(Market, ExplainsTheLastDecisionWhileTheNextIsTaken) {
  const auto held = std::make_shared<HeldBackground>();
  daemon.options.background = held;
  daemon.start();
  const JobId first = submit(kAda, "one", 1e5);
  daemon.pass(1);
  const Json before = explain(kAda, first)["market"];
  ASSERT_FALSE(before.is_null());
  held->held = true;
  std::vector<Input> inputs;
  inputs.emplace_back(Asked{1000, {kBob, SubmitJob{job_file("two", 1e5, 4, 4), "", false}}});
  EXPECT_TRUE(daemon.turn(std::move(inputs)).answers.empty());
  EXPECT_EQ(explain(kAda, first)["market"], before);
  EXPECT_NE(metrics().find("rubato_gpu_price"), std::string::npos);
  held->held = false;
  daemon.pass(1);
  EXPECT_NE(explain(kAda, first)["market"], before);
  daemon.expect_replay();
}

TEST_F(Market, KnowsOfEachJobWhetherItsLengthWasTold) {
  daemon.start();
  JobFile open = job_file("open", 1, 1, 2);
  open.work.reset();
  const JobId guessed = job_of(daemon.submit(kAda, open));
  const JobId told = submit(kAda, "told", 400, 2);
  daemon.pass(5);
  EXPECT_TRUE(daemon.core->state().view(guessed)->spec->work_guessed);
  EXPECT_FALSE(daemon.core->state().view(told)->spec->work_guessed);
  const auto& quotes = *daemon.core->state().last_decision()->quotes;
  EXPECT_TRUE(quotes.of(guessed)->guessed);
  EXPECT_FALSE(quotes.of(told)->guessed);
  daemon.kill();
  daemon.start();
  EXPECT_TRUE(daemon.core->state().view(guessed)->spec->work_guessed);
  open.deadline_after = from_seconds(600);
  const Answer dated = daemon.submit(kAda, open);
  EXPECT_EQ(dated.body["state"], "REFUSED");
  EXPECT_NE(dated.body["reason"].get<std::string>().find("a deadline without work"),
            std::string::npos);
  EXPECT_TRUE(daemon.pass_until([&] { return daemon.state(guessed) == "COMPLETED"; }, 900));
  daemon.expect_replay();
}

// A job starts on what is known, and grows as it shows its speed.
TEST_F(Market, AJobOfUnknownSpeedGrowsStepByStep) {
  daemon.speeds["net"] = [](int gpus) { return 10.0 * std::pow(gpus, 0.8); };
  daemon.start();
  const JobId id = job_of(daemon.submit(kAda, job_file("net", 1e5, 1, 4)));
  EXPECT_LE(daemon.core->state().view(id)->target.gpus(), 2);
  ASSERT_TRUE(daemon.pass_until([&] { return daemon.show(id)["gpus"] == 4; }, 120));
  daemon.expect_replay();
}

TEST_F(Market, PromisesADeadlineAfterItHasMeasuredTheSpeed) {
  daemon.start();
  submit(kBob, "busy", 1e6, 4);
  daemon.pass(10);
  JobFile file = job_file("dated", 1000, 1, 2);
  file.deadline_after = from_seconds(600);
  const JobId id = job_of(daemon.submit(kAda, file));
  EXPECT_EQ(daemon.state(id), "PROFILING");
  ASSERT_TRUE(daemon.pass_until([&] { return !daemon.show(id)["promised"].is_null(); }, 120))
      << "the run that measures goes first";
  ASSERT_TRUE(daemon.pass_until([&] { return daemon.state(id) == "COMPLETED"; }, 600));
  const Json ended = daemon.show(id);
  EXPECT_LE(ended["ended"], ended["deadline"]);
  daemon.expect_replay();
}

}  // namespace
}  // namespace rubato::daemon
