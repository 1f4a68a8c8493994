// The few functions of SQLite that the journal needs, with Results instead of error codes. Belongs
// to one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "rubato/base/result.h"

struct sqlite3;
struct sqlite3_stmt;

namespace rubato::journal {

class Database;

// A prepared statement. Values are bound from 1, columns are counted from 0.
class Statement {
 public:
  Statement& bind(int at, std::int64_t value);
  Statement& bind_text(int at, std::string_view text);  // must stay valid until the next reset()
  Statement& bind_blob(int at, std::string_view bytes);

  // True if there is a row, false at the end.
  [[nodiscard]] Result<bool> step();
  // Steps once and expects no row. The statement can then be used again.
  [[nodiscard]] Result<void> run();
  void reset();

  [[nodiscard]] std::int64_t whole(int column) const;
  // A column of the present row, valid until the next step. Empty if the column has another type.
  [[nodiscard]] std::string_view text(int column) const;
  [[nodiscard]] std::string_view blob(int column) const;

 private:
  friend class Database;
  struct Finalize {
    void operator()(sqlite3_stmt* statement) const;
  };
  Statement(Database& database, sqlite3_stmt* statement)
      : database_(&database), statement_(statement) {}

  Database* database_;
  std::unique_ptr<sqlite3_stmt, Finalize> statement_;
};

class Database {
 public:
  enum class Mode : std::uint8_t { read, write, create };

  // Errors begin with the path. `vfs` names another file layer than SQLite's own, for tests.
  // Closing a database keeps its write-ahead log, because the next open() checks and reads it.
  [[nodiscard]] static Result<std::unique_ptr<Database>> open(const std::string& path, Mode mode,
                                                              const std::string& vfs);
  ~Database();
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  [[nodiscard]] Result<void> run(const std::string& sql);
  [[nodiscard]] Result<Statement> prepare(std::string_view sql);
  // The first column of the first row.
  [[nodiscard]] Result<std::int64_t> whole(std::string_view sql);

  // Whether the last error means that the file itself is damaged. Otherwise the disk, the
  // permissions or another program are the reason, and waiting or an operator may help.
  [[nodiscard]] bool damaged() const;
  // Whether its header says that only a newer SQLite can write it, although it can be read. A byte
  // of the header is then damaged. Known after the first read.
  [[nodiscard]] bool for_newer_writers() const;
  // Rolls back the transaction, if one is open.
  void roll_back();

  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  friend class Statement;
  Database(std::string path, sqlite3* handle) : path_(std::move(path)), handle_(handle) {}
  // A sentence for the last error.
  [[nodiscard]] Error problem();

  std::string path_;
  sqlite3* handle_;
  int last_error_ = 0;
};

}  // namespace rubato::journal
