#include "rubato/node/cgroup.h"

#include <chrono>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rubato/launch/process.h"

namespace rubato::node {
namespace {

constexpr const char* kMounts =
    "22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw\n"
    "30 22 0:26 / /sys/fs/cgroup rw,nosuid - tmpfs tmpfs rw\n"
    "31 30 0:27 / /sys/fs/cgroup/cpu rw shared:3 - cgroup cgroup rw,cpu\n"
    "32 30 0:28 / /sys/fs/cgroup/unified rw,relatime shared:4 - cgroup2 cgroup2 rw\n";

TEST(Cgroup, IsFoundWhereItIsMounted) {
  EXPECT_EQ(cgroup_in(kMounts, "4:cpu:/other\n0::/user.slice/session-1.scope\n"),
            "/sys/fs/cgroup/unified/user.slice/session-1.scope");
  EXPECT_EQ(cgroup_in(kMounts, "0::/\n"), "/sys/fs/cgroup/unified/");
  const char* part = "32 30 0:28 /docker/a /sys/fs/cgroup ro - cgroup2 cgroup2 rw\n";
  EXPECT_EQ(cgroup_in(part, "0::/docker/a\n"), "/sys/fs/cgroup");
  EXPECT_EQ(cgroup_in(part, "0::/docker/a/b\n"), "/sys/fs/cgroup/b");
  EXPECT_EQ(cgroup_in(part, "0::/docker/ab\n"), std::nullopt) << "it cannot be seen";
}

TEST(Cgroup, IsNotThereWhereThereIsNone) {
  EXPECT_EQ(cgroup_in(kMounts, "4:cpu:/\n"), std::nullopt) << "version 1 alone";
  EXPECT_EQ(cgroup_in("22 1 8:1 / / rw - ext4 /dev/sda1 rw\n", "0::/\n"), std::nullopt);
  EXPECT_EQ(cgroup_in(kMounts, "0::/../../else\n"), std::nullopt);
  EXPECT_EQ(cgroup_in(kMounts, "0::/gone (deleted)\n"), std::nullopt);
  EXPECT_EQ(cgroup_in("", ""), std::nullopt);
  EXPECT_EQ(cgroup_in("- cgroup2 \n - cgroup2 x", "0::\n0::x"), std::nullopt);
}

// Whatever they do: the second leads a session of its own, its parent is dead, and it has made a
// group in the group.
TEST(Cgroup, IsEmptiedWithAllThatIsInIt) {
  const auto group = make_cgroup(fmt::format("rubato-test-{}", getpid()));
  if (!group) GTEST_SKIP() << "there can be no cgroup here";
  EXPECT_TRUE(empty_cgroup(*group));
  EXPECT_EQ(make_cgroup(fmt::format("rubato-test-{}", getpid())), std::nullopt) << "it is there";
  Detached process;
  const std::string script = fmt::format(
      "mkdir {0}/inner; setsid sh -c 'echo 0 >{0}/inner/cgroup.procs; exec sleep 1000' & "
      "while ! grep -q . {0}/inner/cgroup.procs; do sleep 0.01; done; exit 0",
      *group);
  process.command = {"/bin/sh", "-c", script};
  process.environment = {"PATH=/usr/bin:/bin"};
  const wire::Fd entrance = entrance_of(*group);
  process.cgroup = entrance.get();
  const auto pid = start_detached(process);
  ASSERT_TRUE(pid.ok()) << pid.error().message;
  waitpid(*pid, nullptr, 0);
  EXPECT_FALSE(empty_cgroup(*group)) << "one is left";
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!empty_cgroup(*group) && std::chrono::steady_clock::now() < until) usleep(10'000);
  EXPECT_TRUE(empty_cgroup(*group));
  remove_cgroup(*group);
  EXPECT_NE(access(group->c_str(), F_OK), 0);
  EXPECT_TRUE(empty_cgroup(*group)) << "one that is not there is empty";
}

}  // namespace
}  // namespace rubato::node
