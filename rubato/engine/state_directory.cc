#include "rubato/engine/state_directory.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

#include "rubato/engine/job_files.h"
#include "rubato/engine/secrets.h"

namespace rubato {
namespace {

Error failed(const char* verb, const std::string& path) {
  return {fmt::format("cannot {} {}: {}", verb, path, std::strerror(errno))};
}

constexpr mode_t kOthersPass = S_IXGRP | S_IXOTH;
constexpr mode_t kOthersTouch = S_IRGRP | S_IWGRP | S_IROTH | S_IWOTH;

// Others may go through, to what is theirs.
Result<void> let_pass(const std::string& path) {
  if (chmod(path.c_str(), S_IRWXU | kOthersPass) != 0) return failed("let users pass", path);
  return {};
}

// Files are reached with the rights of this user by this thread while it lives. The C library's
// calls to become another user would do so for the whole process.
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

Result<void> make_own_directory(const std::string& path) {
  if (mkdir(path.c_str(), S_IRWXU) != 0 && errno != EEXIST) {
    return failed("make the directory", path);
  }
  struct stat there {};
  if (lstat(path.c_str(), &there) != 0) return failed("look at", path);
  if (S_ISDIR(there.st_mode) && there.st_uid == geteuid() && (there.st_mode & kOthersTouch) == 0) {
    return {};
  }
  return Error{fmt::format(
      "{} is not a directory of this user that others can neither read nor write (mode 0700)",
      path)};
}

Result<void> make_state_directory(const std::string& path) {
  for (const std::string& one : {path, path + "/jobs", path + "/nodes"}) {
    if (auto made = make_own_directory(one); !made) return made;
  }
  if (geteuid() != 0) return {};
  if (auto passes = let_pass(path); !passes) return passes;
  return let_pass(path + "/jobs");
}

Result<void> make_job_directory(const std::string& state_directory, JobId job,
                                const std::optional<RunAs>& user) {
  const std::string path = job_directory(state_directory, job);
  if (mkdir(path.c_str(), S_IRWXU) != 0 && errno != EEXIST) {
    return failed("make the directory", path);
  }
  if (user && lchown(path.c_str(), user->uid, user->gid) != 0) {
    return failed("give to its user", path);
  }
  return {};
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
  std::error_code failed;
  {
    const FilesAs owner(there.st_uid, there.st_gid);
    std::filesystem::remove_all(path, failed);  // but for itself, which stands in ours
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
  Error error = failed("write", path);
  unlink(beside.c_str());
  return error;
}

}  // namespace rubato
