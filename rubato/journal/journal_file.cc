#include "rubato/journal/journal_file.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <utility>

#include "rubato/base/check.h"
#include "rubato/base/text.h"

namespace rubato::journal {
namespace {

// The application id of SQLite's format, by which programs such as `file` recognise it: "RubJ".
constexpr std::int64_t kApplication = 0x5275624A;

constexpr std::string_view kAboutTable =
    "CREATE TABLE about(id TEXT NOT NULL, before_number INTEGER NOT NULL, "
    "before_checksum BLOB NOT NULL, checksum BLOB NOT NULL) STRICT";
constexpr std::string_view kJournalTable =
    "CREATE TABLE journal(number INTEGER PRIMARY KEY, time INTEGER NOT NULL, type TEXT NOT NULL, "
    "version INTEGER NOT NULL, body TEXT NOT NULL, before BLOB NOT NULL, checksum BLOB NOT NULL) "
    "STRICT";
constexpr std::string_view kSnapshotTable =
    "CREATE TABLE snapshot(number INTEGER PRIMARY KEY, version INTEGER NOT NULL, "
    "body TEXT NOT NULL, row_checksum BLOB NOT NULL, checksum BLOB NOT NULL) STRICT";

std::string_view bytes_of(const Digest& digest) {
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

std::optional<Digest> digest_of(std::string_view bytes) {
  Digest digest{};
  if (bytes.size() != digest.size()) return std::nullopt;
  std::memcpy(digest.data(), bytes.data(), bytes.size());
  return digest;
}

std::int64_t signed_of(RowNumber number) { return static_cast<std::int64_t>(number.value()); }
RowNumber number_of(std::int64_t value) { return RowNumber(static_cast<std::uint64_t>(value)); }

}  // namespace

// --- checksums ---

Digest JournalFile::checksum(const About& about) {
  return digester_->add("rubato journal")
      .add(about.id)
      .add(signed_of(about.before.number))
      .add(about.before.checksum)
      .finish();
}

Digest JournalFile::checksum(const JournalRow& row, RowNumber number, const Digest& before) {
  return digester_->add(before)
      .add(signed_of(number))
      .add(row.time.time_since_epoch().count())
      .add(row.type)
      .add(std::int64_t{row.version})
      .add(row.body)
      .finish();
}

Digest JournalFile::checksum(const Snapshot& snapshot) {
  return digester_->add("snapshot")
      .add(about_.id)
      .add(signed_of(snapshot.content.number))
      .add(std::int64_t{snapshot.content.version})
      .add(snapshot.content.body)
      .add(snapshot.row)
      .finish();
}

// --- the file ---

Result<JournalFile> JournalFile::create(const std::string& path, const About& about,
                                        const std::string& vfs, const BeforeWrite& before) {
  auto database = Database::open(path, Database::Mode::create, vfs);
  if (!database) return database.error();
  JournalFile file(std::move(*database), before);
  file.about_ = about;
  if (auto ok = file.database_->run("PRAGMA synchronous = FULL"); !ok) return ok.error();
  const auto write = [&]() -> Result<void> {
    const auto sql = fmt::format("PRAGMA application_id = {}; PRAGMA user_version = {}; {}; {}; {}",
                                 kApplication, kSchema, kAboutTable, kJournalTable, kSnapshotTable);
    if (auto ok = file.database_->run(sql); !ok) return ok.error();
    auto insert = file.database_->prepare("INSERT INTO about VALUES(?, ?, ?, ?)");
    if (!insert) return insert.error();
    const Digest checksum = file.checksum(about);
    return insert->bind_text(1, about.id)
        .bind(2, signed_of(about.before.number))
        .bind_blob(3, bytes_of(about.before.checksum))
        .bind_blob(4, bytes_of(checksum))
        .run();
  };
  if (auto ok = file.in_transaction(write); !ok) return ok.error();
  return file;
}

Result<JournalFile> JournalFile::open(const std::string& path, Database::Mode mode,
                                      const std::string& vfs, const BeforeWrite& before,
                                      std::string& damage) {
  damage.clear();
  auto database = Database::open(path, mode, vfs);
  if (!database) return database.error();
  JournalFile file(std::move(*database), before);
  // A reader sees the file as it is now until it closes it, even if a daemon archives rows
  // meanwhile.
  if (mode == Database::Mode::read) {
    if (auto ok = file.database_->run("BEGIN"); !ok) return ok.error();
  }
  if (auto ok = file.read_about(damage); !ok) {
    if (damage.empty() && file.database_->damaged()) damage = ok.error().message;
    return ok.error();
  }
  return file;
}

Result<void> JournalFile::read_about(std::string& damage) {
  const auto broken = [&](std::string_view why) {
    damage = fmt::format("{}: {}", path(), why);
    return Error{damage};
  };
  const auto application = database_->whole("PRAGMA application_id");
  if (!application) return application.error();
  const auto schema = database_->whole("PRAGMA user_version");
  if (!schema) return schema.error();
  if (*application == kApplication && *schema > kSchema) {
    return Error{fmt::format(
        "{}: written by a newer version of rubato (schema {}, this one knows {}); use that one",
        path(), *schema, kSchema)};
  }
  if (*application != kApplication || *schema != kSchema)
    return broken("is not a journal of rubato");

  // Exactly our tables, because a view or a trigger in their place could run any SQL.
  std::vector<std::string> tables;
  auto listing = database_->prepare("SELECT sql FROM sqlite_schema ORDER BY name");
  if (!listing) return listing.error();
  for (;;) {
    const auto row = listing->step();
    if (!row) return row.error();
    if (!*row) break;
    tables.emplace_back(listing->text(0));
    if (tables.size() > 3) break;
  }
  if (tables != std::vector<std::string>{std::string(kAboutTable), std::string(kJournalTable),
                                         std::string(kSnapshotTable)}) {
    return broken("does not have the tables of a journal");
  }

  auto select =
      database_->prepare("SELECT id, before_number, before_checksum, checksum FROM about");
  if (!select) return select.error();
  const auto row = select->step();
  if (!row) return row.error();
  const auto before = *row ? digest_of(select->blob(2)) : std::nullopt;
  if (!before) return broken("does not say which journal it belongs to");
  about_ = {std::string(select->text(0)), {number_of(select->whole(1)), *before}};
  if (select->blob(3) != bytes_of(checksum(about_)) || select->whole(1) < 0)
    return broken("has a wrong checksum for the journal it belongs to");
  return {};
}

Result<void> JournalFile::use_log() {
  return database_->run(
      "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA journal_size_limit = 67108864");
}

// --- writing ---

Result<void> JournalFile::in_transaction(const std::function<Result<void>()>& write) {
  about_to("begin");
  if (auto ok = database_->run("BEGIN IMMEDIATE"); !ok) return ok;
  auto ok = write();
  if (ok) {
    about_to("commit");
    ok = database_->run("COMMIT");
  }
  if (!ok) database_->roll_back();
  return ok;
}

Result<void> JournalFile::insert(Statement& statement, const JournalRow& row, ChainEnd& end) {
  const RowNumber number = end.number.next();
  const Digest sum = checksum(row, number, end.checksum);
  about_to("row");
  auto ok = statement.bind(1, signed_of(number))
                .bind(2, row.time.time_since_epoch().count())
                .bind_text(3, row.type)
                .bind(4, row.version)
                .bind_text(5, row.body)
                .bind_blob(6, bytes_of(end.checksum))
                .bind_blob(7, bytes_of(sum))
                .run();
  if (ok) end = {number, sum};
  return ok;
}

Result<void> JournalFile::append(const std::vector<JournalRow>& rows, ChainEnd& end,
                                 bool forget_after_end) {
  ChainEnd moving = end;
  auto ok = in_transaction([&]() -> Result<void> {
    if (forget_after_end) {
      auto forget = database_->prepare("DELETE FROM journal WHERE number > ?");
      if (!forget) return forget.error();
      if (auto done = forget->bind(1, signed_of(end.number)).run(); !done) return done;
    }
    auto statement = database_->prepare("INSERT INTO journal VALUES(?, ?, ?, ?, ?, ?, ?)");
    if (!statement) return statement.error();
    for (const JournalRow& row : rows) {
      if (auto done = insert(*statement, row, moving); !done) return done;
    }
    return {};
  });
  if (ok) end = moving;
  return ok;
}

Result<void> JournalFile::put_snapshot(const Snapshot& snapshot) {
  return in_transaction([&]() -> Result<void> {
    auto insert = database_->prepare("INSERT OR REPLACE INTO snapshot VALUES(?, ?, ?, ?, ?)");
    if (!insert) return insert.error();
    const Digest sum = checksum(snapshot);
    about_to("snapshot");
    if (auto ok = insert->bind(1, signed_of(snapshot.content.number))
                      .bind(2, snapshot.content.version)
                      .bind_text(3, snapshot.content.body)
                      .bind_blob(4, bytes_of(snapshot.row))
                      .bind_blob(5, bytes_of(sum))
                      .run();
        !ok) {
      return ok;
    }
    // Keeps the snapshot before it, too, in case this one cannot be read later.
    return database_->run(
        "DELETE FROM snapshot WHERE number NOT IN "
        "(SELECT number FROM snapshot ORDER BY number DESC LIMIT 2)");
  });
}

Result<void> JournalFile::forget_up_to(const ChainEnd& end) {
  About moved{about_.id, end};
  auto ok = in_transaction([&]() -> Result<void> {
    about_to("forget");
    auto rows = database_->prepare("DELETE FROM journal WHERE number <= ?");
    if (!rows) return rows.error();
    if (auto done = rows->bind(1, signed_of(end.number)).run(); !done) return done;
    auto snapshots = database_->prepare("DELETE FROM snapshot WHERE number < ?");
    if (!snapshots) return snapshots.error();
    if (auto done = snapshots->bind(1, signed_of(end.number)).run(); !done) return done;
    auto about =
        database_->prepare("UPDATE about SET before_number = ?, before_checksum = ?, checksum = ?");
    if (!about) return about.error();
    const Digest sum = checksum(moved);
    return about->bind(1, signed_of(end.number))
        .bind_blob(2, bytes_of(end.checksum))
        .bind_blob(3, bytes_of(sum))
        .run();
  });
  if (ok) about_ = std::move(moved);
  return ok;
}

// --- reading ---

Result<JournalFile::Walked> JournalFile::walk(const ChainEnd& from, const Each& each) {
  Walked walked;
  walked.end = from;
  auto select = database_->prepare(
      "SELECT number, time, type, version, body, before, checksum FROM journal WHERE number > ? "
      "ORDER BY number");
  if (!select) return select.error();
  select->bind(1, signed_of(from.number));
  JournalRow row;
  for (;;) {
    const auto found = select->step();
    if (!found && !database_->damaged()) return found.error();
    const RowNumber expected = walked.end.number.next();
    if (!found) {
      walked.broken = fmt::format("row {} cannot be read", expected.value());
      break;
    }
    if (!*found) break;
    const RowNumber number = number_of(select->whole(0));
    row.time = Time(Duration(select->whole(1)));
    row.type = select->text(2);
    row.version = static_cast<int>(select->whole(3));
    row.body = select->text(4);
    walked.last_there = number;
    if (number != expected) {
      walked.broken = fmt::format("row {} is missing", expected.value());
      break;
    }
    const Digest sum = checksum(row, number, walked.end.checksum);
    if (select->blob(5) != bytes_of(walked.end.checksum)) {
      walked.broken = fmt::format("row {} does not follow the one before it", expected.value());
      break;
    }
    if (select->blob(6) != bytes_of(sum) || select->whole(3) != row.version) {
      walked.broken =
          fmt::format("row {} does not have the content it was written with", expected.value());
      break;
    }
    if (auto ok = each(number, row); !ok) return ok.error();
    walked.end = {number, sum};
  }
  select->reset();
  if (const auto last = database_->whole("SELECT max(number) FROM journal"))
    walked.last_there = std::max(walked.last_there, number_of(std::max<std::int64_t>(*last, 0)));
  return walked;
}

Result<RowNumber> JournalFile::last() {
  auto last = database_->whole("SELECT ifnull(max(number), 0) FROM journal");
  if (!last) return last.error();
  return std::max(about_.before.number, number_of(std::max<std::int64_t>(*last, 0)));
}

Result<std::string> JournalFile::check_structure() {
  if (database_->for_newer_writers())
    return fmt::format("{}: its header says that this version of SQLite cannot write it", path());
  auto check = database_->prepare("PRAGMA quick_check(1)");
  if (!check) {
    if (database_->damaged()) return check.error().message;
    return check.error();
  }
  const auto row = check->step();
  if (!row) {
    if (database_->damaged()) return row.error().message;
    return row.error();
  }
  const std::string_view answer = *row ? check->text(0) : "no answer";
  return answer == "ok" ? std::string() : base::quoted(answer, 200);
}

Result<std::vector<JournalFile::Snapshot>> JournalFile::snapshots() {
  std::vector<Snapshot> found;
  auto select = database_->prepare(
      "SELECT number, version, body, row_checksum, checksum FROM snapshot ORDER BY number DESC");
  if (!select) return select.error();
  for (;;) {
    const auto row = select->step();
    if (!row) {
      if (database_->damaged()) return found;  // what follows cannot be read
      return row.error();
    }
    if (!*row) return found;
    const auto of_row = digest_of(select->blob(3));
    if (!of_row || select->whole(0) < 0) continue;
    Snapshot snapshot;
    snapshot.content = {number_of(select->whole(0)), static_cast<int>(select->whole(1)),
                        std::string(select->text(2))};
    snapshot.row = *of_row;
    if (select->blob(4) == bytes_of(checksum(snapshot))) found.push_back(std::move(snapshot));
    if (found.size() == 2) return found;
  }
}

Result<std::optional<Digest>> JournalFile::checksum_of(RowNumber number) {
  if (number == about_.before.number) return std::optional(about_.before.checksum);
  auto select = database_->prepare("SELECT checksum FROM journal WHERE number = ?");
  if (!select) return select.error();
  const auto row = select->bind(1, signed_of(number)).step();
  if (!row) {
    if (database_->damaged()) return std::optional<Digest>();
    return row.error();
  }
  return *row ? digest_of(select->blob(0)) : std::nullopt;
}

}  // namespace rubato::journal
