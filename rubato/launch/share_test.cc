// The share is a process of the real program. The test is its master, and reads only when it wants.
#include "rubato/launch/share.h"

#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <functional>
#include <gtest/gtest.h>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>
#include <variant>

#include "rubato/base/testing.h"
#include "rubato/base/testing_seeds.h"
#include "rubato/launch/process.h"

namespace rubato::launch {
namespace {

constexpr auto kMostPatience = std::chrono::seconds(120);
constexpr std::string_view kJobSecret = "the job's secret";

struct SlowMaster {
  SlowMaster() : listener(std::move(wire::listen_on("tcp:127.0.0.1:0").value())) {
    // The kernel should not hold much of what nobody reads.
    const int bytes = 1 << 18;
    EXPECT_EQ(setsockopt(listener.get(), SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes), 0);
    config.master = wire::address_of(listener).value();
    config.identity = wire::share_identity("job", 0, "a");
    config.name = "a";
    config.secret = wire::secret_of_share(kJobSecret, config.identity);
    SpawnOptions options;
    options.input = to_json(config).dump() + "\n";
    share = std::move(spawn({rubato_program(), "share"}, own_environment(), options).value());
  }
  SlowMaster(const SlowMaster&) = delete;
  SlowMaster& operator=(const SlowMaster&) = delete;
  ~SlowMaster() {
    if (share_end) return;
    send_signal(share, SIGKILL);
    waitpid(share.pid, nullptr, 0);
  }

  void say(const ToShare& message) { stream.send(to_json(message)); }
  void start(const std::string& script) {
    ShareStart message{{1, 1, 1}, {}, wire::key_of_round(kJobSecret, "job", 0, 1)};
    message.start.command = {"sh", "-c", script};
    message.start.environment = {"PATH=/usr/bin:/bin"};
    say(message);
  }

  // Reads nothing meanwhile. The share hears beats, so it keeps the connection.
  void wait_until(const std::function<bool()>& so) {
    const auto until = std::chrono::steady_clock::now() + kMostPatience;
    while (!so()) {
      if (std::chrono::steady_clock::now() > until) throw std::runtime_error("waited in vain");
      if (stream.open()) say(ShareBeat{});
      usleep(10'000);
    }
  }
  void read_until(const std::function<bool()>& so) {
    wait_until([&] {
      if (!stream.open()) accept();
      for (const Json& json : stream.receive()) hear(parse_from_share(json).value());
      return so();
    });
  }

  void accept() {
    wire::Fd fd = wire::accept_from(listener);
    if (!fd.valid()) return;
    const wire::LinkKey key = wire::share_key(config.identity, config.secret);
    stream = wire::FrameStream(wire::Link(std::move(fd), [key](std::string_view identity) {
      return identity == key.identity ? std::optional(key) : std::nullopt;
    }));
  }
  void hear(const FromShare& message) {
    if (const auto* said = std::get_if<ShareStatus>(&message)) status = *said;
    if (const auto* said = std::get_if<ShareStarted>(&message)) worker = said->process;
    const auto* output = std::get_if<ShareOutput>(&message);
    if (output == nullptr) return;
    if (output->line.ends_with(" lines of output are left out here)")) {
      left_out += std::strtoll(output->line.c_str() + 1, nullptr, 10);
    } else {
      ++lines;
      last_line = output->line;
    }
  }

  wire::Fd listener;
  ShareConfig config;
  Process share;
  std::optional<ProcessEnd> share_end;
  wire::FrameStream stream;
  // What the share has said.
  std::optional<ShareStatus> status;
  std::optional<ProcessName> worker;
  std::int64_t lines = 0;
  std::int64_t left_out = 0;
  std::string last_line;
};

// In bytes, since it began.
std::int64_t most_memory_of(int pid) {
  std::ifstream status(fmt::format("/proc/{}/status", pid));
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return 1024 * std::strtoll(line.c_str() + 6, nullptr, 10);
  }
  throw std::runtime_error("the kernel does not say how much memory a process had");
}

// 200 MB, in two parts. The worker does not wait for its master, the share keeps little of it, the
// master can count what is left out, and the last lines arrive: of the first part though the worker
// says nothing more, of the second one though it has ended.
TEST(Share, BoundsTheOutputOfAWorkerWhoseMasterIsSlow) {
  const auto lines = static_cast<std::int64_t>(tries(1'000'000));  // of each part
  std::string directory = (std::filesystem::temp_directory_path() / "rubato-XXXXXX").string();
  ASSERT_NE(mkdtemp(directory.data()), nullptr);
  SlowMaster master;
  master.read_until([&] { return master.status.has_value(); });
  const std::int64_t before = most_memory_of(master.share.pid);
  master.start(fmt::format(R"(
      await() {{ until [ -e {0}/$1 ]; do sleep 0.02; done; }}
      print() {{ yes $(printf %099d 7) | head -n {1}; echo $1; }}
      await one; print first; : >{0}/printed; await two; print second)",
                           directory, lines));
  master.read_until([&] { return master.worker.has_value(); });

  std::ofstream(directory + "/one").close();
  master.wait_until([&] { return std::filesystem::exists(directory + "/printed"); });
  master.read_until([&] { return master.last_line == "first"; });
  EXPECT_GT(master.left_out, 0);
  EXPECT_EQ(master.lines + master.left_out, lines + 1);

  std::ofstream(directory + "/two").close();
  const ProcessName worker = *master.worker;
  master.wait_until([&] { return wire::start_time_of(worker.pid) != worker.start_time; });
  const std::int64_t grown = most_memory_of(master.share.pid) - before;
  master.read_until([&] { return !master.status->hello.ended.empty(); });
  EXPECT_EQ(master.last_line, "second");
  EXPECT_EQ(master.lines + master.left_out, 2 * (lines + 1));
  EXPECT_LT(master.lines, lines);
  EXPECT_EQ(master.status->ends.at(1), (ProcessEnd{false, 0}));
  const bool sanitized = kTestPart > 1;  // then memory that was freed counts, too
  EXPECT_LT(grown, sanitized ? std::int64_t{1} << 40U : std::int64_t{32} << 20U);

  master.say(wire::EndsKept{1, {1}});
  master.say(ShareEnd{});
  master.wait_until([&] { return (master.share_end = reap(master.share)).has_value(); });
  EXPECT_EQ(*master.share_end, (ProcessEnd{false, 0}));
  std::filesystem::remove_all(directory);
}

}  // namespace
}  // namespace rubato::launch
