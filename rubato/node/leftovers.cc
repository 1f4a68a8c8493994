#include "rubato/node/leftovers.h"

#include <algorithm>
#include <csignal>
#include <optional>
#include <set>
#include <string_view>
#include <unistd.h>

#include "rubato/base/text.h"
#include "rubato/launch/processes.h"
#include "rubato/node/cgroup.h"
#include "rubato/node/job_files.h"
#include "rubato/wire/socket.h"

namespace rubato::node {
namespace {

// One pass through the table of processes may miss a process: one that is started by another
// process which ends before the pass gets to it.
constexpr int kCleanPasses = 2;

constexpr std::string_view kVariable = "RUBATO_TOKEN=";

// Empty if it has none, or if we may not read it; nullopt if it could not be read.
std::optional<std::string> token_of(int pid) {
  const auto environment = environment_of_process(pid);
  if (!environment) return std::nullopt;
  for (const std::string& line : *environment) {
    if (line.starts_with(kVariable)) return line.substr(kVariable.size());
  }
  return "";
}

using ProcessesByToken = std::multimap<std::string, int>;

// nullopt if some could not be read.
std::optional<ProcessesByToken> by_token(const std::vector<ProcessEntry>& table) {
  ProcessesByToken found;
  for (const ProcessEntry& entry : table) {
    auto token = token_of(entry.name.pid);
    if (!token) return std::nullopt;
    if (!token->empty()) found.emplace(std::move(*token), entry.name.pid);
  }
  return found;
}

// Whether a process is there that should not be; unclear: it could not be inspected.
enum class There : std::uint8_t { no, yes, unclear };

// By the real user, which a program cannot hide.
There there_as(uid_t owner, int pid) {
  constexpr std::string_view kLine = "\nUid:\t";
  const auto status = proc_file(pid, "status");
  if (!status) return There::unclear;
  const std::size_t at = status->find(kLine);
  if (at == std::string::npos) return There::no;
  const std::size_t first = at + kLine.size();
  const auto uid = parse_integer(status->substr(first, status->find('\t', first) - first));
  return uid && static_cast<uid_t>(*uid) == owner ? There::yes : There::no;
}

There there_by_name(uid_t owner, const ProcessName& process) {
  // Not lives(), which counts a process that cannot be inspected as alive: this one may be killed.
  const auto state = wire::look_at_process(process.pid);
  if (!state) return There::unclear;
  if (state->start_time == 0 || state->start_time != process.start_time || state->ended) {
    return There::no;
  }
  return there_as(owner, process.pid);
}

// The number may belong to another process by now.
There there_by_token(uid_t owner, const std::string& token, int pid) {
  const There there = there_as(owner, pid);
  if (there != There::yes) return there;
  const auto now = token_of(pid);
  if (!now) return There::unclear;
  return *now == token ? There::yes : There::no;
}

// Together with its group, if it leads one.
void kill_now(int pid) {
  if (getpgid(pid) == pid) kill(-pid, SIGKILL);
  kill(pid, SIGKILL);
}

// Kills it if it is there. True if it is known not to be there.
bool gone(int pid, There there) {
  if (pid == getpid()) return true;
  if (there == There::yes) kill_now(pid);
  return there == There::no;
}

}  // namespace

void Leftovers::add(JobId job, uid_t owner, std::string token, std::vector<ProcessName> named,
                    std::string cgroup) {
  jobs_[job] = {owner, std::move(token), std::move(named), std::move(cgroup), 0};
}

std::vector<JobId> Leftovers::pass(bool others_gone) {
  if (jobs_.empty()) return {};
  const auto table = all_processes();
  const auto tokens = table ? by_token(*table) : std::nullopt;
  std::vector<JobId> done;
  for (auto& [id, job] : jobs_) {
    bool clean = others_gone && tokens.has_value();
    if (tokens) {
      name_all(job, *table, *tokens);
      const auto [first, last] = tokens->equal_range(job.token);
      for (auto found = first; found != last && !job.token.empty(); ++found) {
        clean &= gone(found->second, there_by_token(job.owner, job.token, found->second));
      }
    }
    for (const ProcessName& process : job.named) {
      clean &= gone(process.pid, there_by_name(job.owner, process));
    }
    if (!job.cgroup.empty()) clean &= empty_cgroup(job.cgroup);
    job.clean = clean ? job.clean + 1 : 0;
    if (job.clean >= kCleanPasses) done.push_back(id);
  }
  for (const JobId id : done) {
    const auto job = jobs_.find(id);
    if (!job->second.cgroup.empty()) remove_cgroup(job->second.cgroup);
    jobs_.erase(job);
  }
  return done;
}

// Before anything is killed: afterwards nobody can see what a dead process had started.
void Leftovers::name_all(Job& job, const std::vector<ProcessEntry>& table,
                         const std::multimap<std::string, int>& tokens) {
  std::set<int> roots;
  for (const ProcessName& process : job.named) {
    if (there_by_name(job.owner, process) == There::yes) roots.insert(process.pid);
  }
  const auto [first, last] = tokens.equal_range(job.token);
  for (auto found = first; found != last && !job.token.empty(); ++found) {
    if (there_as(job.owner, found->second) == There::yes) roots.insert(found->second);
  }
  for (const int root : roots) {
    const std::vector<ProcessName> found = below(root, table);
    // A process that has started us is not a process of a job, whatever the job's files say.
    const bool ours =
        root == getpid() ||
        std::any_of(found.begin(), found.end(), [](const auto& p) { return p.pid == getpid(); });
    if (ours) continue;
    for (const ProcessName& process : found) {
      const bool known = std::find(job.named.begin(), job.named.end(), process) != job.named.end();
      if (!known) job.named.push_back(process);
    }
  }
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

}  // namespace rubato::node
