#include "rubato/engine/detached.h"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rubato/base/check.h"
#include "rubato/wire/socket.h"

namespace rubato {
namespace {

class SpawnAttributes {
 public:
  SpawnAttributes() {
    CHECK(posix_spawnattr_init(&value) == 0);
    sigset_t none;
    sigset_t all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_setsigmask(&value, &none);
    posix_spawnattr_setsigdefault(&value, &all);
    posix_spawnattr_setflags(&value,
                             POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  }
  ~SpawnAttributes() { posix_spawnattr_destroy(&value); }
  SpawnAttributes(const SpawnAttributes&) = delete;
  SpawnAttributes& operator=(const SpawnAttributes&) = delete;

  posix_spawnattr_t value{};
};

class SpawnFiles {
 public:
  explicit SpawnFiles(const std::string& words) {
    CHECK(posix_spawn_file_actions_init(&value) == 0);
    posix_spawn_file_actions_addopen(&value, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&value, STDOUT_FILENO, words.c_str(),
                                     O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW, S_IRUSR | S_IWUSR);
    posix_spawn_file_actions_adddup2(&value, STDOUT_FILENO, STDERR_FILENO);
  }
  ~SpawnFiles() { posix_spawn_file_actions_destroy(&value); }
  SpawnFiles(const SpawnFiles&) = delete;
  SpawnFiles& operator=(const SpawnFiles&) = delete;

  posix_spawn_file_actions_t value{};
};

}  // namespace

Result<ProcessName> spawn_detached(const std::vector<std::string>& command,
                                   const std::string& words) {
  CHECK(!command.empty());
  std::vector<char*> arguments;
  arguments.reserve(command.size() + 1);
  for (const std::string& text : command) arguments.push_back(const_cast<char*>(text.c_str()));
  arguments.push_back(nullptr);
  const SpawnAttributes attributes;
  const SpawnFiles files(words);
  pid_t pid = 0;
  const int reason = posix_spawn(&pid, command.front().c_str(), &files.value, &attributes.value,
                                 arguments.data(), environ);
  if (reason != 0) {
    return Error{fmt::format("cannot start {} with its words in {}: {}", command.front(), words,
                             std::strerror(reason))};
  }
  // It is our child, so the number is its own until we collect it.
  return ProcessName{pid, wire::start_time_of(pid)};
}

void collect(const ProcessName& process) { waitpid(process.pid, nullptr, WNOHANG); }

}  // namespace rubato
