#include "rubato/journal/sqlite.h"

#include <fmt/format.h>
#include <limits>
#include <sqlite3.h>
#include <unistd.h>
#include <utility>

#include "rubato/base/check.h"
#include "rubato/base/text.h"

namespace rubato::journal {
namespace {

// Rows are JSON of at most 256 MiB. Anything longer is damage.
constexpr int kLongestValue = 300 << 20;
constexpr int kBusyMs = 5000;

const char* advice(int code) {
  switch (code & 0xFF) {
    case SQLITE_FULL:
      return "the disk is full; nothing was stored, free some space there";
    case SQLITE_READONLY:
    case SQLITE_PERM:
      return "it cannot be written; nothing was stored, make it and its directory writable";
    case SQLITE_IOERR:
      return "the disk reports an error; nothing was stored, look at the system's log";
    case SQLITE_CANTOPEN:
      return "it cannot be opened; check the directory and its rights";
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return "another program holds it; nothing was stored, end that program";
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return "it is damaged; the next start repairs it";
    default:
      return "SQLite refuses";
  }
}

}  // namespace

void Statement::Finalize::operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }

Statement& Statement::bind(int at, std::int64_t value) {
  CHECK(sqlite3_bind_int64(statement_.get(), at, value) == SQLITE_OK);
  return *this;
}

Statement& Statement::bind_text(int at, std::string_view text) {
  // SQLite would bind a null pointer as NULL.
  CHECK(sqlite3_bind_text64(statement_.get(), at, text.data() == nullptr ? "" : text.data(),
                            text.size(), SQLITE_STATIC, SQLITE_UTF8) == SQLITE_OK);
  return *this;
}

Statement& Statement::bind_blob(int at, std::string_view bytes) {
  CHECK(sqlite3_bind_blob64(statement_.get(), at, bytes.data() == nullptr ? "" : bytes.data(),
                            bytes.size(), SQLITE_STATIC) == SQLITE_OK);
  return *this;
}

Result<bool> Statement::step() {
  const int code = sqlite3_step(statement_.get());
  if (code == SQLITE_ROW) return true;
  if (code == SQLITE_DONE) return false;
  return database_->problem();
}

Result<void> Statement::run() {
  const auto row = step();
  reset();
  if (!row) return row.error();
  return {};
}

void Statement::reset() { sqlite3_reset(statement_.get()); }

std::int64_t Statement::whole(int column) const {
  return sqlite3_column_int64(statement_.get(), column);
}

std::string_view Statement::text(int column) const {
  if (sqlite3_column_type(statement_.get(), column) != SQLITE_TEXT) return "";
  const auto* text = sqlite3_column_text(statement_.get(), column);
  if (text == nullptr) return "";
  return {reinterpret_cast<const char*>(text),
          static_cast<std::size_t>(sqlite3_column_bytes(statement_.get(), column))};
}

std::string_view Statement::blob(int column) const {
  if (sqlite3_column_type(statement_.get(), column) != SQLITE_BLOB) return "";
  const void* blob = sqlite3_column_blob(statement_.get(), column);
  if (blob == nullptr) return "";
  return {static_cast<const char*>(blob),
          static_cast<std::size_t>(sqlite3_column_bytes(statement_.get(), column))};
}

Result<std::unique_ptr<Database>> Database::open(const std::string& path, Mode mode,
                                                 const std::string& vfs) {
  int flags = SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE;
  flags |= mode == Mode::read ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE;
  if (mode == Mode::create) flags |= SQLITE_OPEN_CREATE;
  sqlite3* handle = nullptr;
  const int code =
      sqlite3_open_v2(path.c_str(), &handle, flags, vfs.empty() ? nullptr : vfs.c_str());
  std::unique_ptr<Database> database(new Database(path, handle));
  if (code != SQLITE_OK) return database->problem();
  sqlite3_busy_timeout(handle, kBusyMs);
  sqlite3_limit(handle, SQLITE_LIMIT_LENGTH, kLongestValue);
  // The file may contain anything. So no code in it is run, and cells are checked before they are
  // used.
  CHECK(sqlite3_db_config(handle, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr) == SQLITE_OK);
  CHECK(sqlite3_db_config(handle, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr) == SQLITE_OK);
  CHECK(sqlite3_db_config(handle, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, nullptr) == SQLITE_OK);
  if (auto ok = database->run("PRAGMA cell_size_check = ON"); !ok) return ok.error();
  return database;
}

Database::~Database() { sqlite3_close_v2(handle_); }

Result<void> Database::run(const std::string& sql) {
  if (sqlite3_exec(handle_, sql.c_str(), nullptr, nullptr, nullptr) != SQLITE_OK) return problem();
  return {};
}

Result<Statement> Database::prepare(std::string_view sql) {
  CHECK(sql.size() < static_cast<std::size_t>(std::numeric_limits<int>::max()));
  sqlite3_stmt* statement = nullptr;
  if (sqlite3_prepare_v2(handle_, sql.data(), static_cast<int>(sql.size()), &statement, nullptr) !=
      SQLITE_OK) {
    return problem();
  }
  return Statement(*this, statement);
}

Result<std::int64_t> Database::whole(std::string_view sql) {
  auto statement = prepare(sql);
  if (!statement) return statement.error();
  const auto row = statement->step();
  if (!row) return row.error();
  return *row ? statement->whole(0) : 0;
}

bool Database::damaged() const {
  // Statements are prepared for our own schema, which is checked first. So an SQL error means that
  // the file is damaged.
  const int code = last_error_ & 0xFF;
  return code == SQLITE_CORRUPT || code == SQLITE_NOTADB || code == SQLITE_ERROR ||
         code == SQLITE_SCHEMA || code == SQLITE_FORMAT || code == SQLITE_TOOBIG ||
         code == SQLITE_MISMATCH || last_error_ == SQLITE_IOERR_SHORT_READ ||
         last_error_ == SQLITE_IOERR_DATA;
}

bool Database::for_newer_writers() const {
  // SQLite also reports a file as read-only if we have no permission to write it.
  return sqlite3_db_readonly(handle_, "main") == 1 && access(path_.c_str(), W_OK) == 0;
}

void Database::roll_back() {
  if (sqlite3_get_autocommit(handle_) == 0)
    sqlite3_exec(handle_, "ROLLBACK", nullptr, nullptr, nullptr);
}

Error Database::problem() {
  last_error_ = handle_ == nullptr ? SQLITE_NOMEM : sqlite3_extended_errcode(handle_);
  const std::string detail =
      handle_ == nullptr ? "out of memory" : base::quoted(sqlite3_errmsg(handle_), 200);
  return Error{
      fmt::format("{}: {} ({}, code {})", path_, advice(last_error_), detail, last_error_)};
}

}  // namespace rubato::journal
