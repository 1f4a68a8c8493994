#include "rubato/engine/state_identity.h"

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <set>
#include <string>
#include <unistd.h>
#include <vector>

#include "rubato/node/job_files.h"
#include "rubato/node/state_directory.h"

namespace rubato::engine {
namespace {

namespace fs = std::filesystem;

class StateIdentityTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "rubato-XXXXXX").string();
    root_ = mkdtemp(pattern.data());
    state_ = root_ + "/state";
    ASSERT_TRUE(make_state_directory(state_).ok());
  }
  void TearDown() override { fs::remove_all(root_); }

  static std::string problem(const std::string& directory, bool restored) {
    const auto checked = check_identity(directory, restored);
    return checked ? "" : checked.error().message;
  }
  static void claim(const std::string& directory, bool restored = false) {
    const auto claimed = claim_identity(directory, restored);
    ASSERT_TRUE(claimed.ok()) << claimed.error().message;
  }
  static StateIdentity identity(const std::string& directory) {
    return parse_state_identity(**read_json_file(directory + "/identity.json")).value();
  }
  std::string copy(const std::string& name) {
    fs::copy(state_, root_ + "/" + name, fs::copy_options::recursive);
    return root_ + "/" + name;
  }
  static bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  }
  // A job as its agent and its master leave it.
  void write_job(JobId id, const std::string& token) {
    ASSERT_TRUE(make_job_directory(state_, id, std::nullopt).ok());
    JobLaunch launch;
    launch.job = id;
    launch.name = "job";
    launch.token = token;
    launch.generation = Generation(1);
    launch.slots = {"0.0"};
    launch.node_gpus = {1};
    launch.command = {"true"};
    ASSERT_TRUE(write_job_file(state_, id, "launch.json", to_json(launch)).ok());
  }

  std::string root_, state_;
};

TEST_F(StateIdentityTest, StaysTheSameOneWhereverItIsMoved) {
  EXPECT_EQ(problem(state_, false), "") << "a new one, or of an older version";
  claim(state_);
  const std::string id = identity(state_).id;
  EXPECT_EQ(problem(state_, false), "");
  const std::string moved = root_ + "/moved";
  fs::rename(state_, moved);
  EXPECT_EQ(problem(moved, false), "");
  claim(moved);
  EXPECT_EQ(identity(moved).id, id);
  EXPECT_EQ(identity(moved).path, moved);
}

TEST_F(StateIdentityTest, ACopyIsRefusedUnlessItIsSaidToBeOne) {
  claim(state_);
  const std::string other = copy("other");
  EXPECT_TRUE(
      contains(problem(other, false), "is a copy of a state directory that was at " + state_))
      << problem(other, false);
  EXPECT_TRUE(contains(problem(other, false), "--restored"));
  EXPECT_EQ(problem(other, true), "");
  EXPECT_TRUE(contains(problem(state_, true), "is not a copy"));
  claim(other, true);
  EXPECT_NE(identity(other).id, identity(state_).id);
  EXPECT_EQ(problem(other, false), "") << "needed once";
  EXPECT_EQ(problem(state_, false), "");
}

// As a snapshot of the file system has it.
TEST_F(StateIdentityTest, ACopyWithTheSameInodeIsToldByItsOriginal) {
  claim(state_);
  const std::string other = copy("other");
  StateIdentity same = identity(state_);
  claim(other, true);
  const StateIdentity own = identity(other);
  same.inode = own.inode;
  same.born = own.born;
  ASSERT_TRUE(write_json_file(other + "/identity.json", to_json(same)).ok());
  EXPECT_TRUE(contains(problem(other, false), "is a copy"));
  fs::remove_all(state_);
  EXPECT_EQ(problem(other, false), "");
}

TEST_F(StateIdentityTest, ACopyKeepsNothingByWhichTheOriginalsProcessesAreFound) {
  claim(state_);
  write_job(JobId(7), "t");
  const std::string job = job_directory(state_, JobId(7));
  for (const char* name : {"master.json", "workers.json", "exit.json", "fence.json", "log"})
    std::ofstream(job + "/" + name) << "{}";
  fs::create_directory(job + "/checkpoint");
  fs::create_directory(root_ + "/memory");
  std::ofstream(root_ + "/memory/0") << "secret";
  fs::create_directory_symlink(root_ + "/memory", job + "/secrets");
  fs::create_directory(state_ + "/nodes/0");
  for (const char* name :
       {"/nodes/0/agent.json", "/nodes/0/lock", "/agent.token", "/jobs.secret", "/admin.token"})
    std::ofstream(state_ + name) << "x";
  const std::string other = root_ + "/other";
  fs::copy(state_, other, fs::copy_options::recursive | fs::copy_options::copy_symlinks);
  claim(other, true);
  std::set<std::string> left;
  for (const auto& entry : fs::recursive_directory_iterator(other))
    left.insert(fs::relative(entry.path(), other).string());
  EXPECT_EQ(left, (std::set<std::string>{"admin.token", "identity.json", "jobs", "jobs/7",
                                         "jobs/7/checkpoint", "jobs/7/log", "nodes", "nodes/0"}));
  EXPECT_TRUE(fs::exists(root_ + "/memory/0")) << "the original's workers read it";
  EXPECT_TRUE(fs::exists(job + "/master.json"));
}

TEST_F(StateIdentityTest, AFileThatCannotBeReadIsAnErrorThatNamesIt) {
  for (const char* text : {"", "{", "[]", R"({"id":"x"})", R"({"id":"","inode":1,"path":""})"}) {
    std::ofstream(state_ + "/identity.json") << text;
    EXPECT_TRUE(contains(problem(state_, false), state_ + "/identity.json")) << text;
    EXPECT_TRUE(contains(problem(state_, false), "remove that file if")) << text;
  }
}

TEST_F(StateIdentityTest, AJobsDirectoryIsNotThatOfAnotherSubmission) {
  write_job(JobId(7), "one");
  EXPECT_TRUE(check_submission(state_, JobId(7), "one").ok());
  EXPECT_TRUE(check_submission(state_, JobId(8), "one").ok()) << "nobody's yet";
  const auto other = check_submission(state_, JobId(7), "two");
  ASSERT_FALSE(other.ok());
  EXPECT_TRUE(contains(other.error().message,
                       "/jobs/7 belongs to another job, which had the number 7 before"))
      << other.error().message;
  fs::create_directory(state_ + "/jobs/12");
  fs::create_directory(state_ + "/jobs/.12.new");
  EXPECT_EQ(jobs_with_directory(state_).value(), (std::vector<JobId>{JobId(7), JobId(12)}));
}

TEST_F(StateIdentityTest, AHeldDirectoryIsReachedWhereverItIsMoved) {
  const auto held = HeldDirectory::open(state_);
  ASSERT_TRUE(held.ok());
  EXPECT_EQ(held->path(), fs::canonical(state_));
  fs::rename(state_, root_ + "/moved");
  EXPECT_EQ(held->path(), fs::canonical(root_ + "/moved"));
  ASSERT_TRUE(write_json_file(held->own_path() + "/exit.json", Json(1)).ok());
  EXPECT_TRUE(fs::exists(root_ + "/moved/exit.json"));
  EXPECT_EQ(held->shown(Error{"cannot write " + held->own_path() + "/log: no"}).message,
            "cannot write " + held->path() + "/log: no");
}

}  // namespace
}  // namespace rubato::engine
