#include "rubato/node/state_directory.h"

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rubato/node/job_files.h"
#include "rubato/node/secrets.h"

namespace rubato::node {
namespace {

namespace fs = std::filesystem;

class StateDirectoryTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "rubato-XXXXXX").string();
    root_ = mkdtemp(pattern.data());
    state_ = root_ + "/state";
  }
  void TearDown() override { fs::remove_all(root_); }

  static unsigned mode_of(const std::string& path) {
    struct stat there {};
    return lstat(path.c_str(), &there) == 0 ? there.st_mode & 0777U : 0;
  }
  static uid_t owner_of(const std::string& path) {
    struct stat there {};
    return lstat(path.c_str(), &there) == 0 ? there.st_uid : ~uid_t{0};
  }

  std::string root_, state_;
};

TEST_F(StateDirectoryTest, LetsOthersPassOnlyIfItIsRoots) {
  const unsigned passable = geteuid() == 0 ? 0711 : 0700;
  for (int i = 0; i < 2; ++i) {  // a second daemon finds what the first has left
    const auto made = make_state_directory(state_);
    ASSERT_TRUE(made.ok()) << made.error().message;
    EXPECT_EQ(mode_of(state_), passable);
    EXPECT_EQ(mode_of(state_ + "/jobs"), passable);
    EXPECT_EQ(mode_of(state_ + "/nodes"), 0700U);
  }
  ASSERT_TRUE(make_job_directory(state_, JobId(3), std::nullopt).ok());
  EXPECT_EQ(mode_of(job_directory(state_, JobId(3))), 0700U);
}

TEST_F(StateDirectoryTest, RefusesOneThatOthersCanRead) {
  fs::create_directory(state_);
  for (const unsigned mode : {0755U, 0770U, 0702U}) {
    ASSERT_EQ(chmod(state_.c_str(), mode), 0);
    EXPECT_FALSE(make_state_directory(state_).ok()) << mode;
  }
  fs::create_directory_symlink(state_, root_ + "/link");
  EXPECT_FALSE(make_state_directory(root_ + "/link").ok());
}

TEST_F(StateDirectoryTest, AJobsDirectoryIsItsUsersAndSoIsWhatIsPutThere) {
  const auto nobody = look_up_user("nobody");
  if (geteuid() != 0 || !nobody) GTEST_SKIP() << "needs root and the user nobody";
  ASSERT_TRUE(make_state_directory(state_).ok());
  // The second time by an agent that starts the job again.
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(make_job_directory(state_, JobId(3), *nobody).ok());
  const std::string directory = job_directory(state_, JobId(3));
  EXPECT_EQ(owner_of(directory), nobody->uid);
  EXPECT_EQ(mode_of(directory), 0700U);
  EXPECT_EQ(owner_of_job(state_, JobId(3)), nobody->uid);
  ASSERT_TRUE(write_job_file(state_, JobId(3), "fence.json", Json::object()).ok());
  EXPECT_EQ(owner_of(directory + "/fence.json"), nobody->uid);
  EXPECT_EQ(mode_of(directory + "/fence.json"), 0600U);
}

TEST_F(StateDirectoryTest, RemovesTheSecretsOfAMasterThatWasKilled) {
  ASSERT_TRUE(make_state_directory(state_).ok());
  ASSERT_TRUE(make_job_directory(state_, JobId(3), std::nullopt).ok());
  const JobFiles files{job_directory(state_, JobId(3))};
  std::ofstream(root_ + "/key") << "the key\n";
  const auto copies = hand_out_secrets(files, {{"KEY", root_ + "/key"}});
  ASSERT_TRUE(copies.ok()) << copies.error().message;
  ASSERT_TRUE(fs::exists(copies->at("KEY")));
  remove_secrets_of(state_, JobId(3));
  EXPECT_FALSE(fs::exists(copies->at("KEY")));
  EXPECT_FALSE(fs::exists(fs::symlink_status(files.secrets())));
  remove_secrets_of(state_, JobId(4));  // which is not there
}

TEST_F(StateDirectoryTest, RemovesAJobsDirectoryAndNotWhatItsLinksNameElsewhere) {
  ASSERT_TRUE(make_state_directory(state_).ok());
  std::optional<RunAs> nobody;
  if (const auto found = look_up_user("nobody"); geteuid() == 0 && found) nobody = *found;
  ASSERT_TRUE(make_job_directory(state_, JobId(3), nobody).ok());
  const std::string directory = job_directory(state_, JobId(3));
  const std::string elsewhere = root_ + "/elsewhere";
  fs::create_directories(directory + "/checkpoint");
  fs::create_directories(elsewhere);
  std::ofstream(directory + "/checkpoint/model") << "parameters\n";
  std::ofstream(elsewhere + "/file") << "kept\n";
  fs::create_directory_symlink(elsewhere, directory + "/link");
  if (nobody) {
    ASSERT_EQ(chmod(root_.c_str(), 0711), 0);
    for (const char* name : {"/checkpoint", "/checkpoint/model", "/link"})
      ASSERT_EQ(lchown((directory + name).c_str(), nobody->uid, nobody->gid), 0);
  }
  remove_job_directory(state_, JobId(3));
  EXPECT_FALSE(fs::exists(directory));
  EXPECT_TRUE(fs::exists(elsewhere + "/file"));
  remove_job_directory(state_, JobId(4));  // which is not there
}

// Where a copy would name the cgroup of a job that it does not have.
TEST_F(StateDirectoryTest, ACopyKnowsNoCgroups) {
  ASSERT_TRUE(make_state_directory(state_).ok());
  ASSERT_TRUE(make_own_directory(node_directory(state_, NodeId(1))).ok());
  EXPECT_EQ(cgroup_of_job(state_, NodeId(1), JobId(3)), "");
  ASSERT_TRUE(write_cgroup_of_job(state_, NodeId(1), JobId(3), "/sys/fs/cgroup/it").ok());
  EXPECT_EQ(cgroup_of_job(state_, NodeId(1), JobId(3)), "/sys/fs/cgroup/it");
  EXPECT_EQ(cgroup_of_job(state_, NodeId(0), JobId(3)), "");
  fs::copy(state_, root_ + "/copy", fs::copy_options::recursive);
  EXPECT_EQ(cgroup_of_job(root_ + "/copy", NodeId(1), JobId(3)), "");
  fs::rename(state_, root_ + "/moved");
  EXPECT_EQ(cgroup_of_job(root_ + "/moved", NodeId(1), JobId(3)), "/sys/fs/cgroup/it");
  for (const char* odd : {"3", "{}", R"({"cgroup": 7, "of": null})", "[]", "{"}) {
    std::ofstream(cgroup_file(root_ + "/moved", NodeId(1), JobId(3))) << odd;
    EXPECT_EQ(cgroup_of_job(root_ + "/moved", NodeId(1), JobId(3)), "") << odd;
  }
}

TEST_F(StateDirectoryTest, RemovesNothingThatTheJobsUserCouldNot) {
  const auto nobody = look_up_user("nobody");
  if (geteuid() != 0 || !nobody) GTEST_SKIP() << "needs root and the user nobody";
  ASSERT_EQ(chmod(root_.c_str(), 0711), 0);
  ASSERT_TRUE(make_state_directory(state_).ok());
  ASSERT_TRUE(make_job_directory(state_, JobId(3), *nobody).ok());
  const JobFiles files{job_directory(state_, JobId(3))};
  // A directory of theirs where they may do nothing, as it is in one of ours.
  const std::string ours = root_ + "/ours";
  const std::string theirs = ours + "/theirs";
  fs::create_directories(theirs);
  std::ofstream(theirs + "/file") << "kept\n";
  ASSERT_EQ(chmod(ours.c_str(), 0700), 0);
  ASSERT_EQ(chown(theirs.c_str(), nobody->uid, nobody->gid), 0);
  for (const std::string& target : {ours, theirs}) {
    fs::remove(files.secrets());
    fs::create_directory_symlink(target, files.secrets());
    ASSERT_EQ(lchown(files.secrets().c_str(), nobody->uid, nobody->gid), 0);
    remove_secrets_of(state_, JobId(3));
    EXPECT_TRUE(fs::exists(theirs + "/file")) << target;
  }
  // Whatever it did, we are ourselves again.
  EXPECT_TRUE(std::ofstream(ours + "/more").is_open());
}

}  // namespace
}  // namespace rubato::node
