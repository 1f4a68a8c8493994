#include "rubato/http/log_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <optional>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace rubato::http {
namespace {

constexpr const char* kName = "log";
// Long enough to occur only once in a log, because lines differ in their times and numbers.
constexpr std::int64_t kTail = 4096;
// It is searched for in the last bytes of a new log. A reader reads several times a second, so it
// is rarely further behind. The owner of the directory may put a file of any size there, and that
// must not block the server for long.
constexpr std::int64_t kSearched = std::int64_t{1} << 20U;

std::int64_t size_of(const wire::Fd& file) {
  struct stat status {};
  if (!file.valid() || ::fstat(file.get(), &status) != 0) return 0;
  return status.st_size;
}

std::string read_at(const wire::Fd& file, std::int64_t from, std::size_t most) {
  std::string bytes(most, '\0');
  ssize_t got = 0;
  do {
    got = ::pread(file.get(), bytes.data(), bytes.size(), from);
  } while (got < 0 && errno == EINTR);
  bytes.resize(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  return bytes;
}

bool same_file(const wire::Fd& one, const wire::Fd& other) {
  struct stat a {};
  struct stat b {};
  return ::fstat(one.get(), &a) == 0 && ::fstat(other.get(), &b) == 0 && a.st_ino == b.st_ino &&
         a.st_dev == b.st_dev;
}

// The position after the last `tail` in the file, if it is near the end.
std::optional<std::int64_t> end_of(std::string tail, const wire::Fd& file) {
  const std::int64_t begin = std::max<std::int64_t>(0, size_of(file) - kSearched);
  std::string bytes = read_at(file, begin, static_cast<std::size_t>(kSearched));
  // Searches backwards, but not with rfind(), whose worst case is the product of both lengths.
  std::reverse(tail.begin(), tail.end());
  std::reverse(bytes.begin(), bytes.end());
  const void* found = ::memmem(bytes.data(), bytes.size(), tail.data(), tail.size());
  if (found == nullptr) return std::nullopt;
  const auto after = static_cast<const char*>(found) - bytes.data();
  return begin + static_cast<std::int64_t>(bytes.size()) - after;
}

}  // namespace

Result<LogFile> LogFile::open(const std::filesystem::path& directory) {
  LogFile log(directory);
  if (auto opened = log.open_directory(); !opened) return opened.error();
  auto file = log.open_file();
  if (!file) return file.error();
  log.file_ = std::move(*file);
  return log;
}

Result<void> LogFile::open_directory() {
  directory_ = wire::Fd(::open(path_.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (directory_.valid() || errno == ENOENT) return {};
  return Error{fmt::format("the log cannot be read: {}", std::strerror(errno))};
}

Result<wire::Fd> LogFile::open_file() const {
  if (!directory_.valid()) return wire::Fd();
  // Non-blocking, because a pipe in the place of the file must not block the server.
  wire::Fd file(::openat(directory_.get(), kName, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!file.valid()) {
    if (errno == ENOENT) return wire::Fd();
    return Error{fmt::format("the log cannot be read: {}", std::strerror(errno))};
  }
  struct stat status {};
  struct stat directory {};
  // A file that was linked here and then lost its other names has one name, but another owner.
  const bool ours = ::fstat(file.get(), &status) == 0 &&
                    ::fstat(directory_.get(), &directory) == 0 && S_ISREG(status.st_mode) &&
                    status.st_nlink <= 1 && status.st_uid == directory.st_uid;
  if (!ours) return Error{"the log cannot be read: something else is in its place"};
  return file;
}

std::int64_t LogFile::size() const { return size_of(file_); }

void LogFile::seek(std::int64_t from) {
  const std::int64_t end = size();
  position_ = std::clamp<std::int64_t>(from < 0 ? end + from : from, 0, end);
}

bool LogFile::replaced() const {
  if (!directory_.valid()) return false;
  struct stat now {};
  if (::fstatat(directory_.get(), kName, &now, AT_SYMLINK_NOFOLLOW) != 0) return false;
  struct stat mine {};
  if (!file_.valid() || ::fstat(file_.get(), &mine) != 0) return true;
  return now.st_ino != mine.st_ino || now.st_dev != mine.st_dev || now.st_size < position_;
}

Result<void> LogFile::change_over() {
  auto file = open_file();
  if (!file || !file->valid()) return file ? Result<void>() : file.error();
  // A file that was truncated in place has nothing of the old content left to search for.
  const bool another = file_.valid() && !same_file(file_, *file);
  const std::int64_t length = std::min(position_, kTail);
  const std::string tail =
      another ? read_at(file_, position_ - length, static_cast<std::size_t>(length)) : "";
  const auto end = tail.empty() ? std::nullopt : end_of(tail, *file);
  file_ = std::move(*file);
  // Sends something twice rather than losing it.
  position_ = end.value_or(0);
  return {};
}

Result<std::string> LogFile::read(std::size_t most) {
  std::string bytes;
  if (!directory_.valid()) {
    if (auto opened = open_directory(); !opened) return opened.error();
  }
  if (file_.valid()) bytes = read_at(file_, position_, most);
  if (bytes.empty() && replaced()) {
    if (auto changed = change_over(); !changed) return changed.error();
    if (file_.valid()) bytes = read_at(file_, position_, most);
  }
  position_ += static_cast<std::int64_t>(bytes.size());
  return bytes;
}

}  // namespace rubato::http
