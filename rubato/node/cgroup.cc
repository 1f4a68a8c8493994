#include "rubato/node/cgroup.h"

#include <cerrno>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sys/stat.h>
#include <unistd.h>

#include "rubato/base/text.h"

namespace rubato::node {
namespace {

std::string content_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

struct Mount {
  std::string root;  // what of the hierarchy is mounted
  std::string point;
};

// "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw": the type stands behind the
// hyphen.
std::optional<Mount> mount_in(std::string_view line) {
  const std::size_t hyphen = line.find(" - ");
  if (hyphen == std::string_view::npos || !line.substr(hyphen).starts_with(" - cgroup2 ")) {
    return std::nullopt;
  }
  const auto fields = split(line.substr(0, hyphen), ' ');
  if (fields.size() < 5) return std::nullopt;
  return Mount{std::string(fields[3]), std::string(fields[4])};
}

bool write_to(const std::string& path, std::string_view text) {
  const wire::Fd fd(open(path.c_str(), O_WRONLY | O_CLOEXEC));
  return fd.valid() &&
         write(fd.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

}  // namespace

std::optional<std::string> cgroup_in(const std::string& mountinfo, const std::string& cgroup) {
  std::optional<std::string> path;
  for (const std::string_view line : split(cgroup, '\n')) {
    if (line.starts_with("0::/")) path = line.substr(3);
  }
  // One outside of what a container sees begins with "/..".
  if (!path || path->starts_with("/..") || path->ends_with(" (deleted)")) return std::nullopt;
  for (const std::string_view line : split(mountinfo, '\n')) {
    const auto mount = mount_in(line);
    if (!mount) continue;
    if (mount->root == "/") return mount->point + *path;
    if (*path == mount->root) return mount->point;
    if (path->starts_with(mount->root + "/"))
      return mount->point + path->substr(mount->root.size());
  }
  return std::nullopt;
}

std::optional<std::string> make_cgroup(const std::string& name) {
  const auto own = cgroup_in(content_of("/proc/self/mountinfo"), content_of("/proc/self/cgroup"));
  if (!own) return std::nullopt;
  std::string path = *own + (own->ends_with('/') ? "" : "/") + name;
  if (mkdir(path.c_str(), S_IRWXU | S_IRGRP | S_IXGRP | S_IROTH | S_IXOTH) != 0) {
    return std::nullopt;
  }
  if (access((path + "/cgroup.kill").c_str(), W_OK) == 0 &&
      access((path + "/cgroup.procs").c_str(), W_OK) == 0) {
    return path;
  }
  rmdir(path.c_str());
  return std::nullopt;
}

wire::Fd entrance_of(const std::string& cgroup) {
  return wire::Fd(open((cgroup + "/cgroup.procs").c_str(), O_WRONLY | O_CLOEXEC));
}

bool empty_cgroup(const std::string& cgroup) {
  const std::string events = content_of(cgroup + "/cgroup.events");
  if (events.find("populated 0") != std::string::npos) return true;
  if (events.empty() && access(cgroup.c_str(), F_OK) != 0 && errno == ENOENT) return true;
  write_to(cgroup + "/cgroup.kill", "1");
  return false;
}

// First the empty groups that the job itself has created in it.
void remove_cgroup(const std::string& cgroup) {
  if (rmdir(cgroup.c_str()) == 0 || errno != EBUSY) return;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(cgroup, none)) {
    if (entry.is_directory(none) && !entry.is_symlink(none)) remove_cgroup(entry.path().string());
  }
  rmdir(cgroup.c_str());
}

}  // namespace rubato::node
