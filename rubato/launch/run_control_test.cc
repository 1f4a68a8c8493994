#include "rubato/launch/run_control.h"

#include <cstdlib>
#include <filesystem>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

#include "rubato/wire/frames.h"

namespace rubato::launch {
namespace {

class RunControl : public ::testing::Test {
 protected:
  RunControl() {
    std::string pattern = (std::filesystem::temp_directory_path() / "rubato-XXXXXX").string();
    root_ = mkdtemp(pattern.data());
    directory_ = root_ + "/runs";
  }
  ~RunControl() override { std::filesystem::remove_all(root_); }

  std::string root_, directory_;
};

// Answers this many requests.
void serve(const wire::Fd& listener, int requests, const Json& reply) {
  while (requests > 0) {
    wire::Fd fd = wire::accept_from(listener);
    if (!fd.valid()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      continue;
    }
    wire::FrameStream stream(std::move(fd));
    while (stream.open()) {
      for (const Json& request : stream.receive()) {
        Json answer = reply;
        answer["asked"] = request;
        stream.send(answer);
        --requests;
      }
    }
  }
}

TEST_F(RunControl, TheDirectoryIsOursAlone) {
  EXPECT_TRUE(make_private(directory_).ok());
  EXPECT_TRUE(make_private(directory_).ok());
  struct stat there {};
  ASSERT_EQ(stat(directory_.c_str(), &there), 0);
  EXPECT_EQ(there.st_mode & 0777U, 0700U);
  chmod(directory_.c_str(), 0755);
  EXPECT_FALSE(make_private(directory_).ok());
  ASSERT_EQ(symlink("/tmp", (root_ + "/link").c_str()), 0);
  EXPECT_FALSE(make_private(root_ + "/link").ok());
  EXPECT_FALSE(make_private(root_ + "/not/there").ok());
}

TEST_F(RunControl, ANameIsTakenWhileItsRunLives) {
  auto first = claim_run(directory_, "demo");
  ASSERT_TRUE(first.ok());
  auto second = claim_run(directory_, "demo");
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().message, "there is a run named demo already; choose another --name");
  first->listener.close();  // as if it were killed: its socket file remains
  EXPECT_TRUE(claim_run(directory_, "demo").ok());
}

TEST_F(RunControl, RefusesNames) {
  for (const char* name :
       {"", "7", "-x", "../x", "a/b", "a b", "a123456789012345678901234567890123456789x"}) {
    EXPECT_FALSE(claim_run(directory_, name).ok()) << name;
  }
}

TEST_F(RunControl, FindsRunsAndRemovesWhatDeadOnesLeft) {
  EXPECT_EQ(find_run(directory_, std::nullopt).error().message, "you have no runs");
  auto dead = claim_run(directory_, "dead");
  ASSERT_TRUE(dead.ok());
  dead->listener.close();
  auto alive = claim_run(directory_, "alive");
  ASSERT_TRUE(alive.ok());
  std::thread server([&] { serve(alive->listener, 3, {{"name", "alive"}}); });
  const auto only = find_run(directory_, std::nullopt);
  const auto named = find_run(directory_, "alive");
  const auto other = find_run(directory_, "other");
  ASSERT_TRUE(only.ok());
  EXPECT_EQ(*only, alive->path);
  ASSERT_TRUE(named.ok());
  EXPECT_EQ(*named, alive->path);
  ASSERT_FALSE(other.ok());
  EXPECT_EQ(other.error().message, "there is no run named \"other\"; alive: alive");
  EXPECT_FALSE(std::filesystem::exists(dead->path));
  const auto answer = ask_run(*only, {{"type", "resize"}});
  server.join();
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ((*answer)["asked"]["type"], "resize");
}

TEST_F(RunControl, AnErrorIsPassedOn) {
  auto alive = claim_run(directory_, "alive");
  ASSERT_TRUE(alive.ok());
  std::thread server([&] { serve(alive->listener, 1, {{"error", "no"}}); });
  const auto answer = ask_run(alive->path, {{"type", "kill"}});
  server.join();
  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.error().message, "no");
}

}  // namespace
}  // namespace rubato::launch
