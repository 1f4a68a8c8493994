// The little of SQLite that the journal needs, with Results instead of codes. Of one thread.
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
  Statement& bind_text(int at, std::string_view text);  // must live until the next reset()
  Statement& bind_blob(int at, std::string_view bytes);

  // True if there is a row, false at the end.
  [[nodiscard]] Result<bool> step();
  // Steps once, without a row to come, and can then be used again.
  [[nodiscard]] Result<void> run();
  void reset();

  [[nodiscard]] std::int64_t whole(int column) const;
  // Of the present row; gone with the next step. Empty if it is of another type.
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
  // Whoever closes a database leaves its write-ahead log alone: it is evidence, and the next one
  // reads it.
  [[nodiscard]] static Result<std::unique_ptr<Database>> open(const std::string& path, Mode mode,
                                                              const std::string& vfs);
  ~Database();
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  [[nodiscard]] Result<void> run(const std::string& sql);
  [[nodiscard]] Result<Statement> prepare(std::string_view sql);
  // The first column of the first row.
  [[nodiscard]] Result<std::int64_t> whole(std::string_view sql);

  // Whether the last error means that the file itself is broken: not the disk, the rights or
  // another program, with which waiting or an operator may help.
  [[nodiscard]] bool damaged() const;
  // Whether its header asks for a newer SQLite to write it, though everybody may read it: a byte of
  // it is wrong. Known once something was read.
  [[nodiscard]] bool for_newer_writers() const;
  // Gives up a transaction, if one is open.
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
