#include "rubato/node/job_files.h"

#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

namespace rubato::node {
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

// The entry itself must be on the disk, too.
bool sync_directory_of(const std::string& path) {
  const auto slash = path.rfind('/');
  const std::string directory = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const wire::Fd fd(open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  return fd.valid() && fsync(fd.get()) == 0;
}

template <class T>
Result<std::optional<T>> read_as(const std::string& path, Result<T> (*parse)(const Json&)) {
  const auto json = read_json_file(path);
  if (!json) return json.error();
  if (!*json) return std::optional<T>();
  auto value = parse(**json);
  if (!value) return Error{fmt::format("{}: {}", path, value.error().message)};
  return std::optional<T>(std::move(*value));
}

}  // namespace

Result<HeldDirectory> HeldDirectory::open(const std::string& path) {
  wire::Fd fd(::open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid()) return failed("open", path);
  return HeldDirectory(std::move(fd), path);
}

// A process whose program its user may execute but not read cannot read its own /proc entry.
std::string HeldDirectory::own_path() const {
  const std::string link = fmt::format("/proc/self/fd/{}", fd_.get());
  return access((link + "/.").c_str(), X_OK) == 0 ? link : path_;
}

std::string HeldDirectory::path() const {
  std::array<char, PATH_MAX> target{};
  const std::string link = fmt::format("/proc/self/fd/{}", fd_.get());
  const ssize_t size = readlink(link.c_str(), target.data(), target.size());
  return size > 0 ? std::string(target.data(), static_cast<std::size_t>(size)) : path_;
}

Error HeldDirectory::shown(Error error) const {
  const std::string own = own_path();
  const std::size_t at = error.message.find(own);
  if (at != std::string::npos) error.message.replace(at, own.size(), path());
  return error;
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
  if (durable == Durable::yes && !sync_directory_of(path)) return failed("write", path);
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

Result<std::optional<JobLaunch>> read_launch(const JobFiles& files) {
  return read_as<JobLaunch>(files.launch(), parse_job_launch);
}
Result<std::optional<ProcessName>> read_master(const JobFiles& files) {
  return read_as<ProcessName>(files.master(), parse_process_name);
}
Result<std::vector<WorkerRecord>> read_workers(const JobFiles& files) {
  auto workers = read_as<std::vector<WorkerRecord>>(files.workers(), parse_worker_records);
  if (!workers) return workers.error();
  return *workers ? std::move(**workers) : std::vector<WorkerRecord>();
}
Result<std::optional<JobExit>> read_exit(const JobFiles& files) {
  return read_as<JobExit>(files.exit(), parse_job_exit);
}

Generation read_generation(const std::string& path) {
  const auto json = read_json_file(path);
  if (!json || !*json || !(*json)->is_object()) return Generation(0);
  const auto found = (*json)->find("generation");
  if (found == (*json)->end() || !found->is_number_unsigned()) return Generation(0);
  return Generation(found->get<Generation::rep>());
}

Json generation_file(Generation generation) { return {{"generation", generation.value()}}; }

}  // namespace rubato::node
