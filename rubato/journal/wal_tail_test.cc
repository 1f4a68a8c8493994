#include "rubato/journal/wal_tail.h"

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <sqlite3.h>
#include <string>

namespace rubato::journal {
namespace {

namespace fs = std::filesystem;

// A log of SQLite's own with three transactions.
class Log {
 public:
  Log() {
    std::string name = (fs::temp_directory_path() / "rubato-wal-XXXXXX").string();
    directory_ = mkdtemp(name.data());
    sqlite3* database = nullptr;
    sqlite3_open((directory_ / "db").c_str(), &database);
    sqlite3_db_config(database, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, nullptr);
    for (const char* sql : {"PRAGMA journal_mode = WAL", "CREATE TABLE t(x)",
                            "INSERT INTO t VALUES(1)", "INSERT INTO t VALUES(2)"}) {
      EXPECT_EQ(sqlite3_exec(database, sql, nullptr, nullptr, nullptr), SQLITE_OK);
    }
    sqlite3_close(database);
    std::ifstream file(path(), std::ios::binary);
    bytes.assign(std::istreambuf_iterator<char>(file), {});
  }
  ~Log() { fs::remove_all(directory_); }
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;

  [[nodiscard]] fs::path path() const { return directory_ / "db-wal"; }
  // "from-to" of what belongs to no whole transaction.
  [[nodiscard]] std::string unfinished() const {
    std::ofstream(path(), std::ios::binary | std::ios::trunc) << bytes;
    const auto tail = unfinished_wal(path().string());
    if (!tail) return tail.error().message;
    if (!*tail) return "";
    return std::to_string((*tail)->from) + "-" + std::to_string((*tail)->to);
  }

  std::string bytes;

 private:
  fs::path directory_;
};

constexpr std::size_t kFrame = 24 + 4096;

TEST(UnfinishedWal, AWholeLogHasNone) {
  const Log log;
  ASSERT_EQ(log.bytes.size(), 32 + 4 * kFrame) << "two pages for the table, one for each row";
  EXPECT_EQ(log.unfinished(), "");
  fs::remove(log.path());
  const auto none = unfinished_wal(log.path().string());
  EXPECT_TRUE(none.ok() && !none->has_value());
}

TEST(UnfinishedWal, IsWhatFollowsTheLastTransactionBeforeABrokenFrame) {
  const auto changed = [](std::size_t at) {
    Log log;
    log.bytes[at] = static_cast<char>(log.bytes[at] + 1);
    return log.unfinished();
  };
  const auto end = std::to_string(32 + 4 * kFrame);
  const auto frame = [](std::size_t n) { return std::to_string(32 + n * kFrame); };
  EXPECT_EQ(changed(32 + 3 * kFrame + 1000), frame(3) + "-" + end);
  EXPECT_EQ(changed(32 + 2 * kFrame + 1000), frame(2) + "-" + end);
  EXPECT_EQ(changed(32 + 1 * kFrame + 1000), frame(0) + "-" + end) << "its transaction has two";
  EXPECT_EQ(changed(32 + 2 * kFrame + 8), frame(2) + "-" + end)
      << "of another log, but not the last";
  EXPECT_EQ(changed(32 + 3 * kFrame + 8), "") << "the last one of another log is an old one";
  EXPECT_EQ(changed(20), "0-" + end) << "nothing of it will be used";
}

TEST(UnfinishedWal, FindsACutInAFrameOrATransaction) {
  const auto cut = [](std::size_t size) {
    Log log;
    log.bytes.resize(size);
    return log.unfinished();
  };
  EXPECT_EQ(cut(0), "");
  EXPECT_EQ(cut(31), "0-31");
  EXPECT_EQ(cut(32), "");
  EXPECT_EQ(cut(32 + kFrame), "32-" + std::to_string(32 + kFrame)) << "half a transaction";
  EXPECT_EQ(cut(32 + 3 * kFrame), "") << "cannot be known";
  EXPECT_EQ(cut(32 + 3 * kFrame + 500),
            std::to_string(32 + 3 * kFrame) + "-" + std::to_string(32 + 3 * kFrame + 500));
}

}  // namespace
}  // namespace rubato::journal
