#include "rubato/elastic/checkpoint_directory.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <string_view>
#include <sys/file.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include "rubato/base/check.h"
#include "rubato/base/text.h"
#include "rubato/elastic/checkpoint_files.h"
#include "rubato/elastic/checkpoint_rounds.h"
#include "rubato/wire/socket.h"

namespace rubato::elastic {
namespace {

constexpr std::string_view kPrefixOfNames = "step-";
constexpr std::string_view kSuffixOfNames = ".ckpt";
constexpr std::string_view kSuffixOfTemporaries = ".tmp";

bool is_checkpoint_name(std::string_view name) {
  return name.starts_with(kPrefixOfNames) && name.ends_with(kSuffixOfNames);
}

// "step-000000000123.ckpt.4711-0.tmp"
bool is_temporary_name(std::string_view name) {
  return name.starts_with(kPrefixOfNames) && name.ends_with(kSuffixOfTemporaries);
}

std::string name_of(std::int64_t step) {
  return fmt::format("{}{:012}{}", kPrefixOfNames, step, kSuffixOfNames);
}

struct Found {
  std::string path;
  std::optional<CheckpointAge> age;  // nullopt: the header is damaged
  std::string problem;
};

// All checkpoints, by their headers: the newest first, damaged ones last.
Result<std::vector<Found>> survey(const std::string& directory) {
  auto names = names_in(directory);
  if (!names) return names.error();
  std::vector<Found> all;
  for (const auto& name : *names) {
    Found found{inside(directory, name), {}, {}};
    if (const auto of_round = parse_checkpoint_name(name)) {
      // Which claim it belongs to is in its name: a base keeps the header of an earlier one.
      found.age = {of_round->round, of_round->recovery, 0, of_round->step};
      all.push_back(std::move(found));
      continue;
    }
    if (!is_checkpoint_name(name)) continue;
    const auto age = read_age(found.path);
    if (age && !age->has_value()) continue;  // another writer removed it
    if (age) {
      found.age = *age;
    } else {
      found.problem = age.error().message;
    }
    all.push_back(std::move(found));
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Found& a, const Found& b) { return b.age < a.age; });
  return all;
}

// Locks DIR/.lock. Holders need the lock only for moments. If somebody keeps it, that process is
// stuck. Then training must get an error instead of waiting.
Result<wire::Fd> lock_directory(const std::string& directory) {
  constexpr auto kPatience = std::chrono::seconds(20);
  constexpr auto kPause = std::chrono::milliseconds(5);
  const auto path = inside(directory, ".lock");
  wire::Fd file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (!file.valid()) return file_error(path, "cannot be made", errno);
  const auto until = std::chrono::steady_clock::now() + kPatience;
  while (::flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) return file_error(path, "cannot be locked", errno);
    if (std::chrono::steady_clock::now() > until)
      return Error{fmt::format("{}: locked by another process for more than {} s; is it stopped?",
                               path, kPatience.count())};
    std::this_thread::sleep_for(kPause);
  }
  return file;
}

// The content of the lock file: "START START-OF-THE-JOB DIGEST-OF-THE-JOB".
struct Claim {
  std::int64_t start = 0;   // of the directory: grows with each new owner
  std::int64_t of_job = 0;  // CheckpointOwner::start
  std::int64_t job = 0;     // digest
};

// All zeros if nobody has claimed the directory.
Claim claim_in(const wire::Fd& lock) {
  std::array<char, 100> text{};
  const auto size = ::pread(lock.get(), text.data(), text.size(), 0);
  if (size <= 0) return {};
  const auto words = split(trim({text.data(), static_cast<std::size_t>(size)}), ' ');
  if (words.size() != 3) return {};
  return {parse_integer(words[0]).value_or(0), parse_integer(words[1]).value_or(0),
          parse_integer(words[2]).value_or(0)};
}

Error replaced(const std::string& directory, std::int64_t start, std::int64_t newest) {
  return Error{fmt::format(
      "{}: the checkpoint is refused: its writer belongs to start {} of those that used "
      "this directory, and start {} has replaced it",
      directory, start, newest)};
}

// Removes the temporary file unless it was finished.
class Temporary {
 public:
  Temporary(std::string path, wire::Fd file) : path_(std::move(path)), file_(std::move(file)) {}
  Temporary(Temporary&& other) noexcept
      : path_(std::exchange(other.path_, {})), file_(std::move(other.file_)) {}
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;
  Temporary& operator=(Temporary&&) = delete;
  ~Temporary() {
    if (!path_.empty()) ::unlink(path_.c_str());
  }

  [[nodiscard]] const wire::Fd& file() const { return file_; }
  [[nodiscard]] Result<void> rename(const std::string& path) {
    if (::rename(path_.c_str(), path.c_str()) != 0)
      return file_error(path_, fmt::format("cannot be renamed to {}", path), errno);
    path_.clear();
    return {};
  }

 private:
  std::string path_;
  wire::Fd file_;
};

Result<void> refuse_older(const std::string& directory, const CheckpointAge& mine,
                          const std::vector<Found>& present) {
  if (present.empty() || !present.front().age) return {};
  const CheckpointAge& newest = *present.front().age;
  if (mine.without_step() >= newest.without_step()) return {};
  if (mine.start < newest.start) return replaced(directory, mine.start, newest.start);
  return Error{
      fmt::format("{}: the checkpoint of step {} is refused: its writer belongs to generation ({}, "
                  "{}), and {} was written by ({}, {}), which replaced it",
                  directory, mine.step, mine.plan, mine.revision, present.front().path, newest.plan,
                  newest.revision)};
}

void remove_leftovers(const std::string& directory) {
  const auto names = names_in(directory);
  if (!names) return;  // the next steps need the directory, too, and report the error
  for (const auto& name : *names) {
    if (!is_temporary_name(name)) continue;
    const auto path = inside(directory, name);
    const wire::Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (file.valid() && ::flock(file.get(), LOCK_EX | LOCK_NB) == 0) ::unlink(path.c_str());
  }
}

// Call it under the lock of the directory, so that nobody takes the file for a leftover before it
// is locked itself.
Result<Temporary> make_temporary(const std::string& directory, std::int64_t step) {
  for (int attempt = 0;; ++attempt) {
    // A worker on another host may have our process id.
    const auto path = inside(directory, fmt::format("{}.{}-{}{}", name_of(step), ::getpid(),
                                                    attempt, kSuffixOfTemporaries));
    wire::Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (!file.valid() && errno == EEXIST && attempt < 1000) continue;
    if (!file.valid()) return file_error(path, "cannot be made", errno);
    Temporary temporary(path, std::move(file));
    if (::flock(temporary.file().get(), LOCK_EX | LOCK_NB) != 0)
      return file_error(path, "cannot be locked", errno);
    return temporary;
  }
}

// Keeps the newest `keep` checkpoints, and `written` in any case. Files that cannot be read are not
// removed: a newer Rubato may be able to read them, and load_newest() reports them.
void remove_older(const std::vector<Found>& present, int keep, const std::string& written) {
  int kept = 0;
  for (const auto& found : present) {
    if (!found.age || kept++ < keep || found.path == written) continue;
    ::unlink(found.path.c_str());
  }
}

Result<std::string> write_locked(const std::string& directory, const CheckpointContent& content,
                                 int keep) {
  const auto age = age_of(content.about);
  CHECK(age.has_value() && keep >= 1);
  const auto path = inside(directory, name_of(age->step));

  // Surveys the directory under a lock, and refuses the write if it must.
  const auto look = [&](const wire::Fd& lock) -> Result<std::vector<Found>> {
    if (const auto newest = claim_in(lock).start; age->start < newest) {
      return replaced(directory, age->start, newest);
    }
    auto present = survey(directory);
    if (!present) return present.error();
    if (auto ok = refuse_older(directory, *age, *present); !ok) return ok.error();
    return present;
  };
  auto temporary = [&]() -> Result<Temporary> {
    const auto lock = lock_directory(directory);
    if (!lock) return lock.error();
    if (auto present = look(*lock); !present) return present.error();
    remove_leftovers(directory);
    return make_temporary(directory, age->step);
  }();
  if (!temporary) return temporary.error();

  const CheckpointImage image(content);
  if (const int error = write_all(temporary->file(), image); error != 0)
    return no_room(path, image.bytes, error);

  const auto lock = lock_directory(directory);
  if (!lock) return lock.error();
  if (auto present = look(*lock); !present) return present.error();
  if (auto ok = temporary->rename(path); !ok) return ok.error();
  if (auto ok = sync_directory(directory); !ok) return ok.error();
  if (auto present = survey(directory); present) remove_older(*present, keep, path);
  return path;
}

std::int64_t start_of_lock(const std::string& directory) {
  const wire::Fd lock(::open(inside(directory, ".lock").c_str(), O_RDONLY | O_CLOEXEC));
  return lock.valid() ? claim_in(lock).start : 0;
}

}  // namespace

std::int64_t newest_start(const std::string& directory) {
  const auto present = survey(directory);
  const bool any = present && !present->empty() && present->front().age;
  return std::max(start_of_lock(directory), any ? present->front().age->start : 0);
}

Result<std::string> write_checkpoint(const std::string& directory, const CheckpointContent& content,
                                     int keep) {
  if (auto ok = make_directory(directory); !ok) return ok.error();
  return write_locked(directory, content, keep);
}

Result<std::optional<std::int64_t>> claim_checkpoints(const std::string& directory,
                                                      const CheckpointOwner& owner) {
  if (auto ok = make_directory(directory); !ok) return ok.error();
  const auto lock = lock_directory(directory);
  if (!lock) return lock.error();
  const Claim before = claim_in(*lock);
  Claim mine{before.start, owner.start, digest_of(owner.job)};
  const bool same_job = before.start > 0 && before.job == mine.job;
  if (same_job && mine.of_job < before.of_job) return std::optional<std::int64_t>();
  if (same_job && mine.of_job == before.of_job) return std::optional(before.start);
  auto present = survey(directory);
  if (!present) return present.error();
  if (!present->empty() && present->front().age) {
    mine.start = std::max(mine.start, present->front().age->start);
  }
  mine.start = std::max(mine.start, newest_claim(directory));
  ++mine.start;
  // Always the same length, so that nothing of an older text remains.
  const std::string text = fmt::format("{:020} {:020} {:020}\n", mine.start, mine.of_job, mine.job);
  if (::pwrite(lock->get(), text.data(), text.size(), 0) != static_cast<ssize_t>(text.size()) ||
      ::fsync(lock->get()) != 0)
    return file_error(inside(directory, ".lock"), "cannot be written", errno);
  return std::optional(mine.start);
}

Result<std::optional<Loaded>> load_newest(const std::string& directory) {
  std::error_code ignored;
  if (!std::filesystem::exists(directory, ignored)) return std::optional<Loaded>();
  auto present = survey(directory);
  if (!present) return present.error();
  // If a round has claimed the directory, and no job of one machine after it, only its files count:
  // a worker of an earlier round may have written later.
  const std::int64_t claimed = newest_claim(directory);
  if (claimed > start_of_lock(directory)) {
    std::erase_if(*present,
                  [&](const Found& found) { return !found.age || found.age->start != claimed; });
  }
  std::optional<Loaded> newest;
  std::vector<SkippedCheckpoint> skipped;
  for (const auto& found : *present) {
    if (!found.age) {
      skipped.push_back({found.path, found.problem});
      continue;
    }
    if (newest) continue;
    auto loaded = load_checkpoint(found.path);
    if (loaded) {
      newest = std::move(*loaded);
    } else {
      skipped.push_back({found.path, loaded.error().message});
    }
  }
  if (newest) {
    newest->skipped = std::move(skipped);
    return newest;
  }
  if (skipped.empty()) return std::optional<Loaded>();
  return Error{
      fmt::format("{}: none of its {} checkpoints can be used (the newest: {}); repair or remove "
                  "them to start from the beginning",
                  directory, skipped.size(), skipped.front().reason)};
}

}  // namespace rubato::elastic
