// The daemon's memory: an append-only journal in a state directory. docs/journal.md has the format
// and what is guaranteed; in short:
//
//   append() returns when the rows are durable. Rows whose append() failed may turn up at the next
//   open() if the process dies before another append() succeeds; all of that append() or none.
//   open() finds every row whose append() returned, or says in `dropped` which ones it could not
//   read and where they are kept. It never starts from a row that it cannot vouch for, and no
//   content of the files makes it fail twice: what is damaged is set aside, not deleted.
//
// A state directory holds
//
//   lock                                          held by the one daemon there, with its pid;
//                                                 it also locks the directory and the live file
//   journal.sqlite, -wal, -shm                    the live file
//   journal-000000000001-000000004711.sqlite      archived rows 1 to 4711, with a snapshot at 4711;
//                                                 the oldest of these may be removed (prune)
//   journal.sqlite.damaged-1, -wal                set aside by a repair, as are segments
//   journal.unfinished-1.wal                      the end of a log that holds no whole transaction
//   repairs.log                                   what was said about repairs
//
// Belongs to one thread. Files are made readable by their owner alone.
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
  // Types of rows with the newest version that the program reads: any other row is refused, because
  // a newer program wrote it.
  std::map<std::string, int, std::less<>> types;
  int snapshot_version = 1;  // the newest it reads

  // For tests: called before every step that changes a file, and another file layer for SQLite.
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

  // The last row that is stored; 0 if there is none.
  [[nodiscard]] RowNumber last() const;

  // Stores the rows in one transaction and returns the number of the last when all are durable.
  // After an error none is stored, the journal stays usable, and the same rows may be tried again.
  [[nodiscard]] Result<RowNumber> append(const std::vector<JournalRow>& rows);

  // Stores what the rows up to `number` fold to. The two newest are kept.
  [[nodiscard]] Result<void> write_snapshot(const JournalSnapshot& snapshot);

  // Moves the rows up to the newest snapshot into a segment. Nothing to do is no error.
  [[nodiscard]] Result<void> compact();

  // One sentence once the directory or a file of the journal is no longer where it was: deleted,
  // moved or replaced. From then on nothing is stored or read. If the directory is still there,
  // what the journal had was written anew, and the next open() finds it. append(), read() and the
  // others look by themselves.
  [[nodiscard]] Result<void> check_place();

  // Removes archived rows: whole segments, the oldest first, as long as old(last row, its time)
  // says so. The newest segment stays: its snapshot stands in for a damaged live file.
  [[nodiscard]] Result<void> prune(const std::function<bool(RowNumber last, Time at)>& old);

  // The first row that is still there.
  [[nodiscard]] Result<RowNumber> first() const;

  // All rows after `after`, archived ones first, each checked. Ends early with the error of `each`.
  [[nodiscard]] Result<void> read(RowNumber after, const JournalFile::Each& each) const;

 private:
  struct Open;
  explicit Journal(std::unique_ptr<Open> open);

  std::unique_ptr<Open> open_;
};

struct Journal::Opened {
  Journal journal;
  std::optional<JournalSnapshot> snapshot;  // the newest good one; go on with read(its number)
  std::string dropped;                      // what could not be read and where it is; or empty
};

// What is there of a journal, from outside.
struct JournalExtent {
  RowNumber first;
  RowNumber last;  // 0: no row
  // If the first rows are no longer kept: the oldest snapshot, from which rows can be folded.
  std::optional<JournalSnapshot> begin;
};
[[nodiscard]] Result<JournalExtent> look_at_journal(const std::filesystem::path& directory);

// read() without the lock and without repairs, for looking into the journal of a daemon that runs
// or of one that is long gone. A journal that is damaged in the middle is an error at that row.
[[nodiscard]] Result<void> read_journal(const std::filesystem::path& directory, RowNumber after,
                                        const JournalFile::Each& each);

}  // namespace rubato::journal
