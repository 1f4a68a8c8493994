// One database file of a journal: the live file, or an archived segment. docs/journal.md has the
// format. Rows are chained: the checksum of a row covers its content and the checksum of the row
// before it. The checksum of the first row covers that of the file's `about`, which has the
// identity of the journal. So a changed, missing, repeated or foreign row is noticed at that row.
//
// Belongs to one thread.
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

// Numbers begin at 1 and have no gaps. 0 stands before the first row.
using RowNumber = Id<struct RowTag, std::uint64_t>;

struct JournalRow {
  Time time = kStart;  // of the loop
  std::string type;
  int version = 1;  // of the type
  std::string body;
  friend bool operator==(const JournalRow&, const JournalRow&) = default;
};

// The result of folding all rows up to `number`.
struct JournalSnapshot {
  RowNumber number;
  int version = 1;
  std::string body;
  friend bool operator==(const JournalSnapshot&, const JournalSnapshot&) = default;
};

// The end of a chain of rows.
struct ChainEnd {
  RowNumber number;  // of the last row
  Digest checksum{};
};

// For tests: called with a word for each step that is about to write.
using BeforeWrite = std::function<void(std::string_view step)>;

class JournalFile {
 public:
  static constexpr int kSchema = 1;

  struct About {
    std::string id;   // of the journal, random, made once
    ChainEnd before;  // the row before the first one here, which may be in another file
  };
  struct Snapshot {
    JournalSnapshot content;
    Digest row{};  // checksum of the row with its number
  };

  // A new file for rows that follow `about.before`.
  [[nodiscard]] static Result<JournalFile> create(const std::string& path, const About& about,
                                                  const std::string& vfs,
                                                  const BeforeWrite& before);
  // Opens a file that exists. If the file is damaged, the Result is an Error, and `damage` says
  // what is wrong. After other errors `damage` is empty: the file may be good, or of a newer
  // version.
  [[nodiscard]] static Result<JournalFile> open(const std::string& path, Database::Mode mode,
                                                const std::string& vfs, const BeforeWrite& before,
                                                std::string& damage);

  [[nodiscard]] const About& about() const { return about_; }
  [[nodiscard]] const std::string& path() const { return database_->path(); }

  // Switches to a write-ahead log in which every commit is durable. For the live file.
  [[nodiscard]] Result<void> use_log();

  // Appends the rows in one transaction. After an error nothing is stored, as far as this process
  // can tell, and `end` is unchanged. With `forget_after_end`, rows beyond `end` are removed first.
  // They are left over from a transaction that failed.
  [[nodiscard]] Result<void> append(const std::vector<JournalRow>& rows, ChainEnd& end,
                                    bool forget_after_end);
  [[nodiscard]] Result<void> put_snapshot(const Snapshot& snapshot);
  // Removes the rows up to `end`, which are in another file by now, and the snapshots before it.
  [[nodiscard]] Result<void> forget_up_to(const ChainEnd& end);

  struct Walked {
    ChainEnd end;          // of the last good row
    std::string broken;    // why the row after it is not good; empty if there is none
    RowNumber last_there;  // the largest number in the file, if known
  };
  // Checks the rows after `from` one by one and calls `each` for each good one. An Error comes from
  // `each`, or has a cause outside of the file.
  using Each = std::function<Result<void>(RowNumber number, const JournalRow& row)>;
  [[nodiscard]] Result<Walked> walk(const ChainEnd& from, const Each& each);

  // The last row, good or not. If there is none, the row before the first.
  [[nodiscard]] Result<RowNumber> last();

  // What SQLite reports as wrong with the file as a whole; empty if nothing.
  [[nodiscard]] Result<std::string> check_structure();

  // The snapshots whose checksum is right, the newest first.
  [[nodiscard]] Result<std::vector<Snapshot>> snapshots();
  // The checksum of row `number`. For the row before the first one, the checksum that the file has
  // stored.
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
