#include "rubato/launch/run_control.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rubato/base/text.h"
#include "rubato/wire/frames.h"

namespace rubato::launch {
namespace {

constexpr std::string_view kSuffix = ".sock";
constexpr auto kAnswerTime = std::chrono::seconds(5);
constexpr std::size_t kLongestName = 40;

Error failed(const std::string& verb, const std::string& path) {
  return {fmt::format("cannot {} {}: {}", verb, path, std::strerror(errno))};
}

bool good_name(const std::string& name) {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  const auto good = [&](char c) {
    return letter(c) || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
  };
  // A name begins with a letter, so that it never looks like a number of workers.
  return !name.empty() && name.size() <= kLongestName && letter(name.front()) &&
         std::all_of(name.begin(), name.end(), good);
}

// Held while sockets are checked, removed and created. A socket that is bound but does not listen
// yet looks like one that was left behind.
class DirectoryLock {
 public:
  explicit DirectoryLock(const std::string& directory)
      : fd_(open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    if (fd_.valid()) flock(fd_.get(), LOCK_EX);
  }

 private:
  wire::Fd fd_;
};

bool left_behind(const std::string& path) {
  const auto connection = wire::connect_to("unix:" + path);
  return !connection && errno == ECONNREFUSED;
}

std::vector<std::string> names_in(const std::string& directory) {
  std::vector<std::string> names;
  DIR* entries = opendir(directory.c_str());
  if (entries == nullptr) return names;
  while (const dirent* entry = readdir(entries)) {
    const std::string_view file = entry->d_name;
    if (file.size() > kSuffix.size() && file.ends_with(kSuffix)) {
      names.emplace_back(file.substr(0, file.size() - kSuffix.size()));
    }
  }
  closedir(entries);
  std::sort(names.begin(), names.end());
  return names;
}

std::string socket_path(const std::string& directory, const std::string& name) {
  return fmt::format("{}/{}{}", directory, name, kSuffix);
}

}  // namespace

Result<void> make_private(const std::string& directory) {
  if (mkdir(directory.c_str(), S_IRWXU) != 0 && errno != EEXIST) {
    return failed("make the directory", directory);
  }
  struct stat there {};
  if (lstat(directory.c_str(), &there) != 0) return failed("look at", directory);
  if (!S_ISDIR(there.st_mode) || there.st_uid != geteuid() || (there.st_mode & 077U) != 0) {
    return Error{fmt::format(
        "{} is not a directory of this user alone (mode 0700); remove it or set XDG_RUNTIME_DIR",
        directory)};
  }
  return {};
}

Result<RunSocket> claim_run(const std::string& directory, const std::string& name) {
  if (!good_name(name)) {
    return Error{
        fmt::format("--name {}: begin with a letter and use at most {} letters, digits, "
                    "dots, hyphens and underscores",
                    base::quoted(name), kLongestName)};
  }
  if (auto made = make_private(directory); !made) return made.error();
  return claim_socket(socket_path(directory, name),
                      fmt::format("there is a run named {} already; choose another --name", name));
}

Result<RunSocket> claim_socket(const std::string& path, const std::string& taken) {
  const DirectoryLock lock(path.substr(0, path.rfind('/') + 1));
  if (left_behind(path)) unlink(path.c_str());
  auto listener = wire::listen_on("unix:" + path);
  if (!listener && errno == EADDRINUSE) return Error{taken};
  if (!listener) return listener.error();
  return RunSocket{std::move(*listener), path, wire::inode_at(path).value_or(wire::Inode())};
}

Result<std::vector<LiveRunInfo>> live_runs(const std::string& directory) {
  std::vector<LiveRunInfo> runs;
  if (access(directory.c_str(), F_OK) != 0) return runs;
  if (auto ours = make_private(directory); !ours) return ours.error();
  for (const std::string& name : names_in(directory)) {
    const std::string path = socket_path(directory, name);
    {
      const DirectoryLock lock(directory);
      if (left_behind(path)) {
        unlink(path.c_str());
        continue;
      }
    }
    auto info = ask_run(path, {{"type", "info"}});
    if (info) runs.push_back({path, std::move(*info)});
  }
  return runs;
}

Result<std::string> find_run(const std::string& directory, const std::optional<std::string>& name) {
  // Does not ask the other runs, because one of them may be stopped and slow to answer.
  if (name && good_name(*name) && access(directory.c_str(), F_OK) == 0) {
    if (auto ours = make_private(directory); !ours) return ours.error();
    const std::string path = socket_path(directory, *name);
    if (wire::connect_to("unix:" + path)) return path;
  }
  auto runs = live_runs(directory);
  if (!runs) return runs.error();
  std::vector<std::string> names;
  for (const LiveRunInfo& run : *runs) names.push_back(run.info.value("name", ""));
  const std::string alive =
      names.empty() ? "you have no runs" : fmt::format("alive: {}", fmt::join(names, ", "));
  if (name) return Error{fmt::format("there is no run named {}; {}", base::quoted(*name), alive)};
  if (names.size() == 1) return runs->front().path;
  if (names.empty()) return Error{alive};
  return Error{fmt::format("name one of the {} runs; {}", names.size(), alive)};
}

Result<Json> ask_run(const std::string& path, const Json& request) {
  auto connection = wire::connect_to("unix:" + path);
  if (!connection) return connection.error();
  wire::FrameStream stream(std::move(*connection));
  stream.send(request);
  const auto until = std::chrono::steady_clock::now() + kAnswerTime;
  while (stream.open() && std::chrono::steady_clock::now() < until) {
    pollfd asked{stream.fd(), static_cast<short>(POLLIN | (stream.unsent() ? POLLOUT : 0)), 0};
    poll(&asked, 1, 100);
    stream.flush();
    for (Json& answer : stream.receive()) {
      if (answer.contains("error") && answer["error"].is_string()) {
        return Error{answer["error"].get<std::string>()};
      }
      return answer;
    }
  }
  return Error{fmt::format("the run at {} did not answer; is its launcher stopped?", path)};
}

}  // namespace rubato::launch
