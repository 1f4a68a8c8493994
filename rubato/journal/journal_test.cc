#include "rubato/journal/journal.h"

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <map>
#include <optional>
#include <rapidcheck/gtest.h>
#include <sqlite3.h>
#include <string>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "rubato/base/random.h"
#include "rubato/base/testing_seeds.h"
#include "rubato/journal/testing_vfs.h"

namespace rubato::journal {
namespace {

namespace fs = std::filesystem;

// In memory where there is such a place: what is tested is not the disk.
class Directory {
 public:
  Directory() {
    const fs::path shared_memory = "/dev/shm";
    const fs::path above = fs::exists(shared_memory) ? shared_memory : fs::temp_directory_path();
    std::string name = (above / "rubato-journal-XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~Directory() { fs::remove_all(path_); }
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;

  [[nodiscard]] const fs::path& path() const { return path_; }
  [[nodiscard]] fs::path live() const { return path_ / "journal.sqlite"; }
  [[nodiscard]] fs::path log() const { return path_ / "journal.sqlite-wal"; }
  [[nodiscard]] JournalOptions options() const {
    JournalOptions options;
    options.directory = path_;
    options.types = {{"event", 2}, {"note", 1}};
    return options;
  }
  // Names beside the live file, without the parts of SQLite.
  [[nodiscard]] std::vector<std::string> others() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(path_)) {
      const std::string name = entry.path().filename().string();
      if (name != "lock" && name != "journal.sqlite" && name != "journal.sqlite-wal" &&
          name != "journal.sqlite-shm" && name != "repairs.log") {
        names.push_back(name);
      }
    }
    std::sort(names.begin(), names.end());
    return names;
  }

 private:
  fs::path path_;
};

std::string bytes_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}
void write_bytes(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

// The n-th row of every journal here.
JournalRow row(std::uint64_t n) {
  std::string body = "{\"n\":" + std::to_string(n) + ",\"text\":\"";
  body.append(n * 37 % 400, static_cast<char>('a' + n % 26));
  return {time_at(static_cast<double>(n) / 8), n % 3 == 0 ? "note" : "event",
          n % 3 == 0 ? 1 : 1 + static_cast<int>(n % 2), body + "\"}"};
}
std::vector<JournalRow> rows(std::uint64_t first, std::uint64_t last) {
  std::vector<JournalRow> rows;
  for (std::uint64_t n = first; n <= last; ++n) rows.push_back(row(n));
  return rows;
}
JournalSnapshot snapshot_at(std::uint64_t n) {
  return {RowNumber(n), 1, "{\"folded\":" + std::to_string(n) + "}"};
}

std::vector<JournalRow> all_rows(const Journal& journal, std::uint64_t after = 0) {
  std::vector<JournalRow> found;
  const auto ok = journal.read(RowNumber(after), [&](RowNumber number, const JournalRow& one) {
    EXPECT_EQ(number.value(), after + found.size() + 1);
    found.push_back(one);
    return Result<void>();
  });
  EXPECT_TRUE(ok.ok()) << ok.error().message;
  return found;
}

Journal::Opened must_open(const JournalOptions& options) {
  auto opened = Journal::open(options);
  EXPECT_TRUE(opened.ok()) << opened.error().message;
  return std::move(*opened);
}

std::string problem(const JournalOptions& options) {
  const auto opened = Journal::open(options);
  return opened ? "opened" : opened.error().message;
}

void append(Journal& journal, std::uint64_t first, std::uint64_t last) {
  const auto done = journal.append(rows(first, last));
  ASSERT_TRUE(done.ok()) << done.error().message;
  EXPECT_EQ(done->value(), last);
}

// With other hands than the journal's own.
void with_sqlite(const fs::path& path, const std::string& sql) {
  sqlite3* database = nullptr;
  ASSERT_EQ(sqlite3_open(path.c_str(), &database), SQLITE_OK);
  EXPECT_EQ(sqlite3_exec(database, sql.c_str(), nullptr, nullptr, nullptr), SQLITE_OK)
      << sqlite3_errmsg(database);
  sqlite3_close(database);
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(Journal, KeepsWhatWasAppendedInOrder) {
  const Directory directory;
  {
    auto opened = must_open(directory.options());
    EXPECT_EQ(opened.journal.last(), RowNumber());
    EXPECT_FALSE(opened.snapshot);
    EXPECT_EQ(opened.dropped, "");
    append(opened.journal, 1, 1);
    append(opened.journal, 2, 50);
    EXPECT_EQ(opened.journal.append({}).value(), RowNumber(50)) << "nothing is no transaction";
    EXPECT_EQ(all_rows(opened.journal), rows(1, 50));
  }
  auto opened = must_open(directory.options());
  EXPECT_EQ(opened.dropped, "");
  EXPECT_EQ(opened.journal.last(), RowNumber(50));
  append(opened.journal, 51, 60);
  EXPECT_EQ(all_rows(opened.journal), rows(1, 60));
  EXPECT_EQ(all_rows(opened.journal, 57), rows(58, 60));
  EXPECT_EQ(all_rows(opened.journal, 60), rows(61, 60));
  EXPECT_TRUE(directory.others().empty());
  for (const auto& path : {directory.live(), directory.log(), directory.path() / "lock"})
    EXPECT_EQ(fs::status(path).permissions(), fs::perms::owner_read | fs::perms::owner_write);
}

TEST(Journal, IsReadFromOutsideWhileItIsWritten) {
  const Directory directory;
  auto opened = must_open(directory.options());
  append(opened.journal, 1, 5);
  std::vector<JournalRow> found;
  const auto each = [&](RowNumber, const JournalRow& one) {
    found.push_back(one);
    return Result<void>();
  };
  ASSERT_TRUE(read_journal(directory.path(), RowNumber(2), each).ok());
  EXPECT_EQ(found, rows(3, 5));
  const auto stopped =
      read_journal(directory.path(), RowNumber(),
                   [](RowNumber, const JournalRow&) { return Result<void>(Error{"enough"}); });
  EXPECT_EQ(stopped.error().message, "enough");
}

TEST(Journal, IsReadWholeWhileItsRowsAreArchived) {
  const Directory directory;
  auto opened = must_open(directory.options());
  append(opened.journal, 1, 9);
  for (const std::uint64_t archived : {3U, 7U}) {
    std::vector<JournalRow> found;
    const auto each = [&](RowNumber number, const JournalRow& one) -> Result<void> {
      found.push_back(one);
      if (number != RowNumber(1)) return {};
      if (auto ok = opened.journal.write_snapshot({RowNumber(archived), 1, "{}"}); !ok) return ok;
      return opened.journal.compact();
    };
    const auto read = read_journal(directory.path(), RowNumber(), each);
    ASSERT_TRUE(read.ok()) << read.error().message;
    EXPECT_EQ(found, rows(1, 9));
  }
}

TEST(Journal, HasOneDaemon) {
  const Directory directory;
  const auto opened = must_open(directory.options());
  EXPECT_EQ(problem(directory.options()),
            directory.path().string() + " belongs to a daemon that is running (process " +
                std::to_string(getpid()) + "); stop it first, or use another directory");
}

TEST(Journal, HasOneDaemonAlsoWithoutTheLockFile) {
  const Directory directory;
  auto opened = must_open(directory.options());
  append(opened.journal, 1, 3);
  fs::remove(directory.path() / "lock");
  EXPECT_TRUE(contains(problem(directory.options()), "belongs to a daemon that is running"));
  EXPECT_TRUE(contains(problem(directory.options()), "belongs to a daemon that is running"))
      << "the second one finds the lock file of the first";
  // The same file under another name.
  const Directory other;
  fs::create_hard_link(directory.live(), other.live());
  EXPECT_TRUE(contains(problem(other.options()), "belongs to a daemon that is running"));
  append(opened.journal, 4, 5);
}

TEST(Journal, RespectsTheLockOfAnOlderVersion) {
  const Directory directory;
  const int lock = open((directory.path() / "lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_EQ(flock(lock, LOCK_EX | LOCK_NB), 0);
  EXPECT_TRUE(contains(problem(directory.options()), "belongs to a daemon that is running"));
  close(lock);
  EXPECT_EQ(problem(directory.options()), "opened");
}

TEST(Journal, WhatIsDeletedUnderItIsWrittenAnew) {
  using Files = std::vector<std::string>;
  for (const Files& gone : {Files{"journal.sqlite-wal"}, Files{"journal.sqlite"},
                            Files{"journal.sqlite", "journal.sqlite-wal", "journal.sqlite-shm",
                                  "journal-000000000001-000000000005.sqlite", "lock"}}) {
    const Directory directory;
    {
      auto opened = must_open(directory.options());
      append(opened.journal, 1, 5);
      ASSERT_TRUE(opened.journal.write_snapshot(snapshot_at(5)).ok());
      ASSERT_TRUE(opened.journal.compact().ok());
      append(opened.journal, 6, 9);
      EXPECT_TRUE(opened.journal.check_place().ok());
      for (const std::string& name : gone) fs::remove(directory.path() / name);
      const auto refused = opened.journal.append(rows(10, 10));
      ASSERT_FALSE(refused.ok());
      EXPECT_TRUE(contains(refused.error().message, "was deleted or replaced while the daemon"))
          << refused.error().message;
      EXPECT_TRUE(contains(refused.error().message, "was written to")) << refused.error().message;
      EXPECT_FALSE(opened.journal.check_place().ok());
      EXPECT_FALSE(opened.journal.write_snapshot(snapshot_at(9)).ok());
      EXPECT_FALSE(opened.journal.compact().ok());
    }
    auto opened = must_open(directory.options());
    EXPECT_EQ(opened.dropped, "");
    EXPECT_EQ(opened.snapshot, snapshot_at(5));
    EXPECT_EQ(all_rows(opened.journal, 5), rows(6, 9));
    append(opened.journal, 10, 10);
  }
}

TEST(Journal, ADirectoryThatWasMovedIsNotWrittenTo) {
  const Directory directory;
  const fs::path moved = directory.path().string() + "-moved";
  {
    auto opened = must_open(directory.options());
    append(opened.journal, 1, 5);
    fs::rename(directory.path(), moved);
    const auto refused = opened.journal.append(rows(6, 6));
    ASSERT_FALSE(refused.ok());
    EXPECT_TRUE(contains(refused.error().message, "was moved, deleted or replaced"))
        << refused.error().message;
  }
  fs::rename(moved, directory.path());
  EXPECT_EQ(all_rows(must_open(directory.options()).journal), rows(1, 5));
}

TEST(Journal, TheLockOfADeadProcessIsFree) {
  const Directory directory;
  const pid_t child = fork();
  if (child == 0) {
    auto opened = Journal::open(directory.options());
    _exit(opened && opened->journal.append(rows(1, 3)) ? 7 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_EQ(WEXITSTATUS(status), 7);
  EXPECT_EQ(all_rows(must_open(directory.options()).journal), rows(1, 3));
}

TEST(Journal, OffersTheNewestSnapshotAndTheRowsAfterIt) {
  const Directory directory;
  {
    auto opened = must_open(directory.options());
    append(opened.journal, 1, 10);
    for (const std::uint64_t n : {3U, 7U, 10U})
      ASSERT_TRUE(opened.journal.write_snapshot(snapshot_at(n)).ok());
    append(opened.journal, 11, 12);
  }
  const auto opened = must_open(directory.options());
  EXPECT_EQ(opened.snapshot, snapshot_at(10));
  EXPECT_EQ(all_rows(opened.journal, 10), rows(11, 12));
}

TEST(Journal, ADamagedSnapshotIsReplacedByTheOneBefore) {
  const Directory directory;
  {
    auto opened = must_open(directory.options());
    append(opened.journal, 1, 10);
    for (const std::uint64_t n : {3U, 7U})
      ASSERT_TRUE(opened.journal.write_snapshot(snapshot_at(n)).ok());
  }
  with_sqlite(directory.live(), "UPDATE snapshot SET body = 'x' WHERE number = 7");
  {
    const auto opened = must_open(directory.options());
    EXPECT_EQ(opened.snapshot, snapshot_at(3));
  }
  with_sqlite(directory.live(), "DELETE FROM snapshot");
  EXPECT_FALSE(must_open(directory.options()).snapshot);
}

TEST(Journal, MovesOldRowsIntoSegmentsAndReadsOverThem) {
  const Directory directory;
  {
    auto opened = must_open(directory.options());
    EXPECT_TRUE(opened.journal.compact().ok()) << "nothing to do";
    append(opened.journal, 1, 30);
    ASSERT_TRUE(opened.journal.write_snapshot(snapshot_at(20)).ok());
    ASSERT_TRUE(opened.journal.compact().ok());
    EXPECT_TRUE(opened.journal.compact().ok()) << "nothing more to do";
    EXPECT_EQ(all_rows(opened.journal), rows(1, 30));
    append(opened.journal, 31, 40);
    EXPECT_FALSE(opened.journal.write_snapshot(snapshot_at(19)).ok());
    ASSERT_TRUE(opened.journal.write_snapshot(snapshot_at(40)).ok());
    ASSERT_TRUE(opened.journal.compact().ok());
    EXPECT_EQ(directory.others(),
              (std::vector<std::string>{"journal-000000000001-000000000020.sqlite",
                                        "journal-000000000021-000000000040.sqlite"}));
    append(opened.journal, 41, 42);
  }
  auto opened = must_open(directory.options());
  EXPECT_EQ(opened.dropped, "");
  EXPECT_EQ(opened.snapshot, snapshot_at(40));
  EXPECT_EQ(opened.journal.last(), RowNumber(42));
  EXPECT_EQ(all_rows(opened.journal), rows(1, 42));
  EXPECT_EQ(all_rows(opened.journal, 20), rows(21, 42));
  EXPECT_EQ(all_rows(opened.journal, 33), rows(34, 42));
  EXPECT_EQ(all_rows(opened.journal, 41), rows(42, 42));
  fs::remove(directory.path() / "journal-000000000021-000000000040.sqlite");
  const auto ok =
      opened.journal.read(RowNumber(), [](RowNumber, const JournalRow&) { return Result<void>(); });
  ASSERT_FALSE(ok.ok());
  EXPECT_TRUE(contains(ok.error().message, "begins after row 40, but no file has row 21"))
      << ok.error().message;
}

TEST(Journal, OldSegmentsAreRemovedOldestFirstAndItOpensWithoutThem) {
  const Directory directory;
  {
    auto opened = must_open(directory.options());
    for (const std::uint64_t last : {10, 20, 30, 40}) {
      append(opened.journal, last - 9, last);
      ASSERT_TRUE(opened.journal.write_snapshot(snapshot_at(last)).ok());
      ASSERT_TRUE(opened.journal.compact().ok());
    }
    append(opened.journal, 41, 42);
    EXPECT_EQ(opened.journal.first().value(), RowNumber(1));
    std::vector<std::uint64_t> asked;
    const auto up_to_20 = [&](RowNumber last, Time at) {
      EXPECT_EQ(at, row(last.value()).time);
      asked.push_back(last.value());
      return last <= RowNumber(20);
    };
    ASSERT_TRUE(opened.journal.prune(up_to_20).ok());
    EXPECT_EQ(asked, (std::vector<std::uint64_t>{10, 20, 30})) << "it stops at the first to keep";
    EXPECT_EQ(opened.journal.first().value(), RowNumber(21));
    EXPECT_EQ(all_rows(opened.journal, 20), rows(21, 42));
    EXPECT_FALSE(
        opened.journal
            .read(RowNumber(19), [](RowNumber, const JournalRow&) { return Result<void>(); })
            .ok())
        << "what is not there is not passed over";
  }
  const auto extent = look_at_journal(directory.path());
  ASSERT_TRUE(extent.ok()) << extent.error().message;
  EXPECT_EQ(extent->first, RowNumber(21));
  EXPECT_EQ(extent->last, RowNumber(42));
  EXPECT_EQ(extent->begin, snapshot_at(30));
  auto opened = must_open(directory.options());
  EXPECT_EQ(opened.dropped, "");
  EXPECT_EQ(opened.snapshot, snapshot_at(40));
  EXPECT_EQ(opened.journal.last(), RowNumber(42));
  ASSERT_TRUE(opened.journal.prune([](RowNumber, Time) { return true; }).ok());
  EXPECT_EQ(opened.journal.first().value(), RowNumber(31)) << "the newest segment stays";
}

TEST(Journal, WithoutTheLiveFileGoesOnAfterTheLastSegment) {
  const Directory directory;
  {
    auto opened = must_open(directory.options());
    append(opened.journal, 1, 30);
    ASSERT_TRUE(opened.journal.write_snapshot(snapshot_at(20)).ok());
    ASSERT_TRUE(opened.journal.compact().ok());
  }
  for (const auto& path : {directory.live(), directory.log()}) fs::remove(path);
  auto opened = must_open(directory.options());
  EXPECT_TRUE(contains(opened.dropped, "A new live file begins after row 20")) << opened.dropped;
  EXPECT_EQ(opened.snapshot, snapshot_at(20));
  append(opened.journal, 21, 22);
  EXPECT_EQ(all_rows(opened.journal), rows(1, 22));
}

TEST(Journal, ASnapshotLostFromTheLiveFileIsFoundInTheSegment) {
  const Directory directory;
  {
    auto opened = must_open(directory.options());
    append(opened.journal, 1, 30);
    ASSERT_TRUE(opened.journal.write_snapshot(snapshot_at(20)).ok());
    ASSERT_TRUE(opened.journal.compact().ok());
  }
  with_sqlite(directory.live(), "DELETE FROM snapshot");
  const auto opened = must_open(directory.options());
  EXPECT_EQ(opened.snapshot, snapshot_at(20));
  EXPECT_EQ(opened.journal.last(), RowNumber(30));
}

// --- damage ---

// The log of SQLite has all rows since the file was made, as long as nobody has moved them over.
TEST(Journal, RowsThatASegmentHasAndTheLiveFileDoesNotAreMissed) {
  const Directory directory;
  {
    auto opened = must_open(directory.options());
    append(opened.journal, 1, 30);
    ASSERT_TRUE(opened.journal.write_snapshot(snapshot_at(20)).ok());
    ASSERT_TRUE(opened.journal.compact().ok());
    append(opened.journal, 31, 33);
  }
  fs::remove(directory.log());
  {
    auto opened = must_open(directory.options());
    EXPECT_TRUE(contains(opened.dropped, "has lost rows: it ends with row 0, but rows up to 20"))
        << opened.dropped;
    EXPECT_EQ(opened.snapshot, snapshot_at(20));
    EXPECT_EQ(opened.journal.last(), RowNumber(20));
    append(opened.journal, 21, 25);
    ASSERT_TRUE(opened.journal.write_snapshot(snapshot_at(25)).ok());
    ASSERT_TRUE(opened.journal.compact().ok());
    EXPECT_EQ(directory.others(),
              (std::vector<std::string>{"journal-000000000001-000000000020.sqlite",
                                        "journal-000000000021-000000000025.sqlite",
                                        "journal.sqlite.damaged-1"}));
  }
  auto opened = must_open(directory.options());
  EXPECT_EQ(opened.dropped, "");
  EXPECT_EQ(all_rows(opened.journal), rows(1, 25));
}

// As older versions left it when their live file had lost its rows: the same numbers, other rows.
TEST(Journal, SegmentsNeverOverlap) {
  const Directory directory;
  const fs::path kept = directory.path() / "kept";
  {
    auto opened = must_open(directory.options());
    append(opened.journal, 1, 20);
    fs::copy_file(directory.live(), directory.path() / "copy");
    fs::copy_file(directory.log(), directory.path() / "copy-wal");
    append(opened.journal, 21, 21);
    ASSERT_TRUE(opened.journal.write_snapshot(snapshot_at(21)).ok());
    ASSERT_TRUE(opened.journal.compact().ok());
  }
  fs::rename(directory.path() / "copy", directory.live());
  fs::rename(directory.path() / "copy-wal", directory.log());
  fs::remove(directory.path() / "journal.sqlite-shm");
  const std::string segment = "journal-000000000001-000000000021.sqlite";
  fs::rename(directory.path() / segment, kept);
  {
    auto opened = must_open(directory.options());
    const auto other = opened.journal.append(rows(31, 34));  // numbers 21 to 24
    ASSERT_TRUE(other.ok());
  }
  fs::rename(kept, directory.path() / segment);
  auto opened = must_open(directory.options());
  EXPECT_TRUE(contains(opened.dropped, "its rows are not those of the live file"))
      << opened.dropped;
  EXPECT_EQ(opened.journal.last(), RowNumber(24)) << "the live file is the newer past";
  ASSERT_TRUE(opened.journal.write_snapshot(snapshot_at(24)).ok());
  ASSERT_TRUE(opened.journal.compact().ok());
  EXPECT_EQ(directory.others(),
            (std::vector<std::string>{"journal-000000000001-000000000021.sqlite.damaged-1",
                                      "journal-000000000001-000000000024.sqlite"}));
  EXPECT_EQ(all_rows(opened.journal).size(), 24U);
}

TEST(Journal, ADamagedTailIsCutAndKept) {
  const std::map<std::string, std::string> damages = {
      {"UPDATE journal SET body = 'x' WHERE number = 8", "row 8 does not have the content"},
      {"UPDATE journal SET time = time + 1 WHERE number = 8", "row 8 does not have the content"},
      {"UPDATE journal SET before = zeroblob(32) WHERE number = 8", "row 8 does not follow"},
      {"DELETE FROM journal WHERE number = 8", "row 8 is missing"},
  };
  for (const auto& [sql, what] : damages) {
    const Directory directory;
    {
      auto opened = must_open(directory.options());
      append(opened.journal, 1, 10);
    }
    with_sqlite(directory.live(), sql);
    {
      auto opened = must_open(directory.options());
      EXPECT_TRUE(contains(opened.dropped, what)) << opened.dropped;
      EXPECT_TRUE(contains(opened.dropped, "continues after row 7; rows 8 to 10 could not be used"))
          << opened.dropped;
      EXPECT_EQ(directory.others(), std::vector<std::string>{"journal.sqlite.damaged-1"});
      EXPECT_EQ(all_rows(opened.journal), rows(1, 7));
      append(opened.journal, 8, 9);
    }
    auto opened = must_open(directory.options());
    EXPECT_EQ(opened.dropped, "") << "said once";
    EXPECT_EQ(all_rows(opened.journal), rows(1, 9));
    with_sqlite(directory.path() / "journal.sqlite.damaged-1", "SELECT * FROM journal");
  }
}

TEST(Journal, RowsBeforeTheSnapshotMayBeLost) {
  const Directory directory;
  {
    auto opened = must_open(directory.options());
    append(opened.journal, 1, 10);
    ASSERT_TRUE(opened.journal.write_snapshot(snapshot_at(8)).ok());
  }
  with_sqlite(directory.live(), "DELETE FROM journal WHERE number BETWEEN 3 AND 8");
  auto opened = must_open(directory.options());
  EXPECT_TRUE(contains(opened.dropped, "rows up to 8 are missing")) << opened.dropped;
  EXPECT_EQ(opened.snapshot, snapshot_at(8));
  EXPECT_EQ(opened.journal.last(), RowNumber(10));
  EXPECT_EQ(all_rows(opened.journal, 8), rows(9, 10));
  append(opened.journal, 11, 11);
}

TEST(Journal, ForeignFilesDoNotMix) {
  const Directory one;
  const Directory other;
  for (const Directory* directory : {&one, &other}) {
    auto opened = must_open(directory->options());
    append(opened.journal, 1, 20);
    ASSERT_TRUE(opened.journal.write_snapshot(snapshot_at(20)).ok());
    ASSERT_TRUE(opened.journal.compact().ok());
    append(opened.journal, 21, 22);
  }
  const std::string segment = "journal-000000000001-000000000020.sqlite";
  fs::copy_file(other.path() / segment, one.path() / segment, fs::copy_options::overwrite_existing);
  auto opened = must_open(one.options());
  EXPECT_EQ(all_rows(opened.journal, 20), rows(21, 22));
  const auto ok =
      opened.journal.read(RowNumber(), [](RowNumber, const JournalRow&) { return Result<void>(); });
  ASSERT_FALSE(ok.ok());
  EXPECT_TRUE(contains(ok.error().message, "belongs to another journal than the live file"))
      << ok.error().message;
}

TEST(Journal, WhatANewerVersionWroteIsRefusedAndLeftAsItIs) {
  const auto refused = [](const std::string& sql, const std::string& what) {
    const Directory directory;
    {
      auto opened = must_open(directory.options());
      append(opened.journal, 1, 10);
      ASSERT_TRUE(opened.journal.write_snapshot({RowNumber(2), 1, "{}"}).ok());
    }
    auto options = directory.options();
    if (sql.empty()) {
      options.types = {{"event", 1}, {"note", 1}};
    } else {
      with_sqlite(directory.live(), sql);
    }
    for (int twice = 0; twice < 2; ++twice)
      EXPECT_TRUE(contains(problem(options), what)) << problem(options);
    EXPECT_TRUE(directory.others().empty());
  };
  refused("PRAGMA user_version = 2",
          "written by a newer version of rubato (schema 2, this one knows 1)");
  refused("", "row 5 is \"event\" of version 2, which this version of rubato does not read");
  {
    const Directory directory;
    auto options = directory.options();
    options.snapshot_version = 2;
    {
      auto opened = must_open(options);
      append(opened.journal, 1, 10);
      ASSERT_TRUE(opened.journal.write_snapshot({RowNumber(2), 2, "{}"}).ok());
    }
    EXPECT_TRUE(contains(problem(directory.options()), "the snapshot at row 2 is of version 2"));
  }
}

// Whatever the bytes: it opens, all it gives was written, in order; it is usable and the next time
// there is nothing to say.
void expect_survives(const Directory& directory, std::uint64_t written, bool must_say) {
  std::uint64_t kept = 0;
  {
    auto opened = must_open(directory.options());
    kept = opened.journal.last().value();
    ASSERT_LE(kept, written);
    if (must_say && kept < written) {
      EXPECT_NE(opened.dropped, "") << kept << " of " << written;
    }
    const std::uint64_t from = opened.snapshot ? opened.snapshot->number.value() : 0;
    if (opened.snapshot) {
      EXPECT_EQ(opened.snapshot, snapshot_at(from));
    }
    EXPECT_EQ(all_rows(opened.journal, from), rows(from + 1, kept));
    append(opened.journal, kept + 1, kept + 2);
  }
  auto opened = must_open(directory.options());
  EXPECT_EQ(opened.dropped, "");
  EXPECT_EQ(opened.journal.last().value(), kept + 2);
}

// A journal with rows in the file and in its log, and its bytes.
struct Written {
  explicit Written(const Directory& directory) {
    {
      auto opened = must_open(directory.options());
      append(opened.journal, 1, 60);
      EXPECT_TRUE(opened.journal.write_snapshot(snapshot_at(25)).ok());
    }
    with_sqlite(directory.live(), "PRAGMA wal_checkpoint(TRUNCATE)");
    {
      auto opened = must_open(directory.options());
      append(opened.journal, 61, 70);
      append(opened.journal, 71, 80);
    }
    file = bytes_of(directory.live());
    log = bytes_of(directory.log());
    EXPECT_GT(file.size(), 10'000U);
    EXPECT_GT(log.size(), 10'000U);
  }
  void put_back(const Directory& directory) const {
    fs::remove_all(directory.path());
    fs::create_directory(directory.path());
    write_bytes(directory.live(), file);
    write_bytes(directory.log(), log);
  }
  std::string file, log;
};

TEST(Journal, SurvivesTruncatedFiles) {
  const Directory directory;
  const Written written(directory);
  written.put_back(directory);
  expect_survives(directory, 80, true);
  Random random(3);
  for (int trial = 0; trial < 60; ++trial) {
    SCOPED_TRACE(trial);
    written.put_back(directory);
    const bool log = trial % 2 == 0;
    const auto size = random.below(log ? written.log.size() : written.file.size());
    SCOPED_TRACE(std::string(log ? "log" : "file") + " cut at " + std::to_string(size));
    fs::resize_file(log ? directory.log() : directory.live(), size);
    // A log that ends exactly after a transaction looks like a shorter one.
    expect_survives(directory, 80, !log || size > 32);
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(Journal, SurvivesChangedBytes) {
  const Directory directory;
  const Written written(directory);
  Random random(4);
  for (int trial = 0; trial < 300; ++trial) {
    SCOPED_TRACE(trial);
    std::string file = written.file;
    std::string log = written.log;
    std::string& changed = random.below(2) == 0 ? file : log;
    const auto many = trial % 5 == 0 ? 1 + random.below(2000) : 1;
    const auto at = random.below(changed.size());
    for (std::uint64_t i = 0; i < many && at + i < changed.size(); ++i)
      changed[at + i] = static_cast<char>(random.below(256));
    written.put_back(directory);
    write_bytes(directory.live(), file);
    write_bytes(directory.log(), log);
    SCOPED_TRACE(std::string(&changed == &file ? "file" : "log") + " at " + std::to_string(at));
    if (contains(problem(directory.options()), "newer version of rubato")) continue;
    written.put_back(directory);
    write_bytes(directory.live(), file);
    write_bytes(directory.log(), log);
    expect_survives(directory, 80, true);
    if (::testing::Test::HasFailure()) return;
  }
}

// SQLite reads a file whose header names an unknown format for writing, and writes it no more.
TEST(Journal, AHeaderThatForbidsWritingIsRepaired) {
  constexpr std::size_t kWriteVersion = 18;
  const Directory directory;
  {
    auto opened = must_open(directory.options());
    append(opened.journal, 1, 10);
  }
  with_sqlite(directory.live(), "PRAGMA wal_checkpoint(TRUNCATE)");
  std::string file = bytes_of(directory.live());
  file[kWriteVersion] = '\x7f';
  write_bytes(directory.live(), file);
  {
    auto opened = must_open(directory.options());
    EXPECT_TRUE(contains(opened.dropped, "cannot write it")) << opened.dropped;
    EXPECT_EQ(all_rows(opened.journal, 0), rows(1, 10));
    append(opened.journal, 11, 12);
  }
  EXPECT_EQ(must_open(directory.options()).dropped, "");
}

TEST(Journal, SurvivesGarbage) {
  Random random(5);
  const auto garbage = [&](std::size_t size) {
    std::string bytes(size, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random.below(256));
    return bytes;
  };
  for (const std::size_t size : {0U, 1U, 100U, 5000U, 20'000U}) {
    for (const std::size_t log : {0U, 31U, 6000U}) {
      const Directory directory;
      write_bytes(directory.live(), garbage(size));
      if (log > 0) write_bytes(directory.log(), garbage(log));
      write_bytes(directory.path() / "journal.sqlite-shm", garbage(40'000));
      auto opened = must_open(directory.options());
      EXPECT_NE(opened.dropped, "");
      EXPECT_TRUE(fs::exists(directory.path() / "journal.sqlite.damaged-1"));
      EXPECT_EQ(fs::file_size(directory.path() / "journal.sqlite.damaged-1"), size);
      append(opened.journal, 1, 3);
      EXPECT_EQ(all_rows(opened.journal), rows(1, 3));
    }
  }
}

// --- faults ---

// What a daemon does with its journal in a short life, with every change of a file numbered; at
// one of them something happens. Reports each append() that succeeded.
class JournalLife {
 public:
  JournalLife(const Directory& directory,
              std::function<int(std::size_t change, std::string_view what)> at)
      : options_(directory.options()),
        at_(std::move(at)),
        vfs_("watched", [this](std::string_view what) { return at_(changes_++, what); }) {
    options_.vfs = "watched";
    options_.before_write = [this](std::string_view) { at_(changes_++, "step"); };
  }

  // Each open journal does some of it. False if a journal could not be opened.
  bool run(const std::function<void(std::uint64_t stored)>& stored) {
    for (int round = 0; round < 3; ++round) {
      auto opened = Journal::open(options_);
      if (!opened) return false;
      next_ = opened->journal.last().value() + 1;
      for (const std::uint64_t many : {1U, 3U, 2U}) add(opened->journal, many, stored);
      static_cast<void>(
          opened->journal.write_snapshot(snapshot_at(opened->journal.last().value())));
      add(opened->journal, 2, stored);
      static_cast<void>(opened->journal.compact());
      add(opened->journal, 1, stored);
    }
    return true;
  }

  [[nodiscard]] std::size_t changes() const { return changes_; }

 private:
  // Tries twice: after an error the journal must still be usable.
  void add(Journal& journal, std::uint64_t many, const std::function<void(std::uint64_t)>& stored) {
    for (int twice = 0; twice < 2; ++twice) {
      const auto done = journal.append(rows(next_, next_ + many - 1));
      if (!done) continue;
      next_ += many;
      stored(done->value());
      return;
    }
  }

  JournalOptions options_;
  std::function<int(std::size_t, std::string_view)> at_;
  std::size_t changes_ = 0;
  std::uint64_t next_ = 1;
  WatchedVfs vfs_;
};

// Ends of transactions: after each of these numbers of rows a state is whole. Every round adds 9.
bool is_whole(std::uint64_t rows) {
  const std::uint64_t in_round = rows % 9;
  return in_round == 0 || in_round == 1 || in_round == 4 || in_round == 6 || in_round == 8;
}

// Runs a life in a process of its own until it ends or dies; the last number it was told is stored.
struct Ended {
  std::uint64_t stored = 0;
  bool died = false;
};
Ended live_and_die(const Directory& directory, std::size_t at, bool in_the_middle) {
  std::array<int, 2> ends{};
  EXPECT_EQ(pipe(ends.data()), 0);
  const pid_t child = fork();
  if (child == 0) {
    JournalLife life(directory, [&](std::size_t change, std::string_view what) {
      if (change != at) return SQLITE_OK;
      if (in_the_middle && what == "write") return WatchedVfs::kDieInTheMiddle;
      _exit(WatchedVfs::kDead);
    });
    const bool whole = life.run([&](std::uint64_t stored) {
      if (write(ends[1], &stored, sizeof(stored)) != sizeof(stored)) _exit(1);
    });
    _exit(whole ? 0 : 2);
  }
  close(ends[1]);
  Ended ended;
  std::uint64_t stored = 0;
  while (read(ends[0], &stored, sizeof(stored)) == sizeof(stored)) ended.stored = stored;
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status));
  ended.died = WEXITSTATUS(status) == WatchedVfs::kDead;
  if (!ended.died) {
    EXPECT_EQ(WEXITSTATUS(status), 0);
  }
  return ended;
}

void expect_whole(const Directory& directory, std::uint64_t stored) {
  auto opened = must_open(directory.options());
  const std::uint64_t there = opened.journal.last().value();
  EXPECT_GE(there, stored) << "an acknowledged row is lost; dropped: " << opened.dropped;
  EXPECT_LE(there, stored + 3);
  EXPECT_TRUE(is_whole(there)) << there << " is the middle of a transaction";
  EXPECT_EQ(all_rows(opened.journal), rows(1, there));
  if (opened.snapshot) {
    EXPECT_EQ(opened.snapshot, snapshot_at(opened.snapshot->number.value()));
  }
  EXPECT_FALSE(contains(opened.dropped, "damaged")) << opened.dropped;
  append(opened.journal, there + 1, there + 1);
}

TEST(Journal, KilledAtAnyChangeOfAFileItKeepsWhatItAcknowledged) {
  for (const bool in_the_middle : {false, true}) {
    std::size_t at = 0;
    for (bool died = true; died; at += step_between_places()) {
      SCOPED_TRACE((in_the_middle ? "in the middle of change " : "before change ") +
                   std::to_string(at));
      const Directory directory;
      const Ended ended = live_and_die(directory, at, in_the_middle);
      died = ended.died;
      expect_whole(directory, ended.stored);
      if (::testing::Test::HasFailure()) return;
    }
    EXPECT_GT(at, 200U);
    RecordProperty(in_the_middle ? "torn" : "killed", static_cast<int>(at - step_between_places()));
  }
}

TEST(Journal, KilledWhileItRepairsItLosesNoMore) {
  const Directory original;
  {
    auto opened = must_open(original.options());
    append(opened.journal, 1, 9);
    EXPECT_TRUE(opened.journal.write_snapshot(snapshot_at(4)).ok());
  }
  with_sqlite(original.live(), "UPDATE journal SET body = 'x' WHERE number = 8");
  std::size_t at = 0;
  for (bool died = true; died; at += step_between_places()) {
    SCOPED_TRACE("killed at change " + std::to_string(at));
    const Directory directory;
    for (const auto& entry : fs::directory_iterator(original.path()))
      fs::copy_file(entry.path(), directory.path() / entry.path().filename());
    const pid_t child = fork();
    if (child == 0) {
      auto options = directory.options();
      std::size_t changes = 0;
      const auto count = [&](std::string_view) {
        if (changes++ == at) _exit(WatchedVfs::kDead);
        return SQLITE_OK;
      };
      const WatchedVfs vfs("watched", count);
      options.vfs = "watched";
      options.before_write = count;
      _exit(Journal::open(options).ok() ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    died = WEXITSTATUS(status) == WatchedVfs::kDead;
    if (!died) {
      ASSERT_EQ(WEXITSTATUS(status), 0);
    }
    const auto opened = must_open(directory.options());
    ASSERT_EQ(all_rows(opened.journal), rows(1, 7));
    ASSERT_EQ(opened.snapshot, snapshot_at(4));
    ASSERT_TRUE(contains(bytes_of(directory.path() / "repairs.log"), "row 8 does not have"));
    ASSERT_TRUE(fs::exists(directory.path() / "journal.sqlite.damaged-1"));
    ASSERT_FALSE(fs::exists(directory.path() / "journal.sqlite.damaged-2"));
  }
  EXPECT_GT(at, 20U);
}

// One change of a file fails, once, in every place and in several ways.
TEST(Journal, AFailedChangeIsAnErrorAndNothingElseIsLost) {
  for (const int code : {SQLITE_FULL, SQLITE_IOERR_FSYNC}) {
    bool reached = true;
    std::size_t failures = 0;
    for (std::size_t at = 0; reached; at += step_between_places()) {
      SCOPED_TRACE("code " + std::to_string(code) + " at change " + std::to_string(at));
      const Directory directory;
      std::uint64_t stored = 0;
      bool failed = false;
      {
        JournalLife life(directory, [&](std::size_t change, std::string_view what) {
          if (change != at || what == "step") return SQLITE_OK;
          failed = true;
          return code;
        });
        // One more try for whoever met the failure while opening.
        const auto note = [&](std::uint64_t last) { stored = last; };
        EXPECT_TRUE(life.run(note) || life.run(note));
        reached = life.changes() > at;
      }
      failures += failed ? 1 : 0;
      auto opened = must_open(directory.options());
      // A row whose append failed last may have come through after all.
      EXPECT_GE(opened.journal.last().value(), stored);
      EXPECT_EQ(all_rows(opened.journal), rows(1, opened.journal.last().value()));
      if (::testing::Test::HasFailure()) return;
    }
    EXPECT_GT(failures, tries(100));
  }
}

TEST(Journal, WhileTheDiskIsFullRowsAreRefusedAndThenItGoesOn) {
  const Directory directory;
  int answer = SQLITE_OK;
  const WatchedVfs vfs("filling",
                       [&](std::string_view what) { return what == "write" ? answer : SQLITE_OK; });
  auto options = directory.options();
  options.vfs = "filling";
  {
    auto opened = must_open(options);
    append(opened.journal, 1, 5);
    for (const auto& [code, what] : {std::pair(SQLITE_FULL, "the disk is full"),
                                     std::pair(SQLITE_READONLY, "it cannot be written"),
                                     std::pair(SQLITE_IOERR_WRITE, "the disk reports an error")}) {
      answer = code;
      for (int i = 0; i < 3; ++i) {
        const auto done = opened.journal.append(rows(6, 9));
        ASSERT_FALSE(done.ok());
        EXPECT_TRUE(contains(done.error().message, what)) << done.error().message;
        EXPECT_TRUE(contains(done.error().message, directory.live().string()));
        EXPECT_EQ(opened.journal.last(), RowNumber(5));
        EXPECT_FALSE(opened.journal.write_snapshot(snapshot_at(5)).ok());
      }
      EXPECT_EQ(all_rows(opened.journal), rows(1, 5)) << "reading goes on";
    }
    answer = SQLITE_OK;
    append(opened.journal, 6, 9);
  }
  EXPECT_EQ(all_rows(must_open(directory.options()).journal), rows(1, 9));
}

// The same with the system's own errors.
TEST(Journal, AFileSizeLimitIsAnErrorAndNotTheEnd) {
  const Directory directory;
  const pid_t child = fork();
  if (child == 0) {
    std::signal(SIGXFSZ, SIG_IGN);
    auto opened = Journal::open(directory.options());
    if (!opened || !opened->journal.append(rows(1, 5))) _exit(1);
    rlimit limit{};
    getrlimit(RLIMIT_FSIZE, &limit);
    rlimit small = limit;
    small.rlim_cur = fs::file_size(directory.log()) + 1000;
    setrlimit(RLIMIT_FSIZE, &small);
    if (opened->journal.append(rows(6, 60)).ok()) _exit(2);
    setrlimit(RLIMIT_FSIZE, &limit);
    _exit(opened->journal.append(rows(6, 60)).ok() ? 0 : 3);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(all_rows(must_open(directory.options()).journal), rows(1, 60));
}

TEST(Journal, AFullAndAReadOnlyFileSystemAreErrors) {
  const Directory above;
  const fs::path mounted = above.path() / "small";
  fs::create_directory(mounted);
  if (mount("none", mounted.c_str(), "tmpfs", 0, "size=1m") != 0)
    GTEST_SKIP() << "only root can mount a small file system";
  {
    JournalOptions options = above.options();
    options.directory = mounted / "state";
    auto opened = must_open(options);
    append(opened.journal, 1, 5);
    const fs::path filler = mounted / "filler";
    {
      std::ofstream file(filler, std::ios::binary);
      const std::string block(4096, 'x');
      while (file.write(block.data(), 4096).flush()) continue;
    }
    const auto full = opened.journal.append(rows(6, 400));
    ASSERT_FALSE(full.ok());
    EXPECT_TRUE(contains(full.error().message, "the disk is full")) << full.error().message;
    fs::remove(filler);
    append(opened.journal, 6, 40);
    ASSERT_EQ(mount("none", mounted.c_str(), "tmpfs", MS_REMOUNT | MS_RDONLY, "size=1m"), -1)
        << "busy with files that are open for writing";
    EXPECT_EQ(all_rows(opened.journal), rows(1, 40));
  }
  ASSERT_EQ(mount("none", mounted.c_str(), "tmpfs", MS_REMOUNT | MS_RDONLY, "size=1m"), 0);
  JournalOptions options = above.options();
  options.directory = mounted / "state";
  EXPECT_TRUE(contains(problem(options), "Read-only file system")) << problem(options);
  ASSERT_EQ(mount("none", mounted.c_str(), "tmpfs", MS_REMOUNT, "size=1m"), 0);
  EXPECT_EQ(all_rows(must_open(options).journal), rows(1, 40));
  umount(mounted.c_str());
}

// --- random lives ---

RC_GTEST_PROP(Journal, IsAListOfRowsWhateverIsDoneInBetween, (std::uint64_t seed)) {
  Random random(seed);
  const Directory directory;
  std::uint64_t written = 0;
  std::optional<std::uint64_t> newest;
  auto opened = std::make_unique<Journal::Opened>(must_open(directory.options()));
  for (int step = 0; step < 25; ++step) {
    switch (random.below(5)) {
      case 0:
      case 1: {
        const auto many = random.below(20);
        RC_ASSERT(opened->journal.append(rows(written + 1, written + many)).ok());
        written += many;
        break;
      }
      case 2: {
        const std::uint64_t at =
            std::max(newest.value_or(0), written - std::min(written, random.below(4)));
        RC_ASSERT(opened->journal.write_snapshot(snapshot_at(at)).ok());
        newest = at;
        break;
      }
      case 3:
        RC_ASSERT(opened->journal.compact().ok());
        break;
      default:
        opened.reset();
        opened = std::make_unique<Journal::Opened>(must_open(directory.options()));
        RC_ASSERT(opened->dropped == "");
        RC_ASSERT(opened->snapshot.has_value() == newest.has_value());
        if (newest) RC_ASSERT(*opened->snapshot == snapshot_at(*newest));
    }
    RC_ASSERT(opened->journal.last().value() == written);
  }
  RC_ASSERT(all_rows(opened->journal) == rows(1, written));
  const auto after = random.below(written + 1);
  RC_ASSERT(all_rows(opened->journal, after) == rows(after + 1, written));
}

}  // namespace
}  // namespace rubato::journal
