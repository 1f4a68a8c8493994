// Tests the launcher with real processes. This test binary starts itself as small workers that
// speak wire/launch.h and train nothing.
#include "rubato/launch/terminal_run.h"

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <gtest/gtest.h>
#include <map>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rubato/base/text.h"

namespace rubato::launch {
namespace {

// --- the worker ----------------------------------------------------------------------------------

class FakeWorker {
 public:
  FakeWorker() : stream_(std::move(wire::connect_to(std::getenv("RUBATO_LAUNCHER")).value())) {
    uid_ = parse_integer(std::getenv("RUBATO_WORKER")).value();
    wire::Hello hello;
    hello.uid = uid_;
    hello.token = std::getenv("RUBATO_TOKEN");
    hello.pid = getpid();
    hello.address = "unix:nowhere";
    if (scene() == "forged") hello.token = "wrong";
    stream_.send(wire::to_json(wire::FromWorker(hello)));
    if (scene() == "forged") {
      while (stream_.open()) turn();  // the launcher must close the connection
      std::_Exit(wire::kRefused);
    }
    while (plan_.number == 0) turn();
  }

  void play() {
    print();
    // The joining worker ends the run, so that both have taken part.
    while (scene() == "plain" && founder_ && !stopped_) turn();
    if (scene() == "grow") grow();
    if (scene() == "die") die();
    if (scene() == "silent" && uid_ == 1) pause();
    if (scene() == "stop") stop();
    if (scene() == "stranded") stranded();
    finish(3);
  }

 private:
  static std::string scene() { return std::getenv("SCENE"); }

  void print() const {
    const bool niced = std::getenv("RUBATO_NICED") != nullptr;
    fmt::print("worker {} {}{}\n", uid_, founder_ ? "founds" : "joins", niced ? " niced" : "");
    std::fflush(stdout);
  }

  // 1 -> 3 by request. The new workers train, too. Then all but one leave, and it finishes.
  void grow() {
    if (uid_ != 1) leave_when_told();
    ask({{"type", "resize"}, {"to", "+2"}});
    until(3);
    wait(0.3);
    ask({{"type", "resize"}, {"to", "1"}});
    until(1);
  }

  // The plan that accepts it and the plan without it may arrive together.
  [[noreturn]] void leave_when_told() {
    while (!joined_ || named(uid_)) turn();
    std::_Exit(wire::kLeft);
  }

  // The newest worker is killed by a request, and a worker with another number replaces it.
  void die() {
    until(2);
    if (uid_ == 2) {
      ask({{"type", "kill"}});
      pause();
    }
    while (!named(3)) turn();
    if (uid_ == 1) wait(0.3);
  }

  void stop() {
    if (uid_ == 1) kill(getppid(), SIGTERM);
    while (!stopped_) turn();
    fmt::print("worker {} stops\n", uid_);
    std::fflush(stdout);
    std::_Exit(wire::kFinished);
  }

  void stranded() {
    if (uid_ > 1) return;
    stream_.send(wire::to_json(wire::FromWorker(wire::Notice{"stranded", Json::object()})));
    while (true) turn();
  }

  [[noreturn]] void finish(int steps) {
    for (int step = 1; step <= steps; ++step) {
      stream_.send(wire::to_json(wire::FromWorker(wire::Report{
          {{"step", step}, {"loss", 1.0 / step}, {"workers", plan_.workers.size()}}})));
      turn();
    }
    stream_.send(wire::to_json(wire::FromWorker(wire::Notice{"finished", {{"step", steps}}})));
    std::_Exit(wire::kFinished);
  }

  // Sends one beat and handles what has arrived.
  void turn() {
    pollfd asked{stream_.fd(), POLLIN, 0};
    poll(&asked, 1, 50);
    if (plan_.number > 0) stream_.send(wire::to_json(wire::FromWorker(wire::Beat{1})));
    for (const Json& json : stream_.receive()) {
      const auto message = wire::parse_from_launcher(json);
      if (!message) std::_Exit(99);
      if (const auto* welcome = std::get_if<wire::Welcome>(&*message)) {
        plan_ = welcome->plan;
        founder_ = welcome->founder;
      } else if (const auto* plan = std::get_if<wire::MembershipPlan>(&*message)) {
        plan_ = *plan;
      } else {
        stopped_ = true;
      }
      joined_ |= named(uid_);
    }
  }

  void until(std::size_t workers) {
    while (plan_.workers.size() != workers && !stopped_) turn();
  }
  void wait(double seconds) {
    for (double passed = 0; passed < seconds; passed += 0.05) {
      turn();
      usleep(50'000);
    }
  }
  [[nodiscard]] bool named(Uid uid) const {
    return std::find(plan_.workers.begin(), plan_.workers.end(), uid) != plan_.workers.end();
  }
  static void ask(const Json& request) {
    const std::string address = std::getenv("RUBATO_LAUNCHER");
    if (!ask_run(address.substr(5), request)) std::_Exit(98);
  }

  wire::FrameStream stream_;
  Uid uid_ = 0;
  wire::MembershipPlan plan_;
  bool founder_ = false;
  bool joined_ = false;
  bool stopped_ = false;
};

// Runs before main: this process is a worker if a launcher started it.
[[maybe_unused]] const bool kIsTest = [] {
  const bool managed = std::getenv("RUBATO_JOB") != nullptr;  // managed_run_test.cc
  if (std::getenv("RUBATO_WORKER") != nullptr && !managed) FakeWorker().play();
  return true;
}();

// --- the launcher --------------------------------------------------------------------------------

struct Played {
  int code = -1;
  Json summary;
  std::string err;
  std::vector<Json> log;

  [[nodiscard]] int count(const std::string& event) const {
    int number = 0;
    for (const Json& line : log) number += line["event"] == event ? 1 : 0;
    return number;
  }
};

std::string content_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// In its own process, because a launcher takes over the signals and the output of its process.
Played play(const std::string& scene, LaunchLimits limits,
            std::vector<std::string> command = {"/proc/self/exe"}) {
  std::string pattern = (std::filesystem::temp_directory_path() / "rubato-XXXXXX").string();
  const std::string root = mkdtemp(pattern.data());
  TerminalOptions options;
  options.spec.limits = limits;
  options.spec.name = "test";
  options.spec.command = std::move(command);
  if (options.spec.command.front() == "/proc/self/exe") {
    options.spec.command.front() = std::filesystem::read_symlink("/proc/self/exe").string();
  }
  options.spec.environment = {"PATH=/usr/bin:/bin", "SCENE=" + scene};
  options.directory = root + "/runs";
  options.log = root + "/log";
  options.json = true;
  std::fflush(nullptr);
  const pid_t pid = fork();
  if (pid == 0) {
    alarm(300);
    if (std::freopen((root + "/out").c_str(), "w", stdout) == nullptr ||
        std::freopen((root + "/err").c_str(), "w", stderr) == nullptr) {
      std::_Exit(97);
    }
    auto launcher = TerminalRun::open(options);
    if (!launcher) std::_Exit(96);
    const int code = (*launcher)->run();
    launcher->reset();
    std::_Exit(code);
  }
  Played played;
  int status = 0;
  waitpid(pid, &status, 0);
  played.code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  played.summary = Json::parse(content_of(root + "/out"), nullptr, false);
  played.err = content_of(root + "/err");
  std::ifstream log(root + "/log");
  for (std::string line; std::getline(log, line);) played.log.push_back(Json::parse(line));
  EXPECT_TRUE(std::filesystem::is_empty(root + "/runs")) << "a socket is left behind";
  std::filesystem::remove_all(root);
  return played;
}

// By default no worker is silent for so long, however slow this machine is.
LaunchLimits limits(int start, double heartbeat = 60) {
  LaunchLimits result;
  result.most = 4;
  result.start = start;
  result.heartbeat = from_seconds(heartbeat);
  return result;
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(Launcher, RunsAJobToItsEnd) {
  const Played played = play("plain", limits(2));
  EXPECT_EQ(played.code, 0) << played.err;
  // Either worker may be first.
  EXPECT_NE(has(played.err, "[1] worker 1 founds"), has(played.err, "[1] worker 1 joins"))
      << played.err;
  EXPECT_EQ(has(played.err, "[1] worker 1 founds"), has(played.err, "[2] worker 2 joins"))
      << played.err;
  EXPECT_EQ(has(played.err, "[1] worker 1 joins"), has(played.err, "[2] worker 2 founds"))
      << played.err;
  EXPECT_EQ(has(played.err, "niced"), may_undo_nice()) << played.err;
  EXPECT_EQ(played.summary["step"], 3);
  EXPECT_EQ(played.summary["failures"], 0);
  EXPECT_EQ(played.count("start"), 2);
  EXPECT_EQ(played.count("exit"), 2);
  EXPECT_EQ(played.count("report"), 3) << "each step once, though both workers told of it";
  EXPECT_GT(played.log.front()["time"].get<double>(), 1.7e9);
}

TEST(Launcher, GrowsAndShrinksByRequest) {
  const Played played = play("grow", limits(1));
  EXPECT_EQ(played.code, 0) << played.err;
  EXPECT_EQ(played.summary["resizes"], 2);
  EXPECT_EQ(played.summary["failures"], 0) << played.err;
  EXPECT_EQ(played.summary["starts"], 3);
}

TEST(Launcher, ReplacesAKilledWorker) {
  const Played played = play("die", limits(2));
  EXPECT_EQ(played.code, 0) << played.err;
  EXPECT_EQ(played.summary["failures"], 1);
  EXPECT_EQ(played.summary["resizes"], 0);
  EXPECT_TRUE(has(played.err, "worker 2 was killed by signal 9 (Killed); worker 3 replaces it"))
      << played.err;
}

TEST(Launcher, KillsWhoIsSilentAndStartsOver) {
  const Played played = play("silent", limits(1, 2));
  EXPECT_EQ(played.code, 0) << played.err;
  EXPECT_TRUE(has(played.err, "worker 1 is killed: no sign of life for 2 s")) << played.err;
  EXPECT_TRUE(has(played.err, "worker 2 founds")) << played.err;
  EXPECT_EQ(played.summary["failures"], 1);
  EXPECT_EQ(played.summary["fresh_starts"], 1);
}

TEST(Launcher, StartsOverWhenStranded) {
  const Played played = play("stranded", limits(1));
  EXPECT_EQ(played.code, 0) << played.err;
  EXPECT_TRUE(has(played.err, "worker 2 founds")) << played.err;
  EXPECT_EQ(played.summary["failures"], 1);
}

TEST(Launcher, StopsAtASignal) {
  const Played played = play("stop", limits(2));
  EXPECT_EQ(played.code, 128 + SIGTERM) << played.err;
  EXPECT_TRUE(has(played.err, "worker 1 stops")) << played.err;
  EXPECT_EQ(played.summary["finished"], false);
}

TEST(Launcher, HangsUpOnAWrongToken) {
  const Played played = play("forged", limits(1));
  EXPECT_EQ(played.code, 2) << played.err;
  EXPECT_EQ(played.count("hello"), 0);
}

TEST(Launcher, AProgramThatSaysNothingIsToldOfTheOtherMode) {
  const Played played = play("", limits(1), {"true"});
  EXPECT_EQ(played.code, 0);
  EXPECT_TRUE(has(played.err, "--mode restart")) << played.err;
}

TEST(Launcher, WhatItLeavesBehindIsGoneAtTheEnd) {
  const Played played = play("", limits(2), {"sh", "-c", "env -i setsid sleep 1000 & echo pid $!"});
  EXPECT_EQ(played.code, 0);
  EXPECT_EQ(played.summary["starts"], 1) << "it has said no Hello";
  const std::size_t at = played.err.find("pid ");
  ASSERT_NE(at, std::string::npos) << played.err;
  const auto pid = parse_integer(played.err.substr(at + 4, played.err.find('\n', at) - at - 4));
  ASSERT_TRUE(pid.has_value()) << played.err;
  EXPECT_NE(kill(static_cast<pid_t>(*pid), 0), 0);
}

TEST(Launcher, AProgramThatIsNotThere) {
  const Played played = play("", limits(3), {"no-such-program"});
  EXPECT_EQ(played.code, 2);
  EXPECT_TRUE(has(played.summary["why"], "cannot start \"no-such-program\""));
}

}  // namespace
}  // namespace rubato::launch
