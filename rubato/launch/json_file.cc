#include "rubato/launch/json_file.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rubato/wire/socket.h"

namespace rubato::launch {
namespace {

constexpr std::size_t kLargestFile = std::size_t{16} << 20U;

Error failed(const char* verb, const std::string& path) {
  return {fmt::format("cannot {} {}: {}", verb, path, std::strerror(errno))};
}

bool write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

std::string directory_of(const std::string& path) {
  const auto slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash + 1);
}

}  // namespace

bool sync_directory(const std::string& directory) {
  const wire::Fd fd(open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  return fd.valid() && fsync(fd.get()) == 0;
}

Result<void> write_json_file(const std::string& path, const Json& content, Durable durable) {
  const std::string beside = path + ".new";
  unlink(beside.c_str());  // left by a process that was killed
  wire::Fd fd(open(beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                   S_IRUSR | S_IWUSR));
  if (!fd.valid()) return failed("write", beside);
  const std::string text = content.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  if (!write_all(fd.get(), text) || (durable == Durable::yes && fsync(fd.get()) != 0) ||
      rename(beside.c_str(), path.c_str()) != 0) {
    const Error error = failed("write", path);
    unlink(beside.c_str());
    return error;
  }
  if (durable == Durable::yes && !sync_directory(directory_of(path))) return failed("write", path);
  return {};
}

Result<std::optional<Json>> read_json_file(const std::string& path) {
  const wire::Fd fd(open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!fd.valid() && errno == ENOENT) return std::optional<Json>();
  struct stat there {};
  if (!fd.valid() || fstat(fd.get(), &there) != 0) return failed("read", path);
  if (!S_ISREG(there.st_mode)) return Error{fmt::format("{} is not a plain file", path)};
  std::string text;
  char buffer[65536];
  for (;;) {
    const ssize_t size = read(fd.get(), buffer, sizeof(buffer));
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return failed("read", path);
    if (size == 0) break;
    text.append(buffer, static_cast<std::size_t>(size));
    if (text.size() > kLargestFile) return Error{fmt::format("{} is too large", path)};
  }
  auto json = parse_json(text, path);
  if (!json) return json.error();
  return std::optional<Json>(std::move(*json));
}

}  // namespace rubato::launch
