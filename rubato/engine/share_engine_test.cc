// The engine of a managed cluster with a real front agent and real masters, on the fake manager of
// testing_manager.h: no share really runs there. managed_world_test.cc tests the decisions.
#include "rubato/engine/share_engine.h"

#include <chrono>
#include <filesystem>
#include <gtest/gtest.h>
#include <unistd.h>

#include "rubato/base/testing.h"
#include "rubato/core/testing.h"
#include "rubato/engine/testing_manager.h"
#include "rubato/loop/engine_contract.h"

namespace rubato::engine {
namespace {

using namespace std::chrono_literals;

class ManagedEngine : public ::testing::Test {
 protected:
  ManagedEngine() : cluster_({{"tux0", 4}, {"tux1", 4}}, 1) {
    std::string name = (std::filesystem::temp_directory_path() / "rubato-share-XXXXXX").string();
    root_ = mkdtemp(name.data());
    open({});
  }
  ~ManagedEngine() override {
    engine_->retire();
    for (int i = 0; i < 20; ++i) poller_.wait(10ms);
    engine_.reset();
    std::filesystem::remove_all(root_);
  }

  void open(const std::vector<KnownJob>& jobs) {
    engine_.reset();
    ShareEngineOptions options;
    options.state_directory = root_;
    options.program = rubato_program();
    options.clock = [this] { return time(); };
    options.launch_of = [](JobId job) {
      JobLaunch launch;
      launch.name = "job";
      launch.token = "token of job " + std::to_string(job.value());
      launch.command = {"/bin/sleep", "600"};
      launch.most = 4;
      return launch;
    };
    options.manager = std::make_unique<FakeManager>(cluster_, options.clock);
    options.identity = "j1";
    options.native_env = "FAKE_ID";
    options.cluster = known_;
    engine_ = std::make_unique<ShareEngine>(poller_, std::move(options));
    const auto opened = engine_->open(jobs);
    ASSERT_TRUE(opened.ok()) << opened.error().message;
  }
  [[nodiscard]] Time time() const {
    const auto since = std::chrono::steady_clock::now() - began_;
    return kStart + std::chrono::duration_cast<Duration>(since);
  }
  template <class Done>
  loop::Facts until(const Done& done) {
    loop::Facts facts;
    for (const auto limit = std::chrono::steady_clock::now() + 60s;
         !done(facts) && std::chrono::steady_clock::now() < limit;) {
      poller_.wait(10ms);
      engine_->collect(time(), facts);
    }
    EXPECT_TRUE(done(facts));
    return facts;
  }

  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  FakeCluster cluster_;
  Cluster known_;
  std::string root_;
  wire::Poller poller_;
  std::unique_ptr<ShareEngine> engine_;
};

TEST_F(ManagedEngine, NodesJoinSharesAreAskedForAndGoWithTheirJob) {
  const auto joined = loop::only<NodeAdded>(
      until([](const auto& facts) { return loop::only<NodeAdded>(facts).size() == 2; }));
  EXPECT_EQ(joined[0].added.name, "tux0");
  EXPECT_EQ(joined[1].node, node_id(1));
  EXPECT_EQ(joined[1].added.gpus, 4);
  for (const NodeAdded& one : joined) known_.add(one.added);

  const Command start = Start{job_id(7), Generation(3), gpus_on({{0, 0b1}, {1, 0b10}})};
  engine_->carry_out(time(), {&start, 1});
  until([&](const auto& /*facts*/) { return cluster_.specs.size() == 2; });
  const ShareSpec& spec = cluster_.specs[0];
  EXPECT_TRUE(spec.name.starts_with("j1-7-3-0-1-")) << spec.name;
  EXPECT_EQ(spec.node, "tux0");
  EXPECT_EQ(spec.gpus, 1);
  const std::string file = root_ + "/jobs/7/shares/" + spec.name + ".json";
  EXPECT_EQ(spec.command, (std::vector<std::string>{rubato_program(), "share", "--config", file,
                                                    "--native-env", "FAKE_ID"}));
  EXPECT_EQ(spec.comment, "Rubato job 7");
  until([&](const auto& /*facts*/) { return cluster_.runs(spec.name); });

  // The next engine keeps the shares that its job wants.
  open({{job_id(7), node_id(0), start, gpus_on({{0, 0b1}, {1, 0b10}})}});
  until([&](const auto& /*facts*/) { return engine_->shares().ready(); });
  EXPECT_EQ(engine_->shares().held(job_id(7)), gpus_on({{0, 0b1}, {1, 0b10}}));
  EXPECT_EQ(cluster_.specs.size(), 2U);

  const Command stop = Stop{job_id(7), Generation(4)};
  engine_->carry_out(time(), {&stop, 1});
  const auto facts = until([](const auto& all) {
    const auto released = loop::only<loop::ReleasedFact>(all);
    return !released.empty() && released.back().stopped;
  });
  EXPECT_EQ(loop::released_by(facts, job_id(7)), gpus_on({{0, 0b1}, {1, 0b10}}));
  EXPECT_EQ(cluster_.alive(), 0U) << "no GPU is free before its share is gone";
}

}  // namespace
}  // namespace rubato::engine
