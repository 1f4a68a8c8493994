#include "rubato/engine/sweeper.h"

#include <array>
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

std::string content_of(int pid, const char* file) {
  const wire::Fd fd(open(fmt::format("/proc/{}/{}", pid, file).c_str(), O_RDONLY | O_CLOEXEC));
  std::string text;
  std::array<char, 16384> buffer;  // NOLINT: filled by read
  while (fd.valid()) {
    const ssize_t size = read(fd.get(), buffer.data(), buffer.size());
    if (size <= 0) break;
    text.append(buffer.data(), static_cast<std::size_t>(size));
  }
  return text;
}

// Empty if it has none, or if it is not ours to look at.
std::string token_of(int pid) {
  const std::string environment = content_of(pid, "environ");
  std::string_view rest = environment;
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\0'));
    if (line.starts_with(kVariable)) return std::string(line.substr(kVariable.size()));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
  }
  return "";
}

std::vector<int> all_processes() {
  std::vector<int> pids;
  DIR* entries = opendir("/proc");
  if (entries == nullptr) return pids;
  while (const dirent* entry = readdir(entries)) {
    const auto pid = parse_integer(entry->d_name);
    if (pid && *pid > 0) pids.push_back(static_cast<int>(*pid));
  }
  closedir(entries);
  return pids;
}

// The real user, which a program cannot hide.
std::optional<uid_t> owner_of(int pid) {
  constexpr std::string_view kLine = "\nUid:\t";
  const std::string status = content_of(pid, "status");
  const std::size_t at = status.find(kLine);
  if (at == std::string::npos) return std::nullopt;
  const std::size_t first = at + kLine.size();
  const auto uid = parse_integer(status.substr(first, status.find('\t', first) - first));
  return uid ? std::optional(static_cast<uid_t>(*uid)) : std::nullopt;
}

// With its group, if it leads one.
void kill_now(int pid) {
  if (getpgid(pid) == pid) kill(-pid, SIGKILL);
  kill(pid, SIGKILL);
}

}  // namespace

void Sweeper::add(JobId job, uid_t owner, std::string token, std::vector<ProcessName> named) {
  jobs_[job] = {owner, std::move(token), std::move(named), 0};
}

std::vector<JobId> Sweeper::pass() {
  if (jobs_.empty()) return {};
  std::multimap<std::string, int> by_token;
  for (const int pid : all_processes()) {
    if (std::string token = token_of(pid); !token.empty()) by_token.emplace(std::move(token), pid);
  }
  std::vector<JobId> done;
  for (auto& [id, job] : jobs_) {
    ++job.clean;
    for (const ProcessName& process : job.named) {
      if (process.pid == getpid() || !lives_as(job.owner, process)) continue;
      job.clean = 0;
      kill_now(process.pid);
    }
    const auto [first, last] = by_token.equal_range(job.token);
    for (auto found = first; found != last && !job.token.empty(); ++found) {
      // The number may have passed to another meanwhile.
      const int pid = found->second;
      if (pid == getpid() || owner_of(pid) != job.owner || token_of(pid) != job.token) continue;
      job.clean = 0;
      kill_now(pid);
    }
    if (job.clean >= kCleanPasses) done.push_back(id);
  }
  for (const JobId id : done) jobs_.erase(id);
  return done;
}

bool lives_as(uid_t owner, const ProcessName& process) {
  return lives(process) && owner_of(process.pid) == owner;
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
