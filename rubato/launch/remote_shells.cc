#include "rubato/launch/remote_shells.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <fmt/format.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

namespace rubato::launch {
namespace {

using namespace std::chrono_literals;

constexpr auto kEndWithin = 3s;

}  // namespace

RemoteShells::RemoteShells(wire::Poller& poller, HostsSpec spec,
                           std::function<void(const std::string&)> say)
    : poller_(poller), spec_(std::move(spec)), say_(std::move(say)) {}

RemoteShells::~RemoteShells() {
  for (auto& [name, shell] : shells_) {
    if (shell.ended) continue;
    send_signal(shell.process, SIGKILL);
    waitpid(shell.process.pid, nullptr, 0);
    for (const wire::Fd* fd : {&shell.process.ended, &shell.process.out, &shell.process.err}) {
      if (fd->valid()) poller_.remove(fd->get());
    }
  }
}

void RemoteShells::start(const ShareConfig& config) {
  if (shells_.contains(config.name)) return;
  Shell& shell = shells_[config.name];
  std::vector<std::string> command = spec_.remote_shell;
  command.insert(command.end(), {config.name, spec_.program, "share"});
  SpawnOptions options;
  options.input = to_json(config).dump() + "\n";
  auto process = spawn(command, own_environment(), options);
  if (!process) {
    shell.ended = true;
    say_(fmt::format("host {}: {}", config.name, process.error().message));
    return;
  }
  shell.process = std::move(*process);
  watch(config.name);
}

bool RemoteShells::over(const ShareName& share) const {
  const auto found = shells_.find(share);
  return found != shells_.end() && found->second.ended;
}

void RemoteShells::finish() {
  ending_ = true;
  const auto until = std::chrono::steady_clock::now() + kEndWithin;
  const auto running = [](const auto& entry) { return !entry.second.ended; };
  while (std::chrono::steady_clock::now() < until &&
         std::any_of(shells_.begin(), shells_.end(), running)) {
    poller_.wait(20ms);
  }
}

void RemoteShells::watch(const ShareName& name) {
  const Process& process = shells_.at(name).process;
  poller_.add(process.out.get(), [this, name](wire::Poller::Ready) { read_output(name, false); });
  poller_.add(process.err.get(), [this, name](wire::Poller::Ready) { read_output(name, true); });
  poller_.add(process.ended.get(), [this, name](wire::Poller::Ready) { ended(name); });
}

// The output of workers comes over the connection, not here.
void RemoteShells::read_output(const ShareName& name, bool is_err) {
  Shell& shell = shells_.at(name);
  wire::Fd& fd = is_err ? shell.process.err : shell.process.out;
  std::array<char, 4096> buffer{};
  const ssize_t size = fd.valid() ? read(fd.get(), buffer.data(), buffer.size()) : 0;
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
  const auto print = [&](std::string_view line) { say_(fmt::format("host {}: {}", name, line)); };
  LineCutter& cutter = is_err ? shell.err : shell.out;
  if (size > 0) return cutter.feed({buffer.data(), static_cast<std::size_t>(size)}, print);
  cutter.finish(print);
  if (!fd.valid()) return;
  poller_.remove(fd.get());
  fd.close();
}

void RemoteShells::ended(const ShareName& name) {
  Shell& shell = shells_.at(name);
  const auto end = reap(shell.process);
  if (!end) return;
  for (const bool is_err : {false, true}) {
    const wire::Fd& fd = is_err ? shell.process.err : shell.process.out;
    while (fd.valid()) {
      pollfd more{fd.get(), POLLIN, 0};
      if (poll(&more, 1, 0) <= 0) break;
      read_output(name, is_err);
    }
  }
  shell.ended = true;
  for (wire::Fd* fd : {&shell.process.ended, &shell.process.out, &shell.process.err}) {
    if (fd->valid()) poller_.remove(fd->get());
    fd->close();
  }
  if (!ending_) say_(fmt::format("host {}: its share {}", name, to_text(*end)));
}

}  // namespace rubato::launch
