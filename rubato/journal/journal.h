// The daemon's journal: append-only rows in a state directory. docs/journal.md has the format and
// the guarantees. In short:
//
//   append() returns when the rows are durable. If append() fails and the process dies before
//   another append() succeeds, the next open() may find its rows: all of them or none.
//   open() finds every row whose append() has returned. Otherwise `dropped` says which rows it
//   could not read and where they are kept. It never continues from a row that it could not verify.
//   It does not fail twice because of the content of a file: a damaged file is set aside, not
//   deleted.
//
// A state directory has these files:
//
//   lock                                          locked by the daemon that uses the directory,
//   with
//                                                 its pid; the directory and the live file are
//                                                 locked, too
//   journal.sqlite, -wal, -shm                    the live file
//   journal-000000000001-000000004711.sqlite      archived rows 1 to 4711, with a snapshot at 4711;
//                                                 the oldest of these may be removed (prune)
//   journal.sqlite.damaged-1, -wal                set aside by a repair; segments likewise
//   journal.unfinished-1.wal                      the end of a log without a complete transaction
//   repairs.log                                   all messages about repairs
//
// Belongs to one thread. Only the owner can read the files.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rubato/base/result.h"
#include "rubato/journal/journal_file.h"

namespace rubato::journal {

struct JournalOptions {
  std::filesystem::path directory;
  // The types of rows, each with the newest version that the program reads. Any other row is
  // refused, because a newer program wrote it.
  std::map<std::string, int, std::less<>> types;
  int snapshot_version = 1;  // the newest version that the program reads

  // For tests: a function that is called before every step that changes a file, and another file
  // layer for SQLite.
  BeforeWrite before_write;
  std::string vfs;
};

class Journal {
 public:
  struct Opened;

  [[nodiscard]] static Result<Opened> open(const JournalOptions& options);
  ~Journal();
  Journal(Journal&&) noexcept;
  Journal& operator=(Journal&&) noexcept;

  // The number of the last stored row; 0 if there is none.
  [[nodiscard]] RowNumber last() const;

  // Stores the rows in one transaction. Returns the number of the last one when all are durable.
  // After an error none is stored, the journal can still be used, and the same rows may be appended
  // again.
  [[nodiscard]] Result<RowNumber> append(const std::vector<JournalRow>& rows);

  // Stores the result of folding the rows up to `number`. The two newest snapshots are kept.
  [[nodiscard]] Result<void> write_snapshot(const JournalSnapshot& snapshot);

  // Moves the rows up to the newest snapshot into a segment. It is no error if there are none.
  [[nodiscard]] Result<void> compact();

  // An error if the directory or a file of the journal is no longer where it was: deleted, moved or
  // replaced. After that nothing is stored or read any more. If the directory is still there, the
  // content of the journal has been written there again, and the next open() finds it. append(),
  // read() and the others call this themselves.
  [[nodiscard]] Result<void> check_place();

  // Removes archived rows: whole segments, the oldest first, while old(last row, its time) is true.
  // The newest segment stays, because its snapshot is needed if the live file is damaged.
  [[nodiscard]] Result<void> prune(const std::function<bool(RowNumber last, Time at)>& old);

  // The first row that is still kept.
  [[nodiscard]] Result<RowNumber> first() const;

  // Calls `each` for all rows after `after`, archived ones first, and checks each. Stops at an
  // error of `each`.
  [[nodiscard]] Result<void> read(RowNumber after, const JournalFile::Each& each) const;

 private:
  struct Open;
  explicit Journal(std::unique_ptr<Open> open);

  std::unique_ptr<Open> open_;
};

struct Journal::Opened {
  Journal journal;
  std::optional<JournalSnapshot> snapshot;  // the newest good one; continue with read(its number)
  std::string dropped;  // what could not be read, and where it is kept; or empty
};

// The rows of a journal that exist, for programs other than its daemon.
struct JournalExtent {
  RowNumber first;
  RowNumber last;  // 0: no row
  // The oldest snapshot, if the first rows are no longer kept: rows after it can be folded.
  std::optional<JournalSnapshot> begin;
};
[[nodiscard]] Result<JournalExtent> look_at_journal(const std::filesystem::path& directory);

// read() without the lock and without repairs, for the journal of a daemon that is running or has
// ended. If the journal is damaged in the middle, the error names the row.
[[nodiscard]] Result<void> read_journal(const std::filesystem::path& directory, RowNumber after,
                                        const JournalFile::Each& each);

}  // namespace rubato::journal
