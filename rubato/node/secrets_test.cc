#include "rubato/node/secrets.h"

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

namespace rubato::node {
namespace {

class SecretsTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "rubato-XXXXXX").string();
    root_ = mkdtemp(pattern.data());
    files_.directory = root_ + "/job";
    memory_ = root_ + "/memory";
    std::filesystem::create_directory(files_.directory);
    std::filesystem::create_directory(memory_);
    std::ofstream(root_ + "/key") << "the key\n";
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  static std::string content_of(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  static unsigned mode_of(const std::string& path) {
    struct stat there {};
    return stat(path.c_str(), &there) == 0 ? there.st_mode & 0777U : 0;
  }

  std::string root_, memory_;
  JobFiles files_;
};

TEST_F(SecretsTest, ArriveAsPrivateFilesAndGo) {
  for (const std::string& memory : {memory_, root_ + "/missing"}) {
    const auto copies = hand_out_secrets(files_, {{"KEY", root_ + "/key"}}, memory);
    ASSERT_TRUE(copies.ok()) << copies.error().message;
    const std::string copy = copies->at("KEY");
    EXPECT_EQ(copy.starts_with(memory == memory_ ? memory_ : files_.directory), true) << copy;
    EXPECT_EQ(content_of(copy), "the key\n");
    EXPECT_EQ(mode_of(copy), 0600U);
    EXPECT_EQ(mode_of(std::filesystem::path(copy).parent_path()), 0700U);
    remove_secrets(files_);
    EXPECT_TRUE(std::filesystem::is_empty(memory_));
    EXPECT_TRUE(std::filesystem::is_empty(files_.directory));
  }
}

TEST_F(SecretsTest, WhatAKilledMasterLeftIsRemovedByTheNext) {
  ASSERT_TRUE(hand_out_secrets(files_, {{"KEY", root_ + "/key"}}, memory_).ok());
  ASSERT_TRUE(hand_out_secrets(files_, {}, memory_).ok());
  EXPECT_TRUE(std::filesystem::is_empty(memory_));
}

TEST_F(SecretsTest, OneThatCannotBeReadLeavesNothing) {
  const auto copies =
      hand_out_secrets(files_, {{"A", root_ + "/key"}, {"B", root_ + "/other"}}, memory_);
  ASSERT_FALSE(copies.ok());
  EXPECT_EQ(copies.error().message,
            "the secret \"B\": cannot read " + root_ + "/other: No such file or directory");
  EXPECT_TRUE(std::filesystem::is_empty(memory_));
  EXPECT_FALSE(hand_out_secrets(files_, {{"A", root_}}, memory_).ok()) << "a directory";
}

TEST_F(SecretsTest, LinksAreNotFollowedElsewhere) {
  // A link to a link: the directory behind it stays as it is.
  std::filesystem::create_directory(root_ + "/other");
  std::ofstream(root_ + "/other/file") << "mine\n";
  std::filesystem::create_symlink(root_ + "/other", root_ + "/way");
  std::filesystem::create_symlink(root_ + "/way", files_.secrets());
  remove_secrets(files_);
  EXPECT_EQ(content_of(root_ + "/other/file"), "mine\n");
  EXPECT_FALSE(std::filesystem::exists(std::filesystem::symlink_status(files_.secrets())));
  if (geteuid() != 0) return;
  // Neither is one to the directory of somebody else.
  ASSERT_EQ(symlink((root_ + "/other").c_str(), files_.secrets().c_str()), 0);
  ASSERT_EQ(lchown(files_.secrets().c_str(), 65534, 65534), 0);
  remove_secrets(files_);
  EXPECT_EQ(content_of(root_ + "/other/file"), "mine\n");
}

}  // namespace
}  // namespace rubato::node
