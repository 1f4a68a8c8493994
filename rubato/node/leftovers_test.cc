#include "rubato/node/leftovers.h"

#include <chrono>
#include <csignal>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rubato/core/testing.h"
#include "rubato/launch/processes.h"
#include "rubato/node/cgroup.h"
#include "rubato/node/job_files.h"

namespace rubato::node {
namespace {

// While it lives, this process can open nothing.
class NoDescriptors {
 public:
  NoDescriptors() {
    EXPECT_EQ(getrlimit(RLIMIT_NOFILE, &before_), 0);
    const rlimit none{0, before_.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  }
  ~NoDescriptors() { EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before_), 0); }
  NoDescriptors(const NoDescriptors&) = delete;
  NoDescriptors& operator=(const NoDescriptors&) = delete;

 private:
  rlimit before_{};
};

class LeftoversTest : public testing::Test {
 protected:
  void SetUp() override {
    child_ = fork();
    if (child_ == 0) {
      for (;;) pause();
    }
    name_ = {child_, wire::start_time_of(child_)};
  }
  void TearDown() override {
    if (child_ == 0) return;
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
  }
  // How it ended.
  int collect() {
    int status = 0;
    waitpid(std::exchange(child_, 0), &status, 0);
    return status;
  }
  bool done_in_time() {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (std::chrono::steady_clock::now() < limit) {
      if (leftovers_.pass() == std::vector{job_id(0)}) return true;
      usleep(10'000);
    }
    return false;
  }

  pid_t child_ = 0;
  ProcessName name_;
  Leftovers leftovers_;
};

TEST_F(LeftoversTest, KillsWhatIsNamedAndThenIsDone) {
  leftovers_.add(job_id(0), getuid(), "", {name_, own_name()});
  EXPECT_TRUE(done_in_time());
  EXPECT_FALSE(leftovers_.busy());
  EXPECT_EQ(WTERMSIG(collect()), SIGKILL);
}

TEST_F(LeftoversTest, LeavesAloneWhatIsAnothersOrHasAnotherName) {
  ProcessName another = name_;
  ++another.start_time;
  leftovers_.add(job_id(0), getuid(), "", {another, {child_, 0}, {0, 0}});
  EXPECT_TRUE(done_in_time());
  leftovers_.add(job_id(0), getuid() + 1, "", {name_});
  EXPECT_TRUE(done_in_time());
  EXPECT_TRUE(lives(name_));
}

// What it has started, in a session of its own and with no variable of the job.
TEST_F(LeftoversTest, KillsWhatANamedProcessHasStarted) {
  int ends[2] = {-1, -1};
  ASSERT_EQ(pipe(ends), 0);
  const pid_t parent = fork();
  if (parent == 0) {
    pid_t child = fork();
    if (child == 0) {
      setsid();
      for (;;) pause();
    }
    if (write(ends[1], &child, sizeof(child)) != sizeof(child)) std::_Exit(1);
    for (;;) pause();
  }
  pid_t child = 0;
  ASSERT_EQ(read(ends[0], &child, sizeof(child)), static_cast<ssize_t>(sizeof(child)));
  const ProcessName hidden{child, wire::start_time_of(child)};
  leftovers_.add(job_id(0), getuid(), "", {{parent, wire::start_time_of(parent)}});
  EXPECT_TRUE(done_in_time());
  EXPECT_FALSE(lives(hidden));
  EXPECT_TRUE(lives(name_)) << "a child of ours, but of no job";
  waitpid(parent, nullptr, 0);
  close(ends[0]);
  close(ends[1]);
}

TEST_F(LeftoversTest, ItsCgroupIsEmptiedAndRemoved) {
  const auto cgroup = make_cgroup(fmt::format("rubato-test-{}", getpid()));
  if (!cgroup) GTEST_SKIP() << "there can be no cgroup here";
  const wire::Fd entrance = entrance_of(*cgroup);
  const std::string number = fmt::format("{}", child_);
  ASSERT_EQ(write(entrance.get(), number.data(), number.size()),
            static_cast<ssize_t>(number.size()));
  leftovers_.add(job_id(0), getuid(), "", {}, *cgroup);
  EXPECT_TRUE(done_in_time());
  EXPECT_EQ(WTERMSIG(collect()), SIGKILL);
  EXPECT_NE(access(cgroup->c_str(), F_OK), 0) << "it is removed";
}

TEST_F(LeftoversTest, IsNotDoneWhileOthersLive) {
  leftovers_.add(job_id(0), getuid(), "", {});
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(leftovers_.pass(false).empty());
  EXPECT_TRUE(done_in_time());
}

TEST_F(LeftoversTest, WhatCannotBeLookedAtIsNotGone) {
  leftovers_.add(job_id(0), getuid(), "", {name_});
  {
    const NoDescriptors shortage;
    for (int i = 0; i < 5; ++i) EXPECT_TRUE(leftovers_.pass().empty());
    EXPECT_TRUE(lives(name_));
    EXPECT_FALSE(lives_as(getuid(), name_)) << "nothing is killed that is not known";
  }
  EXPECT_TRUE(lives(name_));
  EXPECT_TRUE(done_in_time());
  EXPECT_EQ(WTERMSIG(collect()), SIGKILL);
}

TEST_F(LeftoversTest, AfterAShortageItLooksAsOftenAsAtFirst) {
  leftovers_.add(job_id(0), getuid(), "", {});
  EXPECT_TRUE(leftovers_.pass().empty());
  {
    const NoDescriptors shortage;
    EXPECT_TRUE(leftovers_.pass().empty());
  }
  EXPECT_TRUE(leftovers_.pass().empty());
  EXPECT_EQ(leftovers_.pass(), std::vector{job_id(0)});
}

}  // namespace
}  // namespace rubato::node
