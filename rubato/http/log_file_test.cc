#include "rubato/http/log_file.h"

#include <cstdlib>
#include <fstream>
#include <gtest/gtest.h>
#include <string>
#include <sys/stat.h>
#include <unistd.h>

namespace rubato::http {
namespace {

class LogFileTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "rubato-log-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    directory_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  void append(const std::string& text, const char* name = "log") {
    std::ofstream(directory_ / name, std::ios::app) << text;
  }
  [[nodiscard]] LogFile open() const { return std::move(LogFile::open(directory_).value()); }

  std::filesystem::path directory_;
};

TEST_F(LogFileTest, ReadsInPiecesAndWhatComesLater) {
  append("hello world");
  LogFile log = open();
  EXPECT_EQ(log.read(5).value(), "hello");
  EXPECT_EQ(log.read(100).value(), " world");
  EXPECT_EQ(log.read(100).value(), "");
  append("!\n");
  EXPECT_EQ(log.read(100).value(), "!\n");
}

TEST_F(LogFileTest, SeeksFromBothEnds) {
  append("0123456789");
  LogFile log = open();
  log.seek(7);
  EXPECT_EQ(log.read(100).value(), "789");
  log.seek(-2);
  EXPECT_EQ(log.read(100).value(), "89");
  log.seek(-100);
  EXPECT_EQ(log.position(), 0);
  log.seek(100);
  EXPECT_EQ(log.position(), 10);
}

TEST_F(LogFileTest, WaitsForALogThatIsNotThereYet) {
  const auto later = directory_ / "later";
  auto log = LogFile::open(later);
  ASSERT_TRUE(log.ok());
  EXPECT_EQ(log->read(10).value(), "");
  std::filesystem::create_directory(later);
  EXPECT_EQ(log->read(10).value(), "");
  std::ofstream(later / "log") << "begun";
  EXPECT_EQ(log->read(10).value(), "begun");
}

TEST_F(LogFileTest, GoesOnBehindTheSameLineInAShortenedLog) {
  std::string old;
  for (int i = 0; i < 2000; ++i) old += "line " + std::to_string(i) + "\n";
  append(old);
  LogFile log = open();
  EXPECT_EQ(log.read(1U << 20U).value(), old);
  append("the last of the old\n");
  const std::string kept = old.substr(old.size() / 2) + "the last of the old\n";
  append("[shortened]\n" + kept + "the first of the new\n", "new");
  std::filesystem::rename(directory_ / "new", directory_ / "log");
  EXPECT_EQ(log.read(1U << 20U).value(), "the last of the old\n") << "of the old file";
  EXPECT_EQ(log.read(1U << 20U).value(), "the first of the new\n");
  append("more\n");
  EXPECT_EQ(log.read(1U << 20U).value(), "more\n");
}

TEST_F(LogFileTest, BeginsAnewInALogThatHasNothingOfTheOld) {
  append("something long that is gone\n");
  LogFile log = open();
  EXPECT_FALSE(log.read(100).value().empty());
  std::filesystem::resize_file(directory_ / "log", 0);
  append("new\n");
  EXPECT_EQ(log.read(100).value(), "new\n");
}

// The owner of the directory may put a file of any size there, so not all of it is searched.
TEST_F(LogFileTest, BeginsAnewInALogThatGrewTooMuch) {
  append("the end of the old\n");
  LogFile log = open();
  EXPECT_EQ(log.read(100).value(), "the end of the old\n");
  append("the end of the old\n", "new");
  constexpr std::uintmax_t kTerabyte = std::uintmax_t{1} << 40U;
  std::filesystem::resize_file(directory_ / "new", kTerabyte);
  std::filesystem::rename(directory_ / "new", directory_ / "log");
  EXPECT_EQ(log.read(19).value(), "the end of the old\n") << "rather twice than lost";
  EXPECT_EQ(log.position(), 19);
}

TEST_F(LogFileTest, GoesOnBehindTheLastOfPlacesThatLookAlike) {
  append(std::string(100'000, 'x'));
  LogFile log = open();
  EXPECT_EQ(log.read(100'000).value().size(), 100'000U);
  append("y" + std::string(3 << 20U, 'x') + "z", "new");
  std::filesystem::rename(directory_ / "new", directory_ / "log");
  EXPECT_EQ(log.read(100).value(), "z");
}

// A job whose user owns the directory must not read other files through the daemon.
TEST_F(LogFileTest, FollowsNoLinks) {
  append("secret", "elsewhere");
  std::filesystem::create_symlink(directory_ / "elsewhere", directory_ / "log");
  EXPECT_FALSE(LogFile::open(directory_).ok());
  std::filesystem::remove(directory_ / "log");
  std::filesystem::create_hard_link(directory_ / "elsewhere", directory_ / "log");
  EXPECT_FALSE(LogFile::open(directory_).ok());
  std::filesystem::remove(directory_ / "log");
  ASSERT_EQ(::mkfifo((directory_ / "log").c_str(), 0600), 0);
  EXPECT_FALSE(LogFile::open(directory_).ok()) << "and does not wait for a writer";
  std::filesystem::remove(directory_ / "log");
  std::filesystem::create_directory_symlink(directory_, directory_ / "link");
  EXPECT_FALSE(LogFile::open(directory_ / "link").ok());
}

TEST_F(LogFileTest, OpensNoFileOfAnotherOwner) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  append("theirs");
  constexpr uid_t kAnother = 12345;
  ASSERT_EQ(::chown((directory_ / "log").c_str(), kAnother, kAnother), 0);
  EXPECT_FALSE(LogFile::open(directory_).ok());
  ASSERT_EQ(::chown(directory_.c_str(), kAnother, kAnother), 0);
  EXPECT_TRUE(LogFile::open(directory_).ok());
}

TEST_F(LogFileTest, FollowsNoLinkThatComesLater) {
  append("mine\n");
  append("secret", "elsewhere");
  LogFile log = open();
  EXPECT_EQ(log.read(100).value(), "mine\n");
  std::filesystem::remove(directory_ / "log");
  std::filesystem::create_symlink(directory_ / "elsewhere", directory_ / "log");
  EXPECT_FALSE(log.read(100).ok());
}

}  // namespace
}  // namespace rubato::http
