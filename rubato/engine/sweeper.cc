#include "rubato/engine/sweeper.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <optional>
#include <string_view>
#include <unistd.h>

#include "rubato/base/text.h"
#include "rubato/engine/job_files.h"
#include "rubato/wire/socket.h"

namespace rubato {
namespace {

// A process may be started behind the back of one look through the table of processes, by one that
// ends before it is looked at.
constexpr int kCleanPasses = 2;

constexpr std::string_view kVariable = "RUBATO_TOKEN=";

// Failures to look, as against nothing to see.
bool is_shortage(int error) {
  return error == EMFILE || error == ENFILE || error == ENOMEM || error == EINTR;
}

// Empty if the process is gone or not ours to look at; nullopt if it could not be looked at.
std::optional<std::string> content_of(int pid, const char* file) {
  const wire::Fd fd(open(fmt::format("/proc/{}/{}", pid, file).c_str(), O_RDONLY | O_CLOEXEC));
  std::string text;
  std::array<char, 16384> buffer;  // NOLINT: filled by read
  for (;;) {
    const ssize_t size = fd.valid() ? read(fd.get(), buffer.data(), buffer.size()) : -1;
    if (size < 0 && is_shortage(errno)) return std::nullopt;
    if (size <= 0) return text;
    text.append(buffer.data(), static_cast<std::size_t>(size));
  }
}

// Empty if it has none, or if it is not ours to look at; nullopt if it could not be looked at.
std::optional<std::string> token_of(int pid) {
  const auto environment = content_of(pid, "environ");
  if (!environment) return std::nullopt;
  std::string_view rest = *environment;
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\0'));
    if (line.starts_with(kVariable)) return std::string(line.substr(kVariable.size()));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
  }
  return "";
}

// nullopt if some could not be looked at.
std::optional<std::vector<int>> all_processes() {
  DIR* entries = opendir("/proc");
  if (entries == nullptr) return std::nullopt;
  std::vector<int> pids;
  errno = 0;
  while (const dirent* entry = readdir(entries)) {
    const auto pid = parse_integer(entry->d_name);
    if (pid && *pid > 0) pids.push_back(static_cast<int>(*pid));
    errno = 0;
  }
  const bool whole = errno == 0;
  closedir(entries);
  return whole ? std::optional(std::move(pids)) : std::nullopt;
}

using ProcessesByToken = std::multimap<std::string, int>;

// nullopt if some could not be looked at.
std::optional<ProcessesByToken> processes_by_token() {
  const auto pids = all_processes();
  if (!pids) return std::nullopt;
  ProcessesByToken found;
  for (const int pid : *pids) {
    auto token = token_of(pid);
    if (!token) return std::nullopt;
    if (!token->empty()) found.emplace(std::move(*token), pid);
  }
  return found;
}

// Whether a process is there that should not be; unclear: it could not be looked at.
enum class There : std::uint8_t { no, yes, unclear };

// By the real user, which a program cannot hide.
There there_as(uid_t owner, int pid) {
  constexpr std::string_view kLine = "\nUid:\t";
  const auto status = content_of(pid, "status");
  if (!status) return There::unclear;
  const std::size_t at = status->find(kLine);
  if (at == std::string::npos) return There::no;
  const std::size_t first = at + kLine.size();
  const auto uid = parse_integer(status->substr(first, status->find('\t', first) - first));
  return uid && static_cast<uid_t>(*uid) == owner ? There::yes : There::no;
}

There there_by_name(uid_t owner, const ProcessName& process) {
  // Not lives(), which takes what cannot be looked at for living: this one may be killed.
  const auto state = wire::look_at_process(process.pid);
  if (!state) return There::unclear;
  if (state->start_time == 0 || state->start_time != process.start_time || state->ended) {
    return There::no;
  }
  return there_as(owner, process.pid);
}

// The number may have passed to another since it was found.
There there_by_token(uid_t owner, const std::string& token, int pid) {
  const There there = there_as(owner, pid);
  if (there != There::yes) return there;
  const auto now = token_of(pid);
  if (!now) return There::unclear;
  return *now == token ? There::yes : There::no;
}

// With its group, if it leads one.
void kill_now(int pid) {
  if (getpgid(pid) == pid) kill(-pid, SIGKILL);
  kill(pid, SIGKILL);
}

// Kills it if it is there; whether it is known not to be.
bool gone(int pid, There there) {
  if (pid == getpid()) return true;
  if (there == There::yes) kill_now(pid);
  return there == There::no;
}

}  // namespace

void Sweeper::add(JobId job, uid_t owner, std::string token, std::vector<ProcessName> named) {
  jobs_[job] = {owner, std::move(token), std::move(named), 0};
}

std::vector<JobId> Sweeper::pass() {
  if (jobs_.empty()) return {};
  const auto by_token = processes_by_token();
  std::vector<JobId> done;
  for (auto& [id, job] : jobs_) {
    bool clean = by_token.has_value();
    for (const ProcessName& process : job.named) {
      clean &= gone(process.pid, there_by_name(job.owner, process));
    }
    if (by_token && !job.token.empty()) {
      const auto [first, last] = by_token->equal_range(job.token);
      for (auto found = first; found != last; ++found) {
        clean &= gone(found->second, there_by_token(job.owner, job.token, found->second));
      }
    }
    job.clean = clean ? job.clean + 1 : 0;
    if (job.clean >= kCleanPasses) done.push_back(id);
  }
  for (const JobId id : done) jobs_.erase(id);
  return done;
}

bool lives_as(uid_t owner, const ProcessName& process) {
  return there_by_name(owner, process) == There::yes;
}

std::vector<ProcessName> processes_named_in(const std::string& job_directory) {
  const JobFiles files{job_directory};
  std::vector<ProcessName> named;
  if (const auto master = read_master(files); master && *master) named.push_back(**master);
  if (const auto workers = read_workers(files)) {
    named.reserve(named.size() + workers->size());
    for (const WorkerRecord& worker : *workers) named.push_back(worker.process);
  }
  return named;
}

}  // namespace rubato
