#include "rubato/node/state_directory.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <dirent.h>
#include <filesystem>
#include <fmt/format.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

#include "rubato/base/text.h"
#include "rubato/node/job_files.h"
#include "rubato/node/secrets.h"
#include "rubato/wire/inode.h"

namespace rubato::node {
namespace {

Error cannot(const char* verb, const std::string& path) {
  return {fmt::format("cannot {} {}: {}", verb, path, std::strerror(errno))};
}

constexpr mode_t kOthersPass = S_IXGRP | S_IXOTH;
constexpr mode_t kOthersTouch = S_IRGRP | S_IWGRP | S_IROTH | S_IWOTH;

// Others can go through, to their own directories.
Result<void> let_pass(const std::string& path) {
  if (chmod(path.c_str(), S_IRWXU | kOthersPass) != 0) return cannot("let users pass", path);
  return {};
}

// Where the directory is on the disk. A copy is elsewhere.
Json place_of(const std::string& directory) {
  const auto inode = wire::inode_at(directory);
  return inode ? Json::array({inode->device, inode->number}) : Json();
}

// While it exists, this thread accesses files with the permissions of this user. The calls of the C
// library to become another user would affect the whole process.
class FilesAs {
 public:
  FilesAs(uid_t user, gid_t group) : group_(setfsgid(group)), user_(setfsuid(user)) {}
  ~FilesAs() {
    setfsuid(user_);
    setfsgid(group_);
  }
  FilesAs(const FilesAs&) = delete;
  FilesAs& operator=(const FilesAs&) = delete;

 private:
  gid_t group_;
  uid_t user_;
};

}  // namespace

std::string job_directory(const std::string& state_directory, JobId job) {
  return fmt::format("{}/jobs/{}", state_directory, job.value());
}
std::string node_directory(const std::string& state_directory, NodeId node) {
  return fmt::format("{}/nodes/{}", state_directory, node.value());
}
std::string agent_token_file(const std::string& state_directory) {
  return state_directory + "/agent.token";
}
std::string cgroup_file(const std::string& state_directory, NodeId home, JobId job) {
  return fmt::format("{}/cgroup-{}.json", node_directory(state_directory, home), job.value());
}
std::string cgroup_of_job(const std::string& state_directory, NodeId home, JobId job) {
  const auto file = read_json_file(cgroup_file(state_directory, home, job));
  if (!file || !*file || !(*file)->is_object()) return "";
  const Json cgroup = (*file)->value("cgroup", Json());
  const bool ours = (*file)->value("of", Json()) == place_of(node_directory(state_directory, home));
  return ours && cgroup.is_string() ? cgroup.get<std::string>() : "";
}
Result<void> write_cgroup_of_job(const std::string& state_directory, NodeId home, JobId job,
                                 const std::string& cgroup) {
  const Json content = {{"cgroup", cgroup},
                        {"of", place_of(node_directory(state_directory, home))}};
  return write_json_file(cgroup_file(state_directory, home, job), content, Durable::no);
}

Result<void> make_own_directory(const std::string& path) {
  if (mkdir(path.c_str(), S_IRWXU) != 0 && errno != EEXIST) {
    return cannot("make the directory", path);
  }
  struct stat there {};
  if (lstat(path.c_str(), &there) != 0) return cannot("look at", path);
  if (S_ISDIR(there.st_mode) && there.st_uid == geteuid() && (there.st_mode & kOthersTouch) == 0) {
    return {};
  }
  return Error{fmt::format(
      "{} is not a directory of this user that others can neither read nor write (mode 0700)",
      path)};
}

Result<void> make_state_directory(const std::string& path) {
  if (auto made = make_directory_of_jobs(path); !made) return made;
  return make_own_directory(path + "/nodes");
}

Result<void> make_directory_of_jobs(const std::string& path) {
  for (const std::string& one : {path, path + "/jobs"}) {
    if (auto made = make_own_directory(one); !made) return made;
  }
  if (geteuid() != 0) return {};
  if (auto passes = let_pass(path); !passes) return passes;
  return let_pass(path + "/jobs");
}

namespace {

Result<void> make_directory_for(const std::optional<RunAs>& user, const std::string& path) {
  if (mkdir(path.c_str(), S_IRWXU) != 0 && errno != EEXIST) {
    return cannot("make the directory", path);
  }
  if (user && lchown(path.c_str(), user->uid, user->gid) != 0) {
    return cannot("give to its user", path);
  }
  return {};
}

}  // namespace

Result<void> make_job_directory(const std::string& state_directory, JobId job,
                                const std::optional<RunAs>& user) {
  return make_directory_for(user, job_directory(state_directory, job));
}

Result<void> make_shared_directory(const std::string& path, const std::optional<RunAs>& user) {
  const std::string above = path.substr(0, path.rfind('/'));
  const mode_t others = geteuid() == 0 ? S_IXGRP | S_IXOTH : 0;
  if (mkdir(above.c_str(), S_IRWXU | others) != 0 && errno != EEXIST) {
    return cannot("make the directory", above);
  }
  return make_directory_for(user, path);
}

Result<std::vector<JobId>> jobs_with_directory(const std::string& state_directory) {
  const std::string directory = state_directory + "/jobs";
  DIR* entries = opendir(directory.c_str());
  if (entries == nullptr) {
    return Error{fmt::format("cannot look for jobs in {}: {}", directory, std::strerror(errno))};
  }
  std::vector<JobId> jobs;
  while (const dirent* entry = readdir(entries)) {
    const auto number = parse_integer(entry->d_name);
    if (number && *number >= 0 && *number <= UINT32_MAX) {
      jobs.emplace_back(static_cast<JobId::rep>(*number));
    }
  }
  closedir(entries);
  std::sort(jobs.begin(), jobs.end());
  return jobs;
}

Result<void> check_submission(const std::string& state_directory, JobId job,
                              const std::string& token) {
  const JobFiles files{job_directory(state_directory, job)};
  const auto launch = read_launch(files);
  if (!launch) return launch.error();
  if (!*launch || (*launch)->token == token) return {};
  return Error{fmt::format(
      "{} belongs to another job, which had the number {} before; move that directory away",
      files.directory, job.value())};
}

void remove_secrets_of(const std::string& state_directory, JobId job) {
  const JobFiles files{job_directory(state_directory, job)};
  struct stat there {};
  if (lstat(files.directory.c_str(), &there) != 0) return;
  const FilesAs owner(there.st_uid, there.st_gid);
  remove_secrets(files);
}

void remove_job_directory(const std::string& state_directory, JobId job) {
  const std::string path = job_directory(state_directory, job);
  struct stat there {};
  if (lstat(path.c_str(), &there) != 0) return;
  std::error_code cannot;
  {
    const FilesAs owner(there.st_uid, there.st_gid);
    std::filesystem::remove_all(path, cannot);  // but for itself, which stands in ours
  }
  rmdir(path.c_str());
}

uid_t owner_of_job(const std::string& state_directory, JobId job) {
  struct stat there {};
  const std::string path = job_directory(state_directory, job);
  return lstat(path.c_str(), &there) == 0 ? there.st_uid : geteuid();
}

Result<void> write_job_file(const std::string& state_directory, JobId job, const std::string& name,
                            const Json& content) {
  const std::string path = job_directory(state_directory, job) + "/" + name;
  const std::string beside =
      fmt::format("{}/jobs/.{}.{}.{}", state_directory, job.value(), name, getpid());
  if (auto written = write_json_file(beside, content); !written) return written;
  struct stat owner {};
  const bool moved =
      lstat((job_directory(state_directory, job)).c_str(), &owner) == 0 &&
      (owner.st_uid == geteuid() || lchown(beside.c_str(), owner.st_uid, owner.st_gid) == 0) &&
      rename(beside.c_str(), path.c_str()) == 0;
  if (moved) return {};
  Error error = cannot("write", path);
  unlink(beside.c_str());
  return error;
}

}  // namespace rubato::node
