#include "rubato/node/secrets.h"

#include <cerrno>
#include <climits>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <optional>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

#include "rubato/base/text.h"

namespace rubato::node {
namespace {

constexpr std::size_t kLargestSecret = std::size_t{1} << 20U;
constexpr mode_t kSecretMode = S_IRUSR | S_IWUSR;

Error failed(const std::string& name, const char* what, const std::string& path) {
  return {fmt::format("the secret {}: cannot {} {}: {}", base::quoted(name), what, path,
                      std::strerror(errno))};
}

Result<std::string> content_of(const std::string& name, const std::string& path) {
  const wire::Fd fd(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  struct stat there {};
  if (!fd.valid() || fstat(fd.get(), &there) != 0) return failed(name, "read", path);
  if (!S_ISREG(there.st_mode)) {
    return Error{fmt::format("the secret {}: {} is not a plain file", base::quoted(name), path)};
  }
  std::string content;
  char buffer[4096];
  for (;;) {
    const ssize_t size = read(fd.get(), buffer, sizeof(buffer));
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return failed(name, "read", path);
    if (size == 0) return content;
    content.append(buffer, static_cast<std::size_t>(size));
    if (content.size() > kLargestSecret) {
      return Error{fmt::format("the secret {}: {} is larger than {} bytes", base::quoted(name),
                               path, kLargestSecret)};
    }
  }
}

// A directory in memory with a link to it, or one in the job's directory.
Result<std::string> new_directory(const JobFiles& files, const std::string& memory) {
  std::string pattern = memory + "/rubato-XXXXXX";
  if (mkdtemp(pattern.data()) != nullptr) {
    if (symlink(pattern.c_str(), files.secrets().c_str()) == 0) return pattern;
    rmdir(pattern.c_str());
  }
  if (mkdir(files.secrets().c_str(), S_IRWXU) == 0) return files.secrets();
  return Error{fmt::format("cannot make a private directory for secrets at {}: {}", files.secrets(),
                           std::strerror(errno))};
}

Result<void> copy(const std::string& name, const std::string& from, const std::string& to) {
  const auto content = content_of(name, from);
  if (!content) return content.error();
  const wire::Fd fd(open(to.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, kSecretMode));
  if (!fd.valid()) return failed(name, "write", to);
  std::string_view rest = *content;
  while (!rest.empty()) {
    const ssize_t written = write(fd.get(), rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return failed(name, "write", to);
    rest.remove_prefix(static_cast<std::size_t>(written));
  }
  return {};
}

// Only plain files can be secrets.
void empty_directory(int fd) {
  DIR* entries = fdopendir(dup(fd));
  if (entries == nullptr) return;
  std::vector<std::string> names;
  while (const dirent* entry = readdir(entries)) names.emplace_back(entry->d_name);
  closedir(entries);
  for (const std::string& name : names) {
    if (name != "." && name != "..") unlinkat(fd, name.c_str(), 0);
  }
}

std::optional<std::string> target_of(const std::string& link) {
  char buffer[PATH_MAX];
  const ssize_t size = readlink(link.c_str(), buffer, sizeof(buffer));
  if (size <= 0 || size == sizeof(buffer)) return std::nullopt;
  return std::string(buffer, static_cast<std::size_t>(size));
}

}  // namespace

Result<std::map<std::string, std::string>> hand_out_secrets(
    const JobFiles& files, const std::map<std::string, std::string>& secrets,
    const std::string& memory) {
  remove_secrets(files);
  std::map<std::string, std::string> copies;
  if (secrets.empty()) return copies;
  const auto directory = new_directory(files, memory);
  if (!directory) return directory.error();
  for (const auto& [name, path] : secrets) {
    // The name of a secret may have characters that the name of a file cannot have.
    const std::string to = fmt::format("{}/{}", *directory, copies.size());
    if (auto copied = copy(name, path, to); !copied) {
      remove_secrets(files);
      return copied.error();
    }
    copies[name] = to;
  }
  return copies;
}

Result<std::map<std::string, std::string>> read_secrets(
    const std::map<std::string, std::string>& secrets) {
  std::map<std::string, std::string> contents;
  for (const auto& [name, path] : secrets) {
    auto content = content_of(name, path);
    if (!content) return content.error();
    contents[name] = std::move(*content);
  }
  return contents;
}

void remove_secrets(const JobFiles& files) {
  const std::string own = files.secrets();
  struct stat link {};
  if (lstat(own.c_str(), &link) != 0) return;
  const std::string directory =
      S_ISLNK(link.st_mode) ? target_of(own).value_or(std::string()) : own;
  const wire::Fd fd(open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat there {};
  if (fd.valid() && fstat(fd.get(), &there) == 0 && there.st_uid == link.st_uid) {
    empty_directory(fd.get());
    rmdir(directory.c_str());
  }
  if (S_ISLNK(link.st_mode)) unlink(own.c_str());
}

}  // namespace rubato::node
