#include "rubato/journal/journal_place.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <string>
#include <sys/file.h>
#include <unistd.h>

#include "rubato/base/text.h"

namespace rubato::journal {
namespace {

namespace fs = std::filesystem;

constexpr mode_t kLockMode = 0600;

Error place_error(const fs::path& path, std::string_view what) {
  return Error{fmt::format("{}: {}: {}", path.string(), what, std::strerror(errno))};
}

std::string pid_in(const wire::Fd& lock) {
  std::array<char, 32> text{};
  const auto length = pread(lock.get(), text.data(), text.size(), 0);
  const auto holder = parse_integer(
      trim(std::string_view(text.data(), static_cast<std::size_t>(std::max<ssize_t>(length, 0)))));
  return holder ? fmt::format("process {}", *holder) : "of unknown number";
}

Result<void> take(const wire::Fd& file, const fs::path& path, const fs::path& directory,
                  const wire::Fd& lock) {
  if (!file.valid()) return place_error(path, "cannot be opened");
  if (flock(file.get(), LOCK_EX | LOCK_NB) == 0) return {};
  if (errno != EWOULDBLOCK) return place_error(path, "cannot be locked");
  return Error{fmt::format(
      "{} belongs to a daemon that is running ({}); stop it first, or use another directory",
      directory.string(), pid_in(lock))};
}

}  // namespace

Result<JournalPlace> JournalPlace::claim(const fs::path& directory) {
  JournalPlace place;
  const fs::path lock = directory / "lock";
  place.lock_ = wire::Fd(open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, kLockMode));
  if (auto ok = take(place.lock_, lock, directory, place.lock_); !ok) return ok.error();
  place.directory_fd_ = wire::Fd(open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (auto ok = take(place.directory_fd_, directory, directory, place.lock_); !ok)
    return ok.error();
  const auto inode = wire::inode_of(place.directory_fd_);
  if (!inode) return place_error(directory, "cannot be looked at");
  place.directory_ = {directory, *inode};
  const std::string pid = fmt::format("{}\n", getpid());
  if (ftruncate(place.lock_.get(), 0) != 0 ||
      pwrite(place.lock_.get(), pid.data(), pid.size(), 0) != static_cast<ssize_t>(pid.size())) {
    return place_error(lock, "cannot be written");
  }
  return place;
}

Result<void> JournalPlace::hold(const fs::path& live) {
  const auto there = wire::inode_at(live);
  if (!there) return place_error(live, "cannot be looked at");
  if (live_ && live_->inode == *there) return {};
  wire::Fd file(open(live.c_str(), O_RDWR | O_CLOEXEC));
  if (auto ok = take(file, live, directory_.path, lock_); !ok) return ok;
  const auto inode = wire::inode_of(file);
  if (!inode) return place_error(live, "cannot be looked at");
  live_fd_ = std::move(file);
  live_ = {live, *inode};
  return {};
}

void JournalPlace::watch_log(const fs::path& log) {
  if (log_) return;
  if (const auto inode = wire::inode_at(log)) log_ = {log, *inode};
}

bool JournalPlace::directory_moved() const {
  return wire::leads_elsewhere(directory_.path, directory_.inode);
}

Result<void> JournalPlace::check() const {
  if (directory_moved()) {
    return Error{fmt::format(
        "{} was moved, deleted or replaced while the daemon was running; jobs continue; restart "
        "the daemon with --state and the path where that directory is now",
        directory_.path.string())};
  }
  for (const auto& watched : {live_, log_}) {
    if (!watched || !wire::leads_elsewhere(watched->path, watched->inode)) continue;
    return Error{
        fmt::format("{} was deleted or replaced while the daemon was running; jobs continue",
                    watched->path.string())};
  }
  return {};
}

}  // namespace rubato::journal
