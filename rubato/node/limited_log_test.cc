#include "rubato/node/limited_log.h"

#include <csignal>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

namespace rubato::node {
namespace {

class LimitedLogTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "rubato-XXXXXX").string();
    directory_ = mkdtemp(pattern.data());
    path_ = directory_ + "/log";
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  [[nodiscard]] std::vector<std::string> lines() const {
    std::vector<std::string> all;
    std::ifstream file(path_);
    for (std::string line; std::getline(file, line);) all.push_back(line);
    return all;
  }

  std::string directory_, path_;
};

TEST_F(LimitedLogTest, AppendsForItsOwnerAlone) {
  for (int i = 0; i < 2; ++i) {
    auto log = LimitedLog::open(path_, 1000);
    ASSERT_TRUE(log.ok());
    log->line("one");
    log->line("");
    EXPECT_EQ(lines().size(), i * 2U) << "it waits";
    log->flush();
  }
  EXPECT_EQ(lines(), (std::vector<std::string>{"one", "", "one", ""}));
  struct stat there {};
  ASSERT_EQ(stat(path_.c_str(), &there), 0);
  EXPECT_EQ(there.st_mode & 0777U, 0600U);
}

TEST_F(LimitedLogTest, KeepsTheTailWithinTheLimit) {
  auto log = LimitedLog::open(path_, 1000);
  ASSERT_TRUE(log.ok());
  std::uintmax_t largest = 0;
  for (int i = 0; i < 1000; ++i) {
    log->line(fmt::format("line {}", i));
    if (i % 7 == 0) log->flush();
    largest = std::max(largest, std::filesystem::file_size(path_));
  }
  log->flush();
  EXPECT_LE(largest, 1000U);
  EXPECT_GT(largest, 900U);
  const auto all = lines();
  EXPECT_EQ(all.front(), "rubato: older lines were dropped: this file is limited to 1000 bytes");
  EXPECT_EQ(all.back(), "line 999");
  // Nothing is missing in between, and no line is cut.
  for (std::size_t i = 1; i < all.size(); ++i) {
    EXPECT_EQ(all[i], fmt::format("line {}", 1000 - all.size() + i));
  }
  EXPECT_GT(all.size(), 30U);
}

TEST_F(LimitedLogTest, AFloodAtOnceIsCutToItsEnd) {
  auto log = LimitedLog::open(path_, 1000);
  ASSERT_TRUE(log.ok());
  for (int i = 0; i < 100'000; ++i) log->line(fmt::format("line {}", i));
  log->flush();
  EXPECT_LE(std::filesystem::file_size(path_), 1000U);
  EXPECT_EQ(lines().back(), "line 99999");
}

TEST_F(LimitedLogTest, ALineLongerThanTheLimitIsLeftOut) {
  auto log = LimitedLog::open(path_, 1000);
  ASSERT_TRUE(log.ok());
  log->line("short");
  log->line(std::string(5000, 'x'));
  log->flush();
  log->line("after");
  log->flush();
  EXPECT_LE(std::filesystem::file_size(path_), 1000U);
  EXPECT_EQ(lines().back(), "after");
}

// A limit on the size of files stands for the disk: writes fail behind it.
TEST_F(LimitedLogTest, AFullDiskCostsLinesOnly) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  auto log = LimitedLog::open(path_, 100'000);
  ASSERT_TRUE(log.ok());
  log->line("first");
  log->flush();
  rlimit full = before;
  full.rlim_cur = 10;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &full), 0);
  for (int i = 0; i < 3; ++i) {
    log->line("second");
    log->flush();
  }
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  log->line("third");
  log->flush();
  EXPECT_EQ(lines(),
            (std::vector<std::string>{"first", "rubato: 3 lines could not be written", "third"}));
}

TEST_F(LimitedLogTest, WhatIsNoFileIsAnError) {
  EXPECT_FALSE(LimitedLog::open("/dev/null", 1000).ok());
  EXPECT_FALSE(LimitedLog::open(directory_ + "/no/log", 1000).ok());
}

TEST_F(LimitedLogTest, SymbolicLinksAreNotFollowed) {
  std::ofstream(directory_ + "/elsewhere") << "mine\n";
  std::filesystem::create_symlink(directory_ + "/elsewhere", path_);
  EXPECT_FALSE(LimitedLog::open(path_, 1000).ok());
}

}  // namespace
}  // namespace rubato::node
