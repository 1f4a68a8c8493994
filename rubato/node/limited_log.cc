#include "rubato/node/limited_log.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

namespace rubato::node {
namespace {

constexpr std::size_t kMany = std::size_t{64} << 10U;
constexpr mode_t kOwnerOnly = S_IRUSR | S_IWUSR;

// The last complete lines of a text that have at most so many bytes together.
std::string_view last_lines(std::string_view text, std::size_t bytes) {
  if (text.size() <= bytes) return text;
  const auto end = text.find('\n', text.size() - bytes - 1);
  return end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
}

}  // namespace

Result<LimitedLog> LimitedLog::open(std::string path, std::int64_t limit) {
  wire::Fd fd(::open(
      path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, kOwnerOnly));
  struct stat there {};
  if (!fd.valid() || fstat(fd.get(), &there) != 0) {
    return Error{fmt::format("cannot open {}: {}", path, std::strerror(errno))};
  }
  if (!S_ISREG(there.st_mode)) return Error{fmt::format("{} is not a plain file", path)};
  return LimitedLog(std::move(path), limit, std::move(fd), there.st_size);
}

void LimitedLog::line(std::string_view text) {
  pending_ += text;
  pending_ += '\n';
  if (pending_.size() >= kMany) flush();
}

bool LimitedLog::write_all(const wire::Fd& fd, std::string_view text) const {
  while (!text.empty()) {
    const ssize_t written = write(fd.get(), text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

void LimitedLog::flush() {
  if (pending_.empty()) return;
  if (lost_ > 0) {
    pending_.insert(0, fmt::format("rubato: {} lines could not be written\n", lost_));
  }
  if (size_ + static_cast<std::int64_t>(pending_.size()) > limit_) make_room();
  const bool fits = size_ + static_cast<std::int64_t>(pending_.size()) <= limit_;
  if (fits && write_all(fd_, pending_)) {
    size_ += static_cast<std::int64_t>(pending_.size());
    lost_ = 0;
  } else {
    // If only a part was written, up to the middle of a line, that part is removed again.
    if (fits && ftruncate(fd_.get(), size_) != 0) size_ = lseek(fd_.get(), 0, SEEK_END);
    lost_ += std::count(pending_.begin(), pending_.end(), '\n') - (lost_ > 0 ? 1 : 0);
  }
  pending_.clear();
}

std::string LimitedLog::newest(std::int64_t bytes) const {
  const std::int64_t from = std::max<std::int64_t>(0, size_ - bytes - 1);
  std::string text(static_cast<std::size_t>(size_ - from), '\0');
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t size = pread(fd_.get(), text.data() + done, text.size() - done,
                               from + static_cast<std::int64_t>(done));
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) break;
    done += static_cast<std::size_t>(size);
  }
  text.resize(done);
  return std::string(last_lines(text, static_cast<std::size_t>(bytes)));
}

void LimitedLog::make_room() {
  const std::string notice =
      fmt::format("rubato: older lines were dropped: this file is limited to {} bytes\n", limit_);
  const std::int64_t half = limit_ / 2;
  const std::int64_t room =
      std::max<std::int64_t>(0, half - static_cast<std::int64_t>(pending_.size()) -
                                    static_cast<std::int64_t>(notice.size()));
  pending_ = std::string(last_lines(pending_, static_cast<std::size_t>(half)));
  const std::string beside = path_ + ".new";
  unlink(beside.c_str());
  wire::Fd fd(::open(beside.c_str(), O_RDWR | O_CREAT | O_EXCL | O_APPEND | O_NOFOLLOW | O_CLOEXEC,
                     kOwnerOnly));
  const std::string kept = notice + newest(room);
  if (!fd.valid() || !write_all(fd, kept) || rename(beside.c_str(), path_.c_str()) != 0) {
    unlink(beside.c_str());
    return;
  }
  fd_ = std::move(fd);
  size_ = static_cast<std::int64_t>(kept.size());
}

}  // namespace rubato::node
