// The live engine with real agents, masters and workers: the contract that every engine keeps, and
// the faults that only a real one knows. The workers are this test binary: they speak
// wire/launch.h, join and leave by plans, and train nothing.
#include "rubato/engine/local_engine.h"

#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rubato/base/testing.h"
#include "rubato/base/text.h"
#include "rubato/launch/process.h"
#include "rubato/launch/processes.h"
#include "rubato/loop/engine_contract.h"
#include "rubato/node/cgroup.h"
#include "rubato/node/job_files.h"
#include "rubato/node/node_agent.h"
#include "rubato/node/state_directory.h"
#include "rubato/wire/launch.h"

namespace rubato::engine {
namespace {

using namespace std::chrono_literals;
using wire::Uid;

// --- the worker ----------------------------------------------------------------------------------

class TestWorker {
 public:
  TestWorker()
      : stream_(std::move(wire::connect_to(std::getenv("RUBATO_LAUNCHER")).value())),
        directory_(std::getenv("LIVE_TEST")),
        uid_(parse_integer(std::getenv("LIVE_TEST_WORKER")).value()) {
    wire::Hello hello;
    hello.uid = uid_;
    hello.token = std::getenv("RUBATO_TOKEN");
    hello.pid = getpid();
    hello.address = "unix:nowhere";
    say(hello);
  }

  [[noreturn]] void train() {
    std::ofstream(present(uid_)) << getpid();
    for (;;) {
      turn();
      if (std::filesystem::exists(directory_ + "/finish")) finish();
      if (std::filesystem::exists(directory_ + "/fail")) std::_Exit(wire::kJobFailed);
      if (leads()) lead();
    }
  }

 private:
  void say(const wire::FromWorker& message) { stream_.send(wire::to_json(message)); }
  [[nodiscard]] std::string present(Uid uid) const {
    return fmt::format("{}/worker.{}", directory_, uid);
  }
  [[nodiscard]] bool leads() const {
    return !plan_.workers.empty() &&
           *std::min_element(plan_.workers.begin(), plan_.workers.end()) == uid_;
  }

  // Who has come is a member; whoever leads tells.
  void lead() {
    Json members = Json::array();
    Json uids = Json::array();
    for (const Uid uid : plan_.workers) {
      if (std::filesystem::exists(present(uid))) {
        members.push_back({{"uid", uid}, {"role", "working"}});
        uids.push_back(uid);
      }
    }
    if (members != told_ || plan_.number != told_plan_) {
      told_ = members;
      told_plan_ = plan_.number;
      Json content = {{"members", members}, {"uids", uids}, {"first", step_ + 1}, {"recovery", 0}};
      content["generation"] = Json::array({plan_.number, ++revision_});
      say(wire::Notice{"members", content});
    }
    ++step_;
    say(wire::Report{{{"step", step_},
                      {"samples", 8.0 * static_cast<double>(step_)},
                      {"loss", 1.0},
                      {"workers", plan_.workers.size()},
                      {"batch", 8}}});
  }

  [[noreturn]] void finish() {
    say(wire::Notice{"finished", {{"step", step_}}});
    std::_Exit(wire::kFinished);
  }

  void turn() {
    pollfd asked{stream_.fd(), POLLIN, 0};
    if (stream_.open()) poll(&asked, 1, 20);
    if (!stream_.open()) usleep(20'000);  // it goes on without its launcher
    if (plan_.number > 0) say(wire::Beat{step_});
    for (const Json& json : stream_.receive()) {
      const auto message = wire::parse_from_launcher(json);
      if (!message) std::_Exit(99);
      if (const auto* welcome = std::get_if<wire::Welcome>(&*message)) {
        plan_ = welcome->plan;
      } else if (const auto* plan = std::get_if<wire::MembershipPlan>(&*message)) {
        plan_ = *plan;
      } else {
        say(wire::Notice{"stopped", {{"step", step_}}});
        std::_Exit(wire::kFinished);
      }
      if (std::find(plan_.workers.begin(), plan_.workers.end(), uid_) == plan_.workers.end()) {
        std::_Exit(wire::kLeft);
      }
    }
  }

  wire::FrameStream stream_;
  std::string directory_;
  Uid uid_;
  wire::MembershipPlan plan_;
  Json told_;
  std::int64_t told_plan_ = 0;
  std::int64_t revision_ = 0;
  std::int64_t step_ = 0;
};

// Before main: this process is a worker if a master started it.
[[maybe_unused]] const bool kIsTest = [] {
  if (std::getenv("LIVE_TEST_WORKER") != nullptr) {
    alarm(600);
    TestWorker().train();
  }
  return true;
}();

// --- the cluster ---------------------------------------------------------------------------------

// Between agents and the engine: forwards, until it is told to hold everything back.
class Proxy {
 public:
  Proxy(wire::Poller& poller, const std::string& listen, std::string to)
      : poller_(poller), to_(std::move(to)), listener_(std::move(*wire::listen_on(listen))) {
    poller_.add(listener_.get(), [this](wire::Poller::Ready) { accept(); });
  }
  ~Proxy() {
    poller_.remove(listener_.get());
    for (const auto& pipe : pipes_) close(*pipe);
  }
  Proxy(const Proxy&) = delete;
  Proxy& operator=(const Proxy&) = delete;

  void hold(bool held) {
    for (const auto& pipe : pipes_) {
      poller_.want_in(pipe->a.get(), !held);
      poller_.want_in(pipe->b.get(), !held);
    }
    held_ = held;
  }

 private:
  struct Pipe {
    wire::Fd a, b;
  };

  void accept() {
    auto pipe = std::make_shared<Pipe>();
    pipe->a = wire::accept_from(listener_);
    auto there = wire::connect_to(to_);
    if (!pipe->a.valid() || !there) return;
    pipe->b = std::move(*there);
    pipes_.push_back(pipe);
    poller_.add(pipe->a.get(),
                [this, pipe](wire::Poller::Ready) { move(*pipe, pipe->a, pipe->b); });
    poller_.add(pipe->b.get(),
                [this, pipe](wire::Poller::Ready) { move(*pipe, pipe->b, pipe->a); });
    if (held_) hold(true);
  }
  void move(const Pipe& pipe, const wire::Fd& from, const wire::Fd& to) {
    if (held_) return;
    std::array<char, 65536> buffer;  // NOLINT: filled by read
    const ssize_t size = read(from.get(), buffer.data(), buffer.size());
    // What is sent here is far less than a socket holds.
    if (size > 0) {
      if (write(to.get(), buffer.data(), static_cast<std::size_t>(size)) != size) close(pipe);
    } else if (size == 0 || errno != EAGAIN) {
      close(pipe);
    }
  }
  void close(const Pipe& pipe) {
    poller_.remove(pipe.a.get());
    poller_.remove(pipe.b.get());
    shutdown(pipe.a.get(), SHUT_RDWR);
    shutdown(pipe.b.get(), SHUT_RDWR);
  }

  wire::Poller& poller_;
  std::string to_;
  wire::Fd listener_;
  std::vector<std::shared_ptr<Pipe>> pipes_;
  bool held_ = false;
};

class LiveCluster {
 public:
  explicit LiveCluster(bool with_proxy = false) : with_proxy_(with_proxy) {
    std::signal(SIGPIPE, SIG_IGN);
    std::string pattern = (std::filesystem::temp_directory_path() / "rubato-XXXXXX").string();
    root_ = mkdtemp(pattern.data());
    open_engine({});
  }
  ~LiveCluster() {
    for (std::size_t i = 0; i < 2; ++i) kill_agent(i, SIGKILL);
    engine_.reset();
    Leftovers leftovers;
    for (std::size_t i = 0; i < kJobs; ++i) {
      // It may have had the one node or the other for its home.
      const std::string cgroup = cgroup_of_job(root_, node_id(0), job_id(i));
      leftovers.add(job_id(i), owner_of_job(root_, job_id(i)), token(i),
                    processes_named_in(job_directory(root_, job_id(i))),
                    cgroup.empty() ? cgroup_of_job(root_, node_id(1), job_id(i)) : cgroup);
    }
    for (int i = 0; leftovers.busy() && i < 6000; ++i) {
      [[maybe_unused]] const auto done = leftovers.pass();
      usleep(10'000);
    }
    EXPECT_FALSE(leftovers.busy());
    if (::testing::Test::HasFailure() && std::getenv("KEEP") != nullptr) return;
    std::filesystem::remove_all(root_);
  }
  LiveCluster(const LiveCluster&) = delete;
  LiveCluster& operator=(const LiveCluster&) = delete;

  // --- the daemon's side

  void open_engine(const std::vector<KnownJob>& known) {
    proxy_.reset();
    LocalEngineOptions options;
    options.state_directory = root_;
    options.program = rubato_program();
    options.cluster = cluster_of("2x4");
    options.lease = kLease;
    options.clock = [this] { return time(); };
    if (with_proxy_) options.dial = "unix:" + root_ + "/proxy.sock";
    options.launch_of = [this](JobId job) { return launch(job.index()); };
    engine_ = std::make_unique<LocalEngine>(poller_, options);
    const auto opened = engine_->open(known);
    EXPECT_TRUE(opened.ok()) << (opened ? "" : opened.error().message);
    if (with_proxy_) {
      unlink((root_ + "/proxy.sock").c_str());
      proxy_ = std::make_unique<Proxy>(poller_, options.dial, "unix:" + root_ + "/agents.sock");
    }
  }
  void crash_engine() { engine_.reset(); }
  LocalEngine& engine() { return *engine_; }
  Proxy& proxy() { return *proxy_; }

  // Until it is so; all facts meanwhile.
  template <class Condition>
  Facts until(const Condition& condition, const std::string& what) {
    Facts facts;
    const auto limit = std::chrono::steady_clock::now() + 60s;
    while (!condition(facts)) {
      if (std::chrono::steady_clock::now() > limit) {
        ADD_FAILURE() << "in vain: " << what << "\n" << words();
        break;
      }
      poller_.wait(10ms);
      if (engine_) engine_->collect(time(), facts);
    }
    return facts;
  }
  Facts answers() {
    Facts facts =
        until([&](const Facts&) { return !engine_->waits(); }, "an answer to every command");
    // What comes too much would come now.
    for (int i = 0; i < 3; ++i) {
      poller_.wait(10ms);
      engine_->collect(time(), facts);
    }
    return facts;
  }
  Facts both_up() {
    return until(
        [&](const Facts&) {
          return engine_->state_of(node_id(0)) == NodeState::up && engine_->connected(node_id(0)) &&
                 engine_->state_of(node_id(1)) == NodeState::up && engine_->connected(node_id(1));
        },
        "both nodes up");
  }
  Facts tell(const Command& command) {
    const std::vector<Command> commands{command};
    engine_->carry_out(time(), commands);
    return answers();
  }

  // --- the machine's side

  void create(std::size_t job, const std::string& file) {
    std::filesystem::create_directories(directory(job));
    std::ofstream(directory(job) + "/" + file) << "now";
  }
  // Nothing can be made in the directory of jobs, not even by root.
  void break_jobs() const {
    std::filesystem::rename(root_ + "/jobs", root_ + "/away");
    std::ofstream(root_ + "/jobs") << "no directory";
  }
  void mend_jobs() const {
    std::filesystem::remove(root_ + "/jobs");
    std::filesystem::rename(root_ + "/away", root_ + "/jobs");
  }
  // Says this to the engine as an agent would; all that it answers until it hangs up.
  std::vector<Json> say_as_agent(Json hello) {
    hello["token"] = **read_json_file(agent_token_file(root_));
    wire::FrameStream stream(std::move(*wire::connect_to("unix:" + root_ + "/agents.sock")));
    stream.send(hello);
    std::vector<Json> said;
    until(
        [&](const Facts&) {
          for (Json& message : stream.receive()) said.push_back(std::move(message));
          return !stream.open();
        },
        "the engine hangs up");
    return said;
  }
  void kill_agent(std::size_t node, int signal) const {
    const auto json = read_json_file(node_directory(root_, node_id(node)) + "/agent.json");
    if (!json || !*json) return;
    const auto agent = parse_process_name(**json);
    if (agent && lives(*agent)) kill(agent->pid, signal);
  }
  [[nodiscard]] int agent_pid(std::size_t node) const {
    const auto json = read_json_file(node_directory(root_, node_id(node)) + "/agent.json");
    if (!json || !*json) return 0;
    const auto agent = parse_process_name(**json);
    return agent && lives(*agent) ? agent->pid : 0;
  }
  // All processes of a node die.
  void kill_node(std::size_t node) {
    kill_agent(node, SIGKILL);
    for (std::size_t job = 0; job < kJobs; ++job) {
      const JobFiles files{job_directory(root_, job_id(job))};
      const auto launched = read_launch(files);
      if (!launched || !*launched) continue;
      const auto master = read_master(files);
      if ((*launched)->home == node_id(node) && master && *master && lives(**master)) {
        kill((*master)->pid, SIGKILL);
      }
      for (const WorkerRecord& worker : workers(job)) {
        if (parse_slot(worker.slot)->node == node_id(node)) kill(worker.process.pid, SIGKILL);
      }
    }
  }
  [[nodiscard]] std::vector<WorkerRecord> workers(std::size_t job) const {
    auto all = read_workers(JobFiles{job_directory(root_, job_id(job))});
    std::vector<WorkerRecord> living;
    if (!all) return living;
    for (const WorkerRecord& worker : *all) {
      if (lives(worker.process)) living.push_back(worker);
    }
    return living;
  }
  [[nodiscard]] std::set<int> pids(std::size_t job) const {
    std::set<int> all;
    for (const WorkerRecord& worker : workers(job)) all.insert(worker.process.pid);
    return all;
  }
  [[nodiscard]] bool master_lives(std::size_t job) const {
    const auto master = read_master(JobFiles{job_directory(root_, job_id(job))});
    return master && *master && lives(**master);
  }
  [[nodiscard]] const std::string& root() const { return root_; }
  [[nodiscard]] Time time() const {
    return kStart + skipped_ +
           std::chrono::duration_cast<Duration>(std::chrono::steady_clock::now() - began_);
  }
  void skip(Duration time) { skipped_ += time; }
  // Leases end as often as it takes for what agents had still said to be read: then those that say
  // nothing are unknown, however slow this machine is.
  template <class Condition>
  Facts outlast_leases_until(const Condition& condition, const std::string& what) {
    return until(
        [&](const Facts& so_far) {
          skipped_ += kLease;
          return condition(so_far);
        },
        what);
  }
  // The step it has come to, by its reports.
  std::int64_t step(std::size_t job) {
    for (const JobStatus& status : engine_->take_reports()) {
      steps_[status.job] = status.progress.step;
      ends_[status.job] = status.ended;
    }
    return steps_[job_id(job)];
  }
  std::optional<JobEnd> end(std::size_t job) {
    step(job);
    return ends_[job_id(job)];
  }
  void trains_on(std::size_t job) {
    const std::int64_t before = step(job);
    until([&](const Facts&) { return step(job) > before + 2; }, "more steps");
  }
  void set_command(std::vector<std::string> command) { command_ = std::move(command); }
  void set_stop_after(Duration time) { stop_after_ = time; }
  void set_grace(Duration time) { grace_ = time; }
  void set_user(std::string user) { user_ = std::move(user); }
  void set_secret(std::string path) { secret_ = std::move(path); }

 private:
  static constexpr std::size_t kJobs = 3;
  // No test lasts so long: leases end when a test says so.
  static constexpr Duration kLease = std::chrono::hours(1);

  [[nodiscard]] std::string directory(std::size_t job) const {
    return fmt::format("{}/test-{}", root_, job);
  }
  [[nodiscard]] std::string token(std::size_t job) const {
    return fmt::format("{}-{}", std::filesystem::path(root_).filename().string(), job);
  }
  [[nodiscard]] JobLaunch launch(std::size_t job) const {
    std::filesystem::create_directories(directory(job));
    JobLaunch launch;
    launch.job = job_id(job);
    launch.name = fmt::format("job{}", job);
    launch.token = token(job);
    launch.command = command_;
    launch.live = command_.front() == "/bin/sh";
    launch.env["LIVE_TEST"] = directory(job);
    launch.env["PATH"] = "/usr/bin:/bin";
    launch.most = 8;
    launch.user = user_;
    launch.stop_after = stop_after_;
    if (!secret_.empty()) launch.secrets["KEY"] = secret_;
    launch.grace = grace_;
    return launch;
  }
  // What everybody has said, for a test that fails.
  [[nodiscard]] std::string words() const {
    std::string all;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root_)) {
      const std::string name = entry.path().filename().string();
      if (name != "agent.log" && name != "master.err" && name != "log" && name != "exit.json") {
        continue;
      }
      std::ifstream file(entry.path());
      all += entry.path().string() + ":\n" + std::string(std::istreambuf_iterator<char>(file), {}) +
             "\n";
    }
    return all;
  }

  std::string root_;
  bool with_proxy_;
  // Without the variables by which other tests of this binary know their workers.
  std::vector<std::string> command_ = {"/bin/sh", "-c",
                                       "LIVE_TEST_WORKER=$RUBATO_WORKER; unset RUBATO_WORKER "
                                       "RUBATO_JOB; export LIVE_TEST_WORKER; exec \"$0\"",
                                       std::filesystem::read_symlink("/proc/self/exe").string()};
  std::string user_;
  std::string secret_;
  std::optional<Duration> stop_after_;
  Duration grace_ = from_seconds(5);
  wire::Poller poller_;
  std::unique_ptr<LocalEngine> engine_;
  std::unique_ptr<Proxy> proxy_;
  std::map<JobId, std::int64_t> steps_;
  std::map<JobId, std::optional<JobEnd>> ends_;
  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  Duration skipped_{};
};

// --- the contract --------------------------------------------------------------------------------

class LiveHarness {
 public:
  LiveHarness() { cluster_.both_up(); }

  Facts carry_out(const std::vector<Command>& commands) {
    cluster_.engine().carry_out(cluster_.time(), commands);
    return cluster_.answers();
  }
  Facts finish(JobId job) {
    cluster_.create(job.index(), "finish");
    return cluster_.until([](const Facts& facts) { return !only<Finished>(facts).empty(); },
                          "the end of the job");
  }
  Facts break_node(NodeId node) {
    break_unnoticed(node);
    return cluster_.answers();
  }
  void break_unnoticed(NodeId node) {
    cluster_.kill_node(node.index());
    cluster_.engine().mark_down(node);
  }

 private:
  LiveCluster cluster_;
};

INSTANTIATE_TYPED_TEST_SUITE_P(Live, EngineContract, LiveHarness);

// --- faults --------------------------------------------------------------------------------------

Command start(std::size_t job, unsigned generation, const Allocation& gpus) {
  return Start{job_id(job), Generation(generation), gpus};
}
Command resize(std::size_t job, unsigned generation, const Allocation& gpus) {
  return Resize{job_id(job), Generation(generation), gpus};
}

std::vector<NodeState> states_of(const Facts& facts, std::size_t node) {
  std::vector<NodeState> states;
  for (const NodeChanged& change : only<NodeChanged>(facts)) {
    if (change.node == node_id(node)) states.push_back(change.state);
  }
  return states;
}

// GPUs are let go, or a job is thrown off them.
bool frees_anything(const Facts& facts) {
  return !only<ReleasedFact>(facts).empty() || !only<FailedFact>(facts).empty() ||
         !only<Finished>(facts).empty();
}

// Whether the user could execute this file, asked in a process that is that user.
int access_as(const RunAs& user, const std::string& path) {
  const pid_t pid = fork();
  if (pid == 0) {
    const bool is = setgid(user.gid) == 0 && setuid(user.uid) == 0;
    std::_Exit(is && access(path.c_str(), X_OK) == 0 ? 0 : 1);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  return status;
}

using Unknown = std::vector<NodeState>;
const std::vector<NodeState> kThereAndBack = {NodeState::unknown, NodeState::up};

TEST(LocalEngine, AKilledAgentIsReplacedByOneThatAdopts) {
  LiveCluster cluster;
  cluster.both_up();
  cluster.tell(start(0, 1, gpus_on({{0, 0b11}, {1, 0b1}})));
  const auto before = cluster.pids(0);
  EXPECT_EQ(before.size(), 3U);
  const int agent = cluster.agent_pid(0);
  cluster.kill_agent(0, SIGKILL);
  const Facts facts = cluster.until(
      [&](const Facts& so_far) { return states_of(so_far, 0) == kThereAndBack; }, "node 0 back");
  EXPECT_FALSE(frees_anything(facts));
  EXPECT_NE(cluster.agent_pid(0), agent);
  EXPECT_EQ(cluster.pids(0), before);
  cluster.trains_on(0);
  // The new one obeys, too.
  EXPECT_EQ(released_by(cluster.tell(resize(0, 2, gpus_on({{0, 0b1}}))), job_id(0)),
            gpus_on({{0, 0b10}, {1, 0b1}}));
}

TEST(LocalEngine, WhatCannotBeStartedIsNotTheJobsFailureAndTheNodeIsSetAside) {
  LiveCluster cluster;
  cluster.both_up();
  cluster.tell(start(1, 1, gpus_on({{0, 0b1000}})));
  cluster.break_jobs();
  const Facts facts = cluster.tell(start(0, 1, gpus_on({{0, 0b1}})));
  std::vector<FailedFact> failed;
  std::vector<NodeChanged> changed;
  for (const Fact& fact : facts) {
    if (const auto* one = std::get_if<FailedFact>(&fact)) failed.push_back(*one);
    if (const auto* one = std::get_if<NodeChanged>(&fact)) changed.push_back(*one);
  }
  ASSERT_EQ(failed.size(), 1U);
  EXPECT_EQ(failed[0].job, job_id(0));
  EXPECT_TRUE(failed[0].infrastructure);
  EXPECT_NE(failed[0].why.find("Not a directory"), std::string::npos) << failed[0].why;
  ASSERT_EQ(changed.size(), 1U) << "told before the end of the job";
  EXPECT_EQ(changed[0].state, NodeState::unknown);
  EXPECT_NE(changed[0].why.find("cannot make the directory"), std::string::npos);
  cluster.mend_jobs();
  const Facts mended = cluster.until(
      [&](const Facts&) { return cluster.engine().state_of(node_id(0)) == NodeState::up; },
      "node 0 is used again");
  EXPECT_FALSE(frees_anything(mended)) << "what ran there went on";
  cluster.tell(start(0, 2, gpus_on({{0, 0b1}})));
  cluster.trains_on(0);
  cluster.trains_on(1);
}

TEST(LocalEngine, AnAgentOfAnotherVersionIsSentAway) {
  LiveCluster cluster;
  cluster.both_up();
  Json hello = to_json(FromAgent(AgentHello{node_id(0), "", {1, 1}, {}}));
  hello.erase("protocol");
  EXPECT_EQ(cluster.say_as_agent(hello), std::vector<Json>{to_json(ToAgent(DismissAgent{}))});
  EXPECT_TRUE(cluster.engine().connected(node_id(0))) << "the one that is there stays";
}

TEST(LocalEngine, AStoppedAgentFreesNothingAndComesBack) {
  LiveCluster cluster;
  cluster.both_up();
  cluster.tell(start(0, 1, gpus_on({{0, 0b11}})));
  const auto before = cluster.pids(0);
  cluster.kill_agent(0, SIGSTOP);
  Facts facts = cluster.outlast_leases_until(
      [&](const Facts& so_far) { return !states_of(so_far, 0).empty(); }, "the end of the lease");
  EXPECT_EQ(states_of(facts, 0), Unknown{NodeState::unknown});
  EXPECT_FALSE(frees_anything(facts));
  // Commands wait, and the newest counts.
  const std::vector<Command> commands = {resize(0, 2, gpus_on({{0, 0b1}})),
                                         resize(0, 3, gpus_on({{0, 0b1011}})),
                                         start(1, 1, gpus_on({{0, 0b100}}))};
  cluster.engine().carry_out(cluster.time(), commands);
  int turns = 0;
  facts = cluster.until([&](const Facts&) { return ++turns > 50; }, "time to do something wrong");
  EXPECT_TRUE(states_of(facts, 0).empty());
  EXPECT_FALSE(frees_anything(facts));
  EXPECT_TRUE(only<RunningFact>(facts).empty());
  EXPECT_EQ(cluster.pids(0), before);
  EXPECT_TRUE(cluster.pids(1).empty());
  cluster.kill_agent(0, SIGCONT);
  facts = cluster.answers();
  EXPECT_EQ(states_of(facts, 0), Unknown{NodeState::up});
  EXPECT_FALSE(frees_anything(facts));
  ASSERT_EQ(only<RunningFact>(facts).size(), 2U);
  for (const int pid : before) EXPECT_TRUE(cluster.pids(0).contains(pid));
  EXPECT_EQ(cluster.pids(0).size(), 3U);
  EXPECT_EQ(cluster.pids(1).size(), 1U);
}

TEST(LocalEngine, AnAgentThatIsCutOffGoesOnAndComesBack) {
  LiveCluster cluster(true);
  cluster.both_up();
  cluster.tell(start(0, 1, gpus_on({{0, 0b11}})));
  const auto before = cluster.pids(0);
  cluster.proxy().hold(true);
  Facts facts = cluster.outlast_leases_until(
      [&](const Facts& so_far) {
        return !states_of(so_far, 0).empty() && !states_of(so_far, 1).empty();
      },
      "the end of the leases");
  EXPECT_EQ(states_of(facts, 0), Unknown{NodeState::unknown});
  EXPECT_FALSE(frees_anything(facts));
  EXPECT_EQ(cluster.pids(0), before);
  cluster.proxy().hold(false);
  facts = cluster.both_up();
  EXPECT_FALSE(frees_anything(facts));
  EXPECT_EQ(cluster.pids(0), before);
  cluster.trains_on(0);
}

TEST(LocalEngine, AJobThatWishesToStopsWhenItsNodeIsCutOff) {
  LiveCluster cluster(true);
  // This process may be kept waiting for some seconds, in which its agents do not hear it.
  cluster.set_stop_after(from_seconds(8));
  cluster.both_up();
  cluster.tell(start(0, 1, gpus_on({{0, 0b11}})));
  cluster.proxy().hold(true);
  Facts facts = cluster.until([&](const Facts&) { return !cluster.master_lives(0); },
                              "the end that the job gives itself");
  EXPECT_FALSE(frees_anything(facts)) << "nobody could say so";
  EXPECT_TRUE(cluster.pids(0).empty());
  cluster.proxy().hold(false);
  facts = cluster.until([](const Facts& so_far) { return !only<FailedFact>(so_far).empty(); },
                        "the news of it");
  EXPECT_EQ(cluster.end(0)->how, JobEnd::How::stopped);
}

// An agent that is not heard may manage its jobs until the lease ends, so their time alone counts
// from there.
TEST(LocalEngine, ASilentJobIsTakenForEndedOnlyWhenItIsSurelyAlone) {
  LiveCluster cluster;
  cluster.set_stop_after(std::chrono::minutes(10));
  cluster.both_up();
  cluster.tell(start(0, 1, gpus_on({{0, 0b11}})));
  cluster.kill_agent(0, SIGSTOP);
  Facts facts = cluster.until(
      [&](const Facts& so_far) {
        cluster.skip(std::chrono::minutes(1));
        return !states_of(so_far, 0).empty();
      },
      "the end of the lease");
  int turns = 0;
  const Facts later =
      cluster.until([&](const Facts&) { return ++turns > 20; }, "time to do something wrong");
  EXPECT_FALSE(frees_anything(facts));
  EXPECT_FALSE(frees_anything(later));
  EXPECT_EQ(cluster.pids(0).size(), 2U);
  cluster.skip(std::chrono::minutes(12));
  cluster.until([](const Facts& so_far) { return !only<FailedFact>(so_far).empty(); },
                "the end of the job");
  EXPECT_TRUE(cluster.pids(0).empty());
  EXPECT_FALSE(cluster.master_lives(0));
}

TEST(LocalEngine, AStopIsDoneThoughTheMasterDoesNotObey) {
  LiveCluster cluster;
  cluster.set_grace(from_seconds(0.5));
  cluster.both_up();
  cluster.tell(start(0, 1, gpus_on({{0, 0b11}})));
  const auto master = read_master(JobFiles{job_directory(cluster.root(), job_id(0))});
  ASSERT_TRUE(master && *master);
  kill((*master)->pid, SIGSTOP);
  const Facts facts = cluster.tell(Stop{job_id(0), Generation(2)});
  EXPECT_EQ(released_by(facts, job_id(0)), gpus_on({{0, 0b11}}));
  ASSERT_FALSE(only<ReleasedFact>(facts).empty());
  EXPECT_TRUE(only<ReleasedFact>(facts).back().stopped);
  EXPECT_FALSE(cluster.master_lives(0));
  EXPECT_TRUE(cluster.pids(0).empty());
  ASSERT_TRUE(cluster.end(0).has_value());
  EXPECT_EQ(cluster.end(0)->why, "killed: it did not stop in time");
  EXPECT_EQ(only<RunningFact>(cluster.tell(start(0, 3, gpus_on({{0, 0b1}})))).size(), 1U);
}

TEST(LocalEngine, TrainingGoesOnWithoutTheDaemonWhichAdoptsItAgain) {
  LiveCluster cluster;
  cluster.both_up();
  cluster.tell(start(0, 1, gpus_on({{0, 0b11}})));
  cluster.tell(start(1, 1, gpus_on({{1, 0b11}})));
  cluster.tell(resize(1, 2, gpus_on({{1, 0b1}})));
  const auto first = cluster.pids(0);
  const auto second = cluster.pids(1);
  const std::int64_t step = cluster.step(0);
  cluster.crash_engine();
  cluster.open_engine(
      {{job_id(0), node_id(0), start(0, 1, gpus_on({{0, 0b11}})), gpus_on({{0, 0b11}})},
       {job_id(1), node_id(1), resize(1, 2, gpus_on({{1, 0b1}})), gpus_on({{1, 0b1}})}});
  const Facts facts = cluster.answers();
  EXPECT_FALSE(frees_anything(facts));
  EXPECT_EQ(only<RunningFact>(facts).size(), 2U);
  EXPECT_TRUE(only<NodeChanged>(facts).empty()) << "within the lease nobody need know";
  EXPECT_EQ(cluster.pids(0), first);
  EXPECT_EQ(cluster.pids(1), second);
  EXPECT_GE(cluster.step(0), step);
  cluster.trains_on(0);
}

// Stored, but the daemon died before it was sent.
TEST(LocalEngine, ACommandThatWasOnlyStoredIsSentAgain) {
  LiveCluster cluster;
  cluster.both_up();
  cluster.tell(start(0, 1, gpus_on({{0, 0b11}})));
  cluster.crash_engine();
  cluster.open_engine(
      {{job_id(0), node_id(0), resize(0, 2, gpus_on({{0, 0b1}})), gpus_on({{0, 0b11}})},
       {job_id(1), node_id(1), start(1, 1, gpus_on({{1, 0b1}})), gpus_on({{1, 0b1}})},
       {job_id(2), node_id(1), Stop{job_id(2), Generation(4)}, gpus_on({{1, 0b10}})}});
  const Facts facts = cluster.answers();
  EXPECT_EQ(released_by(facts, job_id(0)), gpus_on({{0, 0b10}}));
  EXPECT_EQ(only<RunningFact>(facts).size(), 2U);
  EXPECT_EQ(released_by(facts, job_id(2)), gpus_on({{1, 0b10}})) << "it was never there";
  EXPECT_EQ(cluster.pids(0).size(), 1U);
  EXPECT_EQ(cluster.pids(1).size(), 1U);
}

TEST(LocalEngine, WhatEndsWithoutTheDaemonAndTheAgentIsNotLost) {
  LiveCluster cluster;
  cluster.both_up();
  cluster.tell(start(0, 1, gpus_on({{0, 0b11}})));
  cluster.tell(start(1, 1, gpus_on({{1, 0b1}})));
  cluster.tell(start(2, 1, gpus_on({{1, 0b10}})));
  cluster.crash_engine();
  cluster.kill_agent(0, SIGKILL);
  cluster.kill_agent(1, SIGKILL);
  cluster.create(0, "finish");
  cluster.create(1, "fail");
  cluster.until([&](const Facts&) { return !cluster.master_lives(0) && !cluster.master_lives(1); },
                "the ends of two masters");
  const auto third = cluster.pids(2);
  EXPECT_EQ(third.size(), 1U);
  const auto known = [](std::size_t job, const Allocation& gpus) {
    return KnownJob{job_id(job), gpus.slices().front().node, start(job, 1, gpus), gpus};
  };
  cluster.open_engine({known(0, gpus_on({{0, 0b11}})), known(1, gpus_on({{1, 0b1}})),
                       known(2, gpus_on({{1, 0b10}}))});
  const Facts facts = cluster.answers();
  ASSERT_EQ(only<Finished>(facts).size(), 1U);
  EXPECT_EQ(only<Finished>(facts)[0].job, job_id(0));
  ASSERT_EQ(only<FailedFact>(facts).size(), 1U);
  EXPECT_EQ(only<FailedFact>(facts)[0].job, job_id(1));
  EXPECT_EQ(cluster.end(0)->how, JobEnd::How::finished);
  EXPECT_EQ(cluster.end(1)->how, JobEnd::How::failed);
  EXPECT_NE(cluster.end(1)->code, 0);
  EXPECT_EQ(cluster.pids(2), third);
  EXPECT_TRUE(cluster.tell(start(0, 2, gpus_on({{0, 0b1}}))).empty()) << "it has finished";
  EXPECT_TRUE(cluster.pids(0).empty());
}

TEST(LocalEngine, WhatTheTableDoesNotHaveIsKilledBeforeItsGpusAreUsed) {
  LiveCluster cluster;
  cluster.both_up();
  cluster.tell(start(0, 3, gpus_on({{0, 0b11}})));
  cluster.tell(start(1, 1, gpus_on({{0, 0b100}})));
  const auto stale = cluster.workers(0);
  const auto kept = cluster.pids(1);
  EXPECT_EQ(stale.size(), 2U);
  cluster.crash_engine();
  // Nothing is known of the first job; another gets its GPUs at once.
  cluster.open_engine(
      {{job_id(1), node_id(0), start(1, 1, gpus_on({{0, 0b100}})), gpus_on({{0, 0b100}})}});
  const std::vector<Command> commands = {start(2, 1, gpus_on({{0, 0b11}}))};
  cluster.engine().carry_out(cluster.time(), commands);
  bool seen = false;
  cluster.until(
      [&](const Facts&) {
        if (!seen && !cluster.pids(2).empty()) {
          seen = true;
          for (const WorkerRecord& worker : stale) EXPECT_FALSE(lives(worker.process));
        }
        return !cluster.engine().waits();
      },
      "the start of the other job");
  EXPECT_TRUE(seen);
  EXPECT_FALSE(cluster.master_lives(0));
  EXPECT_EQ(cluster.pids(1), kept);
  EXPECT_EQ(only<RunningFact>(cluster.tell(start(0, 4, gpus_on({{1, 0b1}})))).size(), 1U);
}

TEST(LocalEngine, AMasterThatDiesTakesItsWorkersAlongAndTheJobFails) {
  LiveCluster cluster;
  cluster.both_up();
  cluster.tell(start(0, 1, gpus_on({{0, 0b11}})));
  EXPECT_EQ(cluster.pids(0).size(), 2U);
  const auto master = read_master(JobFiles{job_directory(cluster.root(), job_id(0))});
  ASSERT_TRUE(master && *master);
  kill((*master)->pid, SIGKILL);
  const Facts facts = cluster.until(
      [](const Facts& so_far) { return !only<FailedFact>(so_far).empty(); }, "the failure");
  EXPECT_TRUE(cluster.pids(0).empty()) << "before it is told";
  EXPECT_EQ(cluster.end(0)->why, "its launcher died");
  EXPECT_EQ(only<RunningFact>(cluster.tell(start(0, 2, gpus_on({{0, 0b1}})))).size(), 1U);
}

// A process that leads a session of its own and has no variable of the job. With the job's cgroup
// it is found by that; without, by who has started it.
TEST(LocalEngine, WhatHasEscapedIsGoneBeforeItsGpusAreFree) {
  enum class End : std::uint8_t { stop, master_killed, node_down };
  const auto play = [](End end, bool by_cgroup) {
    LiveCluster cluster;
    const std::string file = cluster.root() + "/escaped";
    cluster.set_command({"sh", "-c",
                         fmt::format("env -i setsid sleep 1000 & echo $! >{0}.part; "
                                     "mv {0}.part {0}; sleep 1000",
                                     file)});
    cluster.both_up();
    cluster.tell(start(0, 1, gpus_on({{0, 0b1}})));
    cluster.until([&](const Facts&) { return std::filesystem::exists(file); }, "its process");
    int pid = 0;
    std::ifstream(file) >> pid;
    const ProcessName escaped{pid, wire::start_time_of(pid)};
    ASSERT_TRUE(lives(escaped));
    const std::string cgroup = cgroup_of_job(cluster.root(), node_id(0), job_id(0));
    if (by_cgroup && cgroup.empty()) return;  // there can be none here
    if (!by_cgroup) std::filesystem::remove(cgroup_file(cluster.root(), node_id(0), job_id(0)));
    if (end == End::stop) {
      cluster.engine().carry_out(cluster.time(),
                                 std::vector<Command>{Stop{job_id(0), Generation(2)}});
    } else if (end == End::master_killed) {
      const auto master = read_master(JobFiles{job_directory(cluster.root(), job_id(0))});
      ASSERT_TRUE(master && *master);
      kill((*master)->pid, SIGKILL);
    } else {
      cluster.kill_agent(0, SIGSTOP);
      cluster.engine().mark_down(node_id(0));
    }
    cluster.until(frees_anything, "the end");
    EXPECT_FALSE(lives(escaped)) << static_cast<int>(end) << by_cgroup;
    if (by_cgroup) {
      EXPECT_FALSE(std::filesystem::exists(cgroup)) << "it is removed";
    } else if (!cgroup.empty()) {
      EXPECT_TRUE(empty_cgroup(cgroup));
      remove_cgroup(cgroup);
    }
  };
  for (const End end : {End::stop, End::master_killed, End::node_down}) {
    for (const bool by_cgroup : {false, true}) play(end, by_cgroup);
  }
}

TEST(LocalEngine, TheSecretsOfAMasterThatDiesAreRemoved) {
  const auto killed = [](bool by_the_engine) {
    LiveCluster cluster;
    const std::string key = cluster.root() + "/key";
    std::ofstream(key) << "the key";
    cluster.set_secret(key);
    cluster.set_command({"sleep", "100"});
    cluster.both_up();
    cluster.tell(start(0, 1, gpus_on({{0, 0b1}})));
    const JobFiles files{job_directory(cluster.root(), job_id(0))};
    const std::string copies = std::filesystem::canonical(files.secrets()).string();
    EXPECT_TRUE(std::filesystem::exists(copies + "/0"));
    const auto master = read_master(files);
    ASSERT_TRUE(master && *master);
    if (by_the_engine) {
      cluster.kill_agent(0, SIGSTOP);
      cluster.engine().mark_down(node_id(0));
    } else {
      kill((*master)->pid, SIGKILL);
    }
    cluster.until([](const Facts& facts) { return !only<FailedFact>(facts).empty(); },
                  "the failure");
    EXPECT_FALSE(std::filesystem::exists(copies));
    EXPECT_FALSE(std::filesystem::exists(std::filesystem::symlink_status(files.secrets())));
  };
  killed(false);
  killed(true);
}

TEST(LocalEngine, StartsAgentsWithoutAnyDescriptorOfOurs) {
  const wire::Fd ours(open("/dev/null", O_RDONLY));  // stays open across exec
  LiveCluster cluster;
  cluster.both_up();
  const std::string there = fmt::format("/proc/{}/fd/{}", cluster.agent_pid(0), ours.get());
  std::error_code none;
  EXPECT_NE(std::filesystem::read_symlink(there, none), "/dev/null");
}

TEST(LocalEngine, ASecondAgentOfANodeIsRefused) {
  LiveCluster cluster;
  cluster.both_up();
  const auto second = NodeAgent::open({cluster.root(), node_id(0), "unix:nowhere"});
  ASSERT_FALSE(second.ok());
  EXPECT_NE(second.error().message.find("node 0 has an agent already"), std::string::npos);
}

TEST(LocalEngine, RunsProgramsThatKnowNothingOfUs) {
  LiveCluster cluster;
  cluster.set_command({"sleep", "100"});
  cluster.both_up();
  EXPECT_EQ(only<RunningFact>(cluster.tell(start(0, 1, gpus_on({{0, 0b1}})))).size(), 1U);
  EXPECT_EQ(cluster.pids(0).size(), 1U);
  EXPECT_TRUE(only<ReleasedFact>(cluster.tell(Stop{job_id(0), Generation(2)})).back().stopped);
  EXPECT_TRUE(cluster.pids(0).empty());
}

TEST(LocalEngine, AsRootItRunsAJobAsItsUser) {
  const auto nobody = look_up_user("nobody");
  if (geteuid() != 0 || !nobody) GTEST_SKIP() << "needs root and the user nobody";
  if (access_as(*nobody, rubato_program()) != 0)
    GTEST_SKIP() << "nobody may not execute the program";
  LiveCluster cluster;
  cluster.set_command({"sleep", "100"});
  cluster.set_user("nobody");
  cluster.both_up();
  cluster.tell(start(0, 1, gpus_on({{0, 0b1}})));
  ASSERT_EQ(cluster.workers(0).size(), 1U);
  const WorkerRecord worker = cluster.workers(0).front();
  struct stat there {};
  ASSERT_EQ(stat(fmt::format("/proc/{}", worker.process.pid).c_str(), &there), 0);
  EXPECT_EQ(there.st_uid, nobody->uid);
  const JobFiles files{job_directory(cluster.root(), job_id(0))};
  for (const std::string& path : {files.directory, files.launch(), files.log()}) {
    ASSERT_EQ(lstat(path.c_str(), &there), 0) << path;
    EXPECT_EQ(there.st_uid, nobody->uid) << path;
    EXPECT_EQ(there.st_mode & 077U, 0U) << path;
  }
  // What the user writes there must not make root kill anything else.
  const std::vector<WorkerRecord> forged = {{1, "0.0", own_name()}};
  ASSERT_TRUE(write_json_file(files.workers(), to_json(forged)).ok());
  const auto master = read_master(files);
  ASSERT_TRUE(master && *master);
  kill((*master)->pid, SIGKILL);
  cluster.until([](const Facts& facts) { return !only<FailedFact>(facts).empty(); }, "the failure");
  EXPECT_FALSE(lives(worker.process)) << "found by its token";
}

TEST(LocalEngine, AsRootItSaysNothingToASocketThatIsNotTheUsers) {
  const auto nobody = look_up_user("nobody");
  if (geteuid() != 0 || !nobody) GTEST_SKIP() << "needs root and the user nobody";
  if (access_as(*nobody, rubato_program()) != 0)
    GTEST_SKIP() << "nobody may not execute the program";
  LiveCluster cluster;
  cluster.set_command({"sleep", "1000"});
  cluster.set_user("nobody");
  cluster.both_up();
  cluster.tell(start(0, 1, gpus_on({{0, 0b1}})));
  const JobFiles files{job_directory(cluster.root(), job_id(0))};
  ASSERT_EQ(unlink(files.socket().c_str()), 0);
  const auto ours = wire::listen_on("unix:" + files.socket());
  ASSERT_TRUE(ours.ok());
  cluster.kill_agent(0, SIGKILL);
  wire::Fd caller;
  cluster.until(
      [&](const Facts&) {
        caller = wire::accept_from(*ours);
        return caller.valid();
      },
      "a new agent");
  char byte = 0;
  ssize_t size = -1;
  cluster.until(
      [&](const Facts&) {
        size = read(caller.get(), &byte, 1);
        return size >= 0;
      },
      "its hanging up");
  EXPECT_EQ(size, 0) << "it showed the job's token";
}

TEST(LocalEngine, RefusesAStateDirectoryThatIsTooLong) {
  wire::Poller poller;
  LocalEngineOptions options;
  options.state_directory = "/tmp/" + std::string(100, 'x');
  options.cluster = cluster_of("1x1");
  LocalEngine engine(poller, options);
  const auto opened = engine.open({});
  ASSERT_FALSE(opened.ok());
  EXPECT_NE(opened.error().message.find("is too long by"), std::string::npos);
}

}  // namespace
}  // namespace rubato::engine
