#include "rubato/node/job_files.h"

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rubato/launch/processes.h"

namespace rubato::node {
namespace {

class JobFilesTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "rubato-XXXXXX").string();
    files_.directory = mkdtemp(pattern.data());
  }
  void TearDown() override { std::filesystem::remove_all(files_.directory); }

  JobFiles files_;
};

TEST_F(JobFilesTest, WhatIsNotThereIsNoError) {
  EXPECT_EQ(read_launch(files_).value(), std::nullopt);
  EXPECT_EQ(read_master(files_).value(), std::nullopt);
  EXPECT_EQ(read_exit(files_).value(), std::nullopt);
  EXPECT_TRUE(read_workers(files_).value().empty());
}

TEST_F(JobFilesTest, FilesAreForTheirOwnerAlone) {
  ASSERT_TRUE(write_json_file(files_.master(), to_json(own_name())).ok());
  ASSERT_TRUE(write_json_file(files_.master(), to_json(own_name())).ok()) << "written over";
  EXPECT_EQ(read_master(files_).value(), own_name());
  struct stat there {};
  ASSERT_EQ(stat(files_.master().c_str(), &there), 0);
  EXPECT_EQ(there.st_mode & 0777U, 0600U);
}

TEST_F(JobFilesTest, SymbolicLinksAreNotFollowed) {
  const std::string elsewhere = files_.directory + "/elsewhere";
  std::ofstream(elsewhere) << "{\"pid\": 1, \"start_time\": 1}\n";
  std::filesystem::create_symlink(elsewhere, files_.master());
  EXPECT_FALSE(read_master(files_).ok());
  std::filesystem::create_symlink(elsewhere, files_.workers() + ".new");
  ASSERT_TRUE(write_json_file(files_.workers(), Json::array()).ok());
  EXPECT_GT(std::filesystem::file_size(elsewhere), 10U) << "written through the link";
}

TEST_F(JobFilesTest, WhatIsDamagedNamesItsFile) {
  std::ofstream(files_.exit()) << "{\"generation\": 1";
  EXPECT_NE(read_exit(files_).error().message.find("exit.json"), std::string::npos);
  std::ofstream(files_.launch()) << "{}";
  EXPECT_NE(read_launch(files_).error().message.find("launch.json"), std::string::npos);
}

TEST(Processes, LiveUntilTheyEnd) {
  EXPECT_TRUE(lives(own_name()));
  ProcessName another = own_name();
  ++another.start_time;
  EXPECT_FALSE(lives(another));
  const pid_t child = fork();
  if (child == 0) _exit(0);
  const ProcessName name{child, wire::start_time_of(child)};
  siginfo_t info{};
  waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT);
  EXPECT_FALSE(lives(name)) << "it has ended, though nobody has collected it";
  waitpid(child, nullptr, 0);
  EXPECT_FALSE(lives(name));
}

}  // namespace
}  // namespace rubato::node
