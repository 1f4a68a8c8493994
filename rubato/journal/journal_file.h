// One database file of a journal: the live one, or a segment that was archived. docs/journal.md has
// the format. Rows are chained: the checksum of a row covers its content and the checksum of the
// row before, the first row's that of the file's `about`, which has the identity of the journal. So
// a changed, missing, doubled or foreign row is seen at the row itself.
//
// Of one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rubato/base/id.h"
#include "rubato/base/result.h"
#include "rubato/base/time.h"
#include "rubato/journal/digest.h"
#include "rubato/journal/sqlite.h"

namespace rubato::journal {

// Dense from 1; 0 is before the first.
using RowNumber = Id<struct RowTag, std::uint64_t>;

struct JournalRow {
  Time time = kStart;  // of the loop
  std::string type;
  int version = 1;  // of the type
  std::string body;
  friend bool operator==(const JournalRow&, const JournalRow&) = default;
};

// What folding all rows up to `number` has given.
struct JournalSnapshot {
  RowNumber number;
  int version = 1;
  std::string body;
  friend bool operator==(const JournalSnapshot&, const JournalSnapshot&) = default;
};

// Where a chain of rows stands.
struct ChainEnd {
  RowNumber number;  // of the last row
  Digest checksum{};
};

// Tests look at and stop what is about to be written: called with a word for it.
using BeforeWrite = std::function<void(std::string_view step)>;

class JournalFile {
 public:
  static constexpr int kSchema = 1;

  struct About {
    std::string id;   // of the journal, drawn when it was made
    ChainEnd before;  // the row before the first one here, which may be in another file
  };
  struct Snapshot {
    JournalSnapshot content;
    Digest row{};  // checksum of the row it stands at
  };

  // A new file for rows that follow `about.before`.
  [[nodiscard]] static Result<JournalFile> create(const std::string& path, const About& about,
                                                  const std::string& vfs,
                                                  const BeforeWrite& before);
  // A file that exists. If it is not what it should be, the error is in `damage` and the Result is
  // an Error too; other errors leave `damage` empty: the file may be good, or newer than we are.
  [[nodiscard]] static Result<JournalFile> open(const std::string& path, Database::Mode mode,
                                                const std::string& vfs, const BeforeWrite& before,
                                                std::string& damage);

  [[nodiscard]] const About& about() const { return about_; }
  [[nodiscard]] const std::string& path() const { return database_->path(); }

  // The live file is written through a write-ahead log, every commit durable.
  [[nodiscard]] Result<void> use_log();

  // One transaction: rows in order of their numbers. On an error nothing is stored, as far as
  // this process can see; `end` moves only if all is. With `forget_after_end`, rows beyond `end`
  // are removed first: leftovers of a transaction that failed.
  [[nodiscard]] Result<void> append(const std::vector<JournalRow>& rows, ChainEnd& end,
                                    bool forget_after_end);
  [[nodiscard]] Result<void> put_snapshot(const Snapshot& snapshot);
  // Removes the rows up to `end`, which are elsewhere, and the snapshots before it.
  [[nodiscard]] Result<void> forget_up_to(const ChainEnd& end);

  struct Walked {
    ChainEnd end;          // of the last good row
    std::string broken;    // why the one after it is not good; empty if there is none
    RowNumber last_there;  // the largest number in the file, if it can be told
  };
  // Goes over the rows after `from`, checks each, and shows it if it is good. An Error is not the
  // file's fault, or one that `each` gave.
  using Each = std::function<Result<void>(RowNumber number, const JournalRow& row)>;
  [[nodiscard]] Result<Walked> walk(const ChainEnd& from, const Each& each);

  // The last row, of whatever state; the one before the first if there is none.
  [[nodiscard]] Result<RowNumber> last();

  // What SQLite finds wrong with the file as a whole; empty if nothing.
  [[nodiscard]] Result<std::string> check_structure();

  // Snapshots whose own checksum is right, the newest first.
  [[nodiscard]] Result<std::vector<Snapshot>> snapshots();
  // The checksum that row `number` has, or that the file says the row before its first has.
  [[nodiscard]] Result<std::optional<Digest>> checksum_of(RowNumber number);

 private:
  JournalFile(std::unique_ptr<Database> database, BeforeWrite before)
      : database_(std::move(database)), before_(std::move(before)) {}

  void about_to(std::string_view step) const {
    if (before_) before_(step);
  }
  [[nodiscard]] Result<void> read_about(std::string& damage);
  [[nodiscard]] Result<void> insert(Statement& statement, const JournalRow& row, ChainEnd& end);
  [[nodiscard]] Result<void> in_transaction(const std::function<Result<void>()>& write);
  [[nodiscard]] Digest checksum(const About& about);
  [[nodiscard]] Digest checksum(const JournalRow& row, RowNumber number, const Digest& before);
  [[nodiscard]] Digest checksum(const Snapshot& snapshot);

  std::unique_ptr<Database> database_;
  BeforeWrite before_;
  About about_;
  std::unique_ptr<Digester> digester_ = std::make_unique<Digester>();
};

}  // namespace rubato::journal
