#include "rubato/sim/text_file.h"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <string>
#include <unistd.h>
#include <zlib.h>

namespace rubato::sim {
namespace {

class TextFile : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string plain(const std::string& content) {
    std::ofstream(path_, std::ios::binary) << content;
    return path_;
  }
  std::string gzip(const std::string& content) {
    gzFile file = gzopen(path_.c_str(), "wb");
    gzwrite(file, content.data(), static_cast<unsigned>(content.size()));
    gzclose(file);
    return path_;
  }
  std::string bytes() {
    std::ifstream in(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  std::string problem(TextLimits limits = {}) {
    const auto text = read_text_file(path_, limits);
    return text.ok() ? "no problem" : text.error().message;
  }

  std::string folder_ = testing::TempDir() + "rubato_text_file_" + std::to_string(getpid());
  std::string path_ = folder_ + "/jobs.csv";
};

TEST_F(TextFile, ReadsPlainAndGzipAlike) {
  std::string content;
  for (int i = 0; i < 100'000; ++i) content += std::to_string(i) + ",some,row\n";
  EXPECT_EQ(read_text_file(plain(content)).value(), content);
  EXPECT_EQ(read_text_file(gzip(content)).value(), content);
  EXPECT_EQ(read_text_file(plain("")).value(), "");
  EXPECT_EQ(read_text_file(gzip("")).value(), "");
}

TEST_F(TextFile, ReadsSeveralGzipMembersAsOneFile) {
  gzip("first\n");
  const std::string first = bytes();
  gzip("second\n");
  plain(first + bytes());
  EXPECT_EQ(read_text_file(path_).value(), "first\nsecond\n");
}

TEST_F(TextFile, SaysWhatIsWrongWithAFile) {
  EXPECT_EQ(problem(), path_ + ": cannot be opened: No such file or directory");
  EXPECT_EQ(read_text_file(folder_).error().message, folder_ + ": is a directory, not a file");
}

TEST_F(TextFile, RefusesDamagedGzip) {
  gzip("a line that is long enough to be worth damaging\n");
  const std::string whole = bytes();
  for (std::size_t length = 2; length < whole.size(); ++length) {
    plain(whole.substr(0, length));
    EXPECT_EQ(problem(), path_ + ": truncated gzip data") << length;
  }
  std::string damaged = whole;
  damaged[whole.size() - 6] ^= 1;  // in the checksum
  plain(damaged);
  EXPECT_EQ(problem(), path_ + ": corrupt gzip data");
  plain(whole + "not gzip");
  EXPECT_EQ(problem(), path_ + ": corrupt gzip data");
}

TEST_F(TextFile, StopsAtALongLineWithoutReadingItWhole) {
  // A sparse file with one line of 3 GiB: if it were read, this test would need that much memory.
  plain("job_id,submit_s\n");
  std::filesystem::resize_file(path_, std::uintmax_t{3} << 30U);
  EXPECT_EQ(problem(), path_ + ":2: line longer than 1 MiB");

  gzip("header\n" + std::string(2U << 20U, 'x'));  // a bomb, if small
  EXPECT_EQ(problem(), path_ + ":2: line longer than 1 MiB");
  plain(std::string(1U << 20U, 'x') + "\n");
  EXPECT_EQ(problem(), "no problem");
}

TEST_F(TextFile, LimitsTheWholeSize) {
  std::string lines;
  for (int i = 0; i < 1000; ++i) lines += "0123456789\n";
  gzip(lines);
  EXPECT_EQ(problem({.bytes = 4096}), path_ + ": larger than the 4096 bytes allowed for a file");
}

TEST_F(TextFile, LetsJsonBeOneLongLineUpToItsOwnLimit) {
  const std::string json = "{\"jobs\":[" + std::string(2U << 20U, ' ') + "]}";
  EXPECT_EQ(read_text_file(plain(json)).value(), json);
  EXPECT_EQ(problem({.bytes = 1U << 20U}), path_ + ": larger than the 1 MiB allowed for JSON");
}

}  // namespace
}  // namespace rubato::sim
