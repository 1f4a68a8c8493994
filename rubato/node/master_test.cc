// The master with real processes: this test binary starts itself as small workers that speak
// wire/launch.h and train nothing, and manages them as a node agent does.
#include "rubato/node/master.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fstream>
#include <functional>
#include <gtest/gtest.h>
#include <poll.h>
#include <set>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rubato/base/text.h"
#include "rubato/launch/processes.h"

namespace rubato::node {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

std::string content_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::int64_t milliseconds() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now().time_since_epoch())
      .count();
}

// --- the worker ----------------------------------------------------------------------------------

// Members agree by files in a directory they share: who is there has one with its uid. The lowest
// that the plan names tells of members and steps. A file "finish" ends the job.
class FakeMember {
 public:
  FakeMember()
      : meeting_(std::getenv("MEETING")),
        stream_(std::move(wire::connect_to(std::getenv("RUBATO_LAUNCHER")).value())) {
    uid_ = parse_integer(std::getenv("RUBATO_WORKER")).value();
    wire::Hello hello;
    hello.uid = uid_;
    hello.token = std::getenv("RUBATO_TOKEN");
    hello.pid = getpid();
    hello.address = "unix:nowhere";
    say(hello);
    while (plan_.number == 0) turn();
    introduce();
  }

  [[noreturn]] void train() {
    for (;;) {
      turn();
      if (stopped_) stop();
      if (!planned(uid_)) leave_if_possible();
      const std::set<Uid> present = members();
      if (present.empty() || *present.begin() != uid_) continue;
      if (fs::exists(meeting_ + "/finish")) finish();
      announce(present);
      const auto step = milliseconds() / 10;
      say(wire::Report{
          {{"step", step}, {"samples", 32}, {"loss", 0.5}, {"workers", present.size()}}});
    }
  }

 private:
  static std::string variable(const char* name) {
    const char* value = std::getenv(name);
    return value == nullptr ? "-" : value;
  }

  void introduce() const {
    std::ofstream(fmt::format("{}/{}", meeting_, uid_)) << getpid() << '\n';
    fmt::print("here slot={} gpu={} job={} start={} checkpoint={} mine={} batch={} in={}\n",
               variable("RUBATO_SLOT"), variable("CUDA_VISIBLE_DEVICES"), variable("RUBATO_JOB"),
               variable("RUBATO_START"),
               fs::path(variable("RUBATO_CHECKPOINT")).filename().string(), variable("MINE"),
               variable("RUBATO_BATCH"), fs::current_path().filename().string());
    std::fflush(stdout);
    if (std::getenv("KEY") != nullptr) {
      fs::copy_file(std::getenv("KEY"), meeting_ + "/key-seen", fs::copy_options::skip_existing);
      std::ofstream(meeting_ + "/key-path") << std::getenv("KEY");
    }
  }

  [[noreturn]] void end(int code) {
    fs::remove(fmt::format("{}/{}", meeting_, uid_));
    while (stream_.open() && stream_.unsent()) turn();
    std::_Exit(code);
  }
  [[noreturn]] void stop() {
    say(wire::Notice{"stopped", {{"step", 1}}});
    end(wire::kLeft);
  }
  [[noreturn]] void finish() {
    say(wire::Notice{"finished", {{"step", 1}}});
    end(wire::kFinished);
  }
  void leave_if_possible() {
    if (!members().empty()) end(wire::kLeft);
  }

  void announce(const std::set<Uid>& present) {
    if (present == announced_) return;
    announced_ = present;
    say(wire::Notice{"members",
                     {{"uids", present},
                      {"first", milliseconds() / 10},
                      {"generation", {plan_.number, milliseconds()}}}});
  }

  template <class Message>
  void say(const Message& message) {
    stream_.send(wire::to_json(wire::FromWorker(message)));
  }

  // Who is planned and there.
  [[nodiscard]] std::set<Uid> members() const {
    std::set<Uid> present;
    for (const Uid uid : plan_.workers) {
      const auto pid = parse_integer(trim(content_of(fmt::format("{}/{}", meeting_, uid))));
      if (pid && kill(static_cast<pid_t>(*pid), 0) == 0) present.insert(uid);
    }
    return present;
  }
  [[nodiscard]] bool planned(Uid uid) const {
    return std::find(plan_.workers.begin(), plan_.workers.end(), uid) != plan_.workers.end();
  }

  void turn() {
    pollfd asked{stream_.fd(), POLLIN, 0};
    poll(&asked, 1, 20);
    if (plan_.number > 0) say(wire::Beat{1});
    for (const Json& json : stream_.receive()) {
      const auto message = wire::parse_from_launcher(json);
      if (!message) std::_Exit(99);
      if (const auto* welcome = std::get_if<wire::Welcome>(&*message)) {
        plan_ = welcome->plan;
      } else if (const auto* plan = std::get_if<wire::MembershipPlan>(&*message)) {
        plan_ = *plan;
      } else {
        stopped_ = true;
      }
    }
    // A worker would go on alone; ours are not to outlive a failed test for long.
    if (!stream_.open() && Clock::now() - began_ > std::chrono::seconds(600)) std::_Exit(97);
  }

  std::string meeting_;
  wire::FrameStream stream_;
  Uid uid_ = 0;
  wire::MembershipPlan plan_;
  std::set<Uid> announced_;
  bool stopped_ = false;
  Clock::time_point began_ = Clock::now();
};

// Before main: this process is a worker if a master started it.
[[maybe_unused]] const bool kIsTest = [] {
  if (std::getenv("RUBATO_JOB") != nullptr) FakeMember().train();
  return true;
}();

// --- the manager ---------------------------------------------------------------------------------

constexpr auto kPatience = std::chrono::seconds(60);

class Manager {
 public:
  Manager(const JobFiles& files, const std::string& token) {
    const auto until = Clock::now() + kPatience;
    while (!stream_.open() && Clock::now() < until) {
      if (auto connected = wire::connect_to("unix:" + files.socket())) {
        stream_ = wire::FrameStream(std::move(*connected));
      } else {
        usleep(10'000);
      }
    }
    say(Manage{token});
  }

  void say(const ToMaster& message) { stream_.send(to_json(message)); }

  // The statuses that arrive are gone through until one is as asked; false if none comes.
  bool until(const std::function<bool(const JobStatus&)>& holds) {
    const auto end = Clock::now() + kPatience;
    while (Clock::now() < end) {
      while (!waiting_.empty()) {
        last = waiting_.front();
        waiting_.erase(waiting_.begin());
        all.push_back(last);
        if (holds(last)) return true;
      }
      if (!stream_.open()) return false;
      pollfd asked{stream_.fd(), POLLIN, 0};
      poll(&asked, 1, 100);
      for (const Json& message : stream_.receive()) {
        auto parsed = parse_job_status(message);
        EXPECT_TRUE(parsed.ok()) << parsed.error().message;
        if (parsed) waiting_.push_back(*parsed);
      }
    }
    return false;
  }
  bool until_running(unsigned generation) {
    return until([&](const JobStatus& status) {
      return status.running && status.generation == Generation(generation);
    });
  }
  bool until_ended() {
    return until([](const JobStatus& status) { return status.ended.has_value(); });
  }
  bool hung_up() {
    until([](const JobStatus&) { return false; });
    return !stream_.open();
  }

  JobStatus last;
  std::vector<JobStatus> all;

 private:
  wire::FrameStream stream_;
  std::vector<JobStatus> waiting_;
};

class MasterTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "rubato-XXXXXX").string();
    root_ = mkdtemp(pattern.data());
    files_.directory = root_ + "/job";
    fs::create_directory(files_.directory);
    fs::create_directory(root_ + "/meeting");
    launch_.job = JobId(7);
    launch_.name = "test";
    launch_.token = "token of job 7";
    launch_.generation = Generation(3);
    launch_.slots = {"0.0", "1.2"};
    launch_.node_gpus = {4, 4};
    launch_.most = 8;
    launch_.command = {fs::read_symlink("/proc/self/exe").string()};
    launch_.env = {{"MEETING", root_ + "/meeting"}, {"MINE", "yes"}};
    launch_.directory = root_;
    launch_.grace = from_seconds(20);
  }

  void TearDown() override {
    if (master_ > 0) {
      kill(master_, SIGKILL);
      waitpid(master_, nullptr, 0);
    }
    kill_workers();
    fs::remove_all(root_);
  }

  // In a process of its own, as it takes the signals of its process.
  void start() {
    ASSERT_TRUE(write_json_file(files_.launch(), to_json(launch_)).ok());
    std::fflush(nullptr);
    master_ = fork();
    if (master_ != 0) return;
    alarm(600);
    setsid();
    auto master = Master::open(files_.directory, {"PATH=/usr/bin:/bin", "RUBATO_CHECKPOINT=no"},
                               machine_gpus_);
    if (!master) std::_Exit(2);
    const int code = (*master)->run();
    master->reset();
    std::_Exit(code);
  }

  // The exit code of one more for the same job.
  int fork_second() {
    const pid_t first = master_;
    start();
    const int code = wait();
    master_ = first;
    return code;
  }

  // Its exit code.
  int wait() {
    int status = 0;
    waitpid(std::exchange(master_, 0), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

  [[nodiscard]] Manager manage() const { return {files_, launch_.token}; }
  [[nodiscard]] std::vector<WorkerRecord> workers() const { return read_workers(files_).value(); }
  void kill_workers() const {
    const auto named = read_workers(files_);
    if (!named) return;
    for (const WorkerRecord& worker : *named) {
      if (lives(worker.process)) kill(worker.process.pid, SIGKILL);
    }
  }
  [[nodiscard]] std::string log() const { return content_of(files_.log()); }
  [[nodiscard]] JobExit exit() const { return read_exit(files_).value().value(); }

  std::string root_;
  JobFiles files_;
  JobLaunch launch_;
  int machine_gpus_ = 8;
  pid_t master_ = 0;
};

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

using Slots = std::vector<Slot>;

TEST_F(MasterTest, StartsInItsSlotsAndStops) {
  launch_.batch = Batch{16, 1};
  start();
  Manager manager = manage();
  ASSERT_TRUE(manager.until_running(3)) << log();
  EXPECT_EQ(manager.last.in_use, (Slots{"0.0", "1.2"}));
  EXPECT_EQ(manager.last.job, JobId(7));
  const auto named = workers();
  ASSERT_EQ(named.size(), 2U);
  EXPECT_EQ(named[1].slot, "1.2");
  EXPECT_TRUE(lives(named[0].process) && lives(named[1].process));
  EXPECT_EQ(read_master(files_).value()->pid, master_);
  ASSERT_TRUE(manager.until([](const JobStatus& s) { return s.progress.step_rate > 0; }));
  EXPECT_EQ(manager.last.progress.workers, 2);
  EXPECT_EQ(manager.last.progress.loss, 0.5);
  EXPECT_GT(manager.last.progress.rate, 0);

  manager.say(StopJob{Generation(4)});
  ASSERT_TRUE(manager.until_ended()) << log();
  EXPECT_EQ(manager.last.ended->how, JobEnd::How::stopped) << log();
  EXPECT_EQ(manager.last.generation, Generation(4));
  EXPECT_TRUE(manager.last.in_use.empty());
  EXPECT_FALSE(manager.last.running);
  EXPECT_EQ(exit().end, *manager.last.ended) << "written before anybody is told";
  EXPECT_EQ(exit().generation, Generation(4));
  EXPECT_EQ(wait(), 128 + SIGTERM);
  EXPECT_TRUE(workers().empty());
  EXPECT_FALSE(fs::exists(files_.socket()));
  const std::string place = fs::path(root_).filename().string();
  EXPECT_TRUE(has(log(),
                  "[1] here slot=0.0 gpu=0 job=7 start=3 checkpoint=checkpoint mine=yes "
                  "batch=16,1 in=" +
                      place + "\n"))
      << log();
  EXPECT_TRUE(has(log(), "[2] here slot=1.2 gpu=6 job=7")) << log();
  EXPECT_TRUE(has(content_of(files_.events()), "\"event\":\"start\""));
}

TEST_F(MasterTest, GoesWhereItIsPlaced) {
  start();
  Manager manager = manage();
  ASSERT_TRUE(manager.until_running(3)) << log();
  manager.all.clear();
  manager.say(Place{Generation(5), {"1.2", "0.3", "0.1"}, std::nullopt});
  ASSERT_TRUE(manager.until_running(5)) << log();
  EXPECT_EQ(manager.last.in_use, (Slots{"0.1", "0.3", "1.2"}));
  bool overlapped = false;
  for (const JobStatus& status : manager.all) {
    const auto uses = [&](const char* slot) {
      return std::count(status.in_use.begin(), status.in_use.end(), slot) > 0;
    };
    overlapped |= uses("0.0") && (uses("0.1") || uses("0.3"));
    EXPECT_TRUE(uses("1.2")) << "who stays is not touched";
    if (status.generation == Generation(5) && status.running) {
      EXPECT_FALSE(uses("0.0")) << "in use until it has been collected";
    }
  }
  EXPECT_TRUE(overlapped) << "it goes on training while others join";

  manager.say(Place{Generation(4), {"0.0"}, std::nullopt});
  manager.say(StopJob{Generation(5)});
  manager.say(Place{Generation(6), {"1.2"}, std::nullopt});
  manager.all.clear();
  ASSERT_TRUE(manager.until_running(6)) << log();
  EXPECT_EQ(manager.last.in_use, (Slots{"1.2"}));
  EXPECT_EQ(manager.last.failures, 0);
  EXPECT_EQ(manager.last.resizes, 2);
  EXPECT_EQ(manager.last.pauses.size(), 2U);
  for (const JobStatus& status : manager.all) {
    EXPECT_NE(status.generation, Generation(4)) << "an older generation is ignored";
    EXPECT_FALSE(status.ended.has_value());
  }

  std::ofstream(root_ + "/meeting/finish") << "now\n";
  ASSERT_TRUE(manager.until_ended());
  ASSERT_TRUE(manager.last.ended && manager.last.ended->at);
  EXPECT_LE(*manager.last.ended->at, std::chrono::system_clock::now());
  EXPECT_GT(*manager.last.ended->at, std::chrono::system_clock::now() - std::chrono::minutes(1));
  EXPECT_EQ(manager.last.ended,
            (JobEnd{JobEnd::How::finished, 0, "", false, manager.last.ended->at}));
  EXPECT_EQ(wait(), 0);
  EXPECT_EQ(exit().resizes, 2);
  EXPECT_EQ(exit().end, manager.last.ended);
}

TEST_F(MasterTest, IsKilledAtOnce) {
  start();
  Manager manager = manage();
  ASSERT_TRUE(manager.until_running(3)) << log();
  const auto named = workers();
  manager.say(KillJob{});
  ASSERT_TRUE(manager.until_ended());
  ASSERT_TRUE(manager.last.ended);
  EXPECT_EQ(*manager.last.ended,
            (JobEnd{JobEnd::How::failed, 128 + SIGKILL, "killed", false, manager.last.ended->at}));
  EXPECT_EQ(wait(), 128 + SIGKILL);
  for (const WorkerRecord& worker : named) EXPECT_FALSE(lives(worker.process));
}

TEST_F(MasterTest, ReplacesADeadWorkerInItsSlot) {
  start();
  Manager manager = manage();
  ASSERT_TRUE(manager.until_running(3)) << log();
  const WorkerRecord victim = workers().at(1);
  kill(victim.process.pid, SIGKILL);
  ASSERT_TRUE(manager.until([](const JobStatus& s) { return s.failures == 1 && s.running; }))
      << log();
  EXPECT_EQ(manager.last.in_use, (Slots{"0.0", "1.2"}));
  EXPECT_EQ(manager.last.resizes, 0);
  const WorkerRecord other = workers().at(1);
  EXPECT_EQ(other.slot, victim.slot);
  EXPECT_NE(other.uid, victim.uid);
}

TEST_F(MasterTest, FailsWithTooManyFailures) {
  launch_.max_failures = 0;
  start();
  Manager manager = manage();
  ASSERT_TRUE(manager.until_running(3)) << log();
  kill(workers().at(1).process.pid, SIGKILL);
  ASSERT_TRUE(manager.until_ended());
  EXPECT_EQ(manager.last.ended->how, JobEnd::How::failed);
  EXPECT_EQ(manager.last.ended->why,
            "worker 2 was killed by signal 9 (Killed), failure 1 of at most 0");
  EXPECT_EQ(manager.last.failures, 1);
  EXPECT_EQ(wait(), 1);
}

TEST_F(MasterTest, LeavesItsWorkersNamedWhenItIsKilled) {
  start();
  {
    Manager manager = manage();
    ASSERT_TRUE(manager.until_running(3)) << log();
  }
  EXPECT_EQ(fork_second(), 2) << "a second master is refused while one lives";
  kill(master_, SIGKILL);
  EXPECT_EQ(wait(), -SIGKILL);
  const auto named = workers();
  ASSERT_EQ(named.size(), 2U);
  for (const WorkerRecord& worker : named) EXPECT_TRUE(lives(worker.process)) << worker.uid;
  EXPECT_EQ(read_exit(files_).value(), std::nullopt);
  EXPECT_FALSE(lives(*read_master(files_).value()));
  kill_workers();

  // A newer start takes its place.
  fs::remove_all(root_ + "/meeting");
  fs::create_directory(root_ + "/meeting");
  launch_.generation = Generation(8);
  launch_.slots = {"0.1"};
  start();
  Manager manager = manage();
  ASSERT_TRUE(manager.until_running(8)) << log();
  EXPECT_EQ(manager.last.in_use, (Slots{"0.1"}));
}

TEST_F(MasterTest, TellsEveryManagerAtOnce) {
  start();
  Manager first = manage();
  ASSERT_TRUE(first.until_running(3)) << log();
  Manager second = manage();
  ASSERT_TRUE(second.until([](const JobStatus&) { return true; }));
  EXPECT_TRUE(second.last.running) << "the whole status, without a change";
  EXPECT_EQ(second.last.in_use, (Slots{"0.0", "1.2"}));
  first.say(Place{Generation(4), {"0.0"}, std::nullopt});
  ASSERT_TRUE(second.until_running(4));
  second.say(StopJob{Generation(9)});
  ASSERT_TRUE(first.until_ended());
  ASSERT_TRUE(second.until_ended());
  EXPECT_EQ(first.last.ended, second.last.ended);
  EXPECT_EQ(first.last.generation, Generation(9));
}

TEST_F(MasterTest, HangsUpOnStrangers) {
  start();
  Manager manager = manage();
  ASSERT_TRUE(manager.until_running(3)) << log();
  Manager stranger(files_, "wrong");
  stranger.say(KillJob{});
  EXPECT_TRUE(stranger.hung_up());
  EXPECT_TRUE(stranger.all.empty());
  Manager late = manage();
  EXPECT_TRUE(late.until_running(3)) << "nobody obeyed";
}

TEST_F(MasterTest, HandsSecretsToWorkersAlone) {
  const std::string secret = "tell-nobody-4711";
  std::ofstream(root_ + "/key") << secret;
  launch_.secrets = {{"KEY", root_ + "/key"}};
  start();
  Manager manager = manage();
  ASSERT_TRUE(manager.until_running(3)) << log();
  EXPECT_EQ(content_of(root_ + "/meeting/key-seen"), secret);
  const std::string path = content_of(root_ + "/meeting/key-path");
  struct stat there {};
  ASSERT_EQ(stat(path.c_str(), &there), 0) << path;
  EXPECT_EQ(there.st_mode & 0777U, 0600U);
  manager.say(StopJob{Generation(4)});
  ASSERT_TRUE(manager.until_ended());
  EXPECT_FALSE(fs::exists(path));
  EXPECT_FALSE(fs::exists(fs::path(path).parent_path()));
  wait();
  for (const auto& entry : fs::recursive_directory_iterator(files_.directory)) {
    if (entry.is_regular_file()) {
      EXPECT_FALSE(has(content_of(entry.path().string()), secret)) << entry.path();
    }
  }
}

TEST_F(MasterTest, WhatCannotBeLaunchedSaysWhy) {
  launch_.secrets = {{"KEY", root_ + "/no-such-file"}};
  start();
  EXPECT_EQ(wait(), 2);
  EXPECT_EQ(exit().end.how, JobEnd::How::failed);
  EXPECT_TRUE(has(exit().end.why, "the secret \"KEY\": cannot read")) << exit().end.why;
  EXPECT_FALSE(fs::exists(files_.socket()));

  start();
  EXPECT_EQ(wait(), 2) << "this start has come to its end";
  launch_.generation = Generation(4);
  launch_.secrets.clear();
  launch_.command = {"no-such-program"};
  start();
  EXPECT_EQ(wait(), 2);
  EXPECT_EQ(exit().generation, Generation(4));
  EXPECT_TRUE(has(exit().end.why, "cannot start \"no-such-program\"")) << exit().end.why;
  EXPECT_FALSE(exit().end.infrastructure) << "the job's own fault";

  launch_.generation = Generation(5);
  launch_.directory = root_ + "/nowhere";
  start();
  EXPECT_EQ(wait(), 2);
  EXPECT_TRUE(has(exit().end.why, "the working directory")) << exit().end.why;
  EXPECT_FALSE(exit().end.infrastructure);

  launch_.generation = Generation(6);
  launch_.directory.clear();
  fs::remove(files_.log());
  fs::create_directory(files_.log());
  start();
  EXPECT_EQ(wait(), 2);
  EXPECT_TRUE(exit().end.infrastructure) << "its log cannot be written: " << exit().end.why;
}

TEST_F(MasterTest, KeepsTheTailOfALongLog) {
  launch_.live = false;
  launch_.log_limit = 20'000;
  launch_.slots = {"0.0"};
  launch_.command = {"sh", "-c", "seq 1 100000; echo the last line"};
  start();
  EXPECT_EQ(wait(), 0);
  EXPECT_LE(fs::file_size(files_.log()), 20'000U);
  EXPECT_TRUE(has(log(), "rubato: older lines were dropped"));
  EXPECT_TRUE(has(log(), "[1] the last line\nrubato: finished\n")) << log();
  EXPECT_EQ(exit().end.how, JobEnd::How::finished);
}

TEST_F(MasterTest, StartsOtherProgramsAgainInTheirNewSlots) {
  launch_.live = false;
  launch_.slots = {"0.1", "0.3"};
  launch_.command = {"sh", "-c",
                     "echo $RANK/$WORLD_SIZE slot=$RUBATO_SLOT gpus=$CUDA_VISIBLE_DEVICES; "
                     "exec sleep 1000"};
  start();
  Manager manager = manage();
  ASSERT_TRUE(manager.until_running(3)) << log();
  EXPECT_EQ(manager.last.in_use, (Slots{"0.1", "0.3"}));
  manager.say(Place{Generation(4), {"0.3", "0.0", "1.1"}, std::nullopt});
  ASSERT_TRUE(manager.until_running(4)) << log();
  EXPECT_EQ(manager.last.in_use, (Slots{"0.0", "0.3", "1.1"}));
  EXPECT_EQ(manager.last.failures, 0);
  EXPECT_EQ(manager.last.pauses.size(), 1U);
  // What they print arrives after they run.
  const auto until = Clock::now() + kPatience;
  while (!has(log(), "2/3 slot=1.1 gpus=3,0,5") && Clock::now() < until) usleep(20'000);
  EXPECT_TRUE(has(log(), "0/2 slot=0.1 gpus=1,3")) << log();
  EXPECT_TRUE(has(log(), "2/3 slot=1.1 gpus=3,0,5")) << log();
  manager.say(StopJob{Generation(5)});
  ASSERT_TRUE(manager.until_ended());
  EXPECT_EQ(manager.last.ended->how, JobEnd::How::stopped);
}

// --- programs that say no Hello ---

TEST_F(MasterTest, AProgramThatSaysNothingRunsOnce) {
  launch_.command = {"/bin/sh", "-c",
                     "echo $RUBATO_SLOT >>runs; while [ ! -e go ]; do sleep 0.05; done"};
  launch_.slots = {"0.1", "0.2", "1.0", "1.2"};
  start();
  Manager manager = manage();
  ASSERT_TRUE(manager.until([](const JobStatus& s) { return !s.in_use.empty(); })) << log();
  std::ofstream(root_ + "/go") << "go";
  ASSERT_TRUE(manager.until_ended()) << log();
  EXPECT_EQ(manager.last.ended->how, JobEnd::How::finished);
  EXPECT_TRUE(manager.last.silent);
  EXPECT_EQ(content_of(root_ + "/runs"), "0.1\n");
  EXPECT_TRUE(has(log(), "runs as one process on one GPU")) << log();
  EXPECT_EQ(wait(), 0);
}

TEST_F(MasterTest, AProgramThatStaysSilentKeepsItsOneProcess) {
  launch_.command = {"/bin/sh", "-c", "echo $RUBATO_SLOT >>runs; exec sleep 1000"};
  launch_.hello = from_seconds(0.3);
  start();
  Manager manager = manage();
  ASSERT_TRUE(manager.until([](const JobStatus& status) { return status.silent; })) << log();
  EXPECT_EQ(manager.last.in_use, (Slots{"0.0"}));
  EXPECT_FALSE(manager.last.running) << "it was given two";
  manager.say(Place{Generation(4), {"0.0"}, std::nullopt});
  ASSERT_TRUE(manager.until_running(4)) << log();
  manager.say(Place{Generation(5), {"1.3"}, std::nullopt});
  ASSERT_TRUE(manager.until_running(5)) << log();
  EXPECT_EQ(manager.last.in_use, (Slots{"1.3"}));
  EXPECT_EQ(manager.last.failures, 0);
  // It runs from its start on; what it writes comes a little later.
  const std::string runs = "0.0\n1.3\n";
  const auto until = Clock::now() + kPatience;
  while (content_of(root_ + "/runs") != runs && Clock::now() < until) usleep(10'000);
  EXPECT_EQ(content_of(root_ + "/runs"), runs) << "a move starts it again";
  manager.say(StopJob{Generation(6)});
  ASSERT_TRUE(manager.until_ended());
  EXPECT_EQ(manager.last.ended->how, JobEnd::How::stopped);
}

// --- what workers leave behind ---

// A process that leads its own session and has no variable of the job; its pid is in `file`.
std::string escape_to(const std::string& file) {
  return fmt::format("env -i setsid sleep 1000 & echo $! >{0}.part; mv {0}.part {0}; ", file);
}

ProcessName named_in(const std::string& file) {
  const auto until = Clock::now() + kPatience;
  while (!fs::exists(file) && Clock::now() < until) usleep(10'000);
  const int pid = static_cast<int>(parse_integer(trim(content_of(file))).value_or(0));
  return {pid, wire::start_time_of(pid)};
}

TEST_F(MasterTest, WhatHasEscapedItsWorkerIsGoneBeforeTheEndIsTold) {
  for (const bool live : {false, true}) {
    launch_.live = live;
    launch_.slots = {"0.0"};
    launch_.command = {"/bin/sh", "-c", escape_to("escaped") + "sleep 1000"};
    start();
    Manager manager = manage();
    const ProcessName escaped = named_in(root_ + "/escaped");
    ASSERT_TRUE(lives(escaped));
    manager.say(StopJob{launch_.generation.next()});
    ASSERT_TRUE(manager.until([](const JobStatus& status) { return status.in_use.empty(); }));
    EXPECT_FALSE(lives(escaped)) << "a slot is free when nothing is left";
    wait();
    fs::remove(root_ + "/escaped");
    launch_.generation = Generation(launch_.generation.value() + 10);
  }
}

// What says by its environment that it is of a worker that lives is spared.
TEST_F(MasterTest, WhatIsLeftOfAWorkerGoesWithItAndNotWithAnother) {
  launch_.live = false;
  launch_.command = {"/bin/sh", "-c",
                     "(setsid sleep 1000 & echo $! >left$RANK.part; mv left$RANK.part left$RANK); "
                     "if [ $RANK = 0 ]; then while [ ! -e go ]; do sleep 0.05; done; exit 0; fi; "
                     "sleep 1000"};
  start();
  Manager manager = manage();
  const ProcessName first = named_in(root_ + "/left0");
  const ProcessName second = named_in(root_ + "/left1");
  ASSERT_TRUE(lives(first) && lives(second));
  std::ofstream(root_ + "/go") << "go";
  ASSERT_TRUE(manager.until([](const JobStatus& s) { return s.in_use == Slots{"1.2"}; })) << log();
  EXPECT_FALSE(lives(first));
  EXPECT_TRUE(lives(second)) << "its worker lives";
  manager.say(KillJob{});
  ASSERT_TRUE(manager.until_ended());
  EXPECT_FALSE(lives(second));
}

TEST_F(MasterTest, SaysNothingOfGpusWhereThereAreNone) {
  machine_gpus_ = 0;
  launch_.live = false;
  launch_.slots = {"0.0"};
  launch_.command = {"sh", "-c", "echo gpus=${CUDA_VISIBLE_DEVICES-none}"};
  start();
  EXPECT_EQ(wait(), 0);
  EXPECT_TRUE(has(log(), "gpus=none\n")) << log();
}

TEST_F(MasterTest, StopsByItselfIfNobodyManagesIt) {
  launch_.stop_after = from_seconds(3);
  start();
  {
    Manager manager = manage();
    ASSERT_TRUE(manager.until_running(3)) << log();
    // As long as somebody is there it goes on.
    const auto until = Clock::now() + std::chrono::seconds(4);
    manager.until([&](const JobStatus& s) { return s.ended || Clock::now() > until; });
    EXPECT_FALSE(manager.last.ended.has_value());
  }
  EXPECT_EQ(wait(), 128 + SIGTERM);
  EXPECT_EQ(exit().end.how, JobEnd::How::stopped);
  EXPECT_EQ(exit().end.why, "stopped by itself: nobody has managed it for 3 s");
  EXPECT_EQ(exit().generation, Generation(3));
}

TEST_F(MasterTest, IsNotAloneBeforeItsFirstManagerCouldCome) {
  launch_.stop_after = from_seconds(0.1);
  start();
  const auto until = Clock::now() + kPatience;
  while (!fs::exists(files_.workers()) && Clock::now() < until) usleep(10'000);
  usleep(500'000);
  Manager manager = manage();
  EXPECT_TRUE(manager.until_running(3)) << log();
}

TEST_F(MasterTest, IsStoppedByASignalAsByItsManager) {
  start();
  Manager manager = manage();
  ASSERT_TRUE(manager.until_running(3)) << log();
  kill(master_, SIGTERM);
  ASSERT_TRUE(manager.until_ended());
  EXPECT_EQ(manager.last.ended->how, JobEnd::How::stopped);
  EXPECT_EQ(manager.last.failures, 0);
}

}  // namespace
}  // namespace rubato::node
