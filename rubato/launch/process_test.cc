#include "rubato/launch/process.h"

#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fstream>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rubato/base/text.h"

namespace rubato::launch {
namespace {

Environment plain() { return {"PATH=/usr/bin:/bin"}; }

void wait_for(const wire::Fd& fd) {
  pollfd asked{fd.get(), POLLIN, 0};
  ASSERT_EQ(poll(&asked, 1, 60'000), 1);
}

struct Ended {
  ProcessEnd end;
  std::string out, err;
};

std::string rest_of(const wire::Fd& fd) {
  std::string text;
  char buffer[1000];
  for (ssize_t size = 0; (size = read(fd.get(), buffer, sizeof(buffer))) > 0;) {
    text.append(buffer, static_cast<std::size_t>(size));
  }
  return text;
}

Ended run(const std::string& script, const Environment& environment = plain(), bool niced = false) {
  auto process = spawn({"sh", "-c", script}, environment, {niced});
  EXPECT_TRUE(process.ok());
  wait_for(process->ended);
  const auto end = reap(*process);
  EXPECT_TRUE(end.has_value());
  return {end.value_or(ProcessEnd{true, 0}), rest_of(process->out), rest_of(process->err)};
}

TEST(Process, PassesOutputCodeAndEnvironment) {
  Environment environment = plain();
  set(environment, "WHO", "me");
  set(environment, "WHO", "you");
  set_default(environment, "WHO", "nobody");
  set_default(environment, "WHAT", "thing");
  const Ended ended = run("echo $WHO $WHAT; echo oh >&2; cat; exit 3", environment);
  EXPECT_EQ(ended.end, (ProcessEnd{false, 3}));
  EXPECT_EQ(ended.out, "you thing\n");
  EXPECT_EQ(ended.err, "oh\n");
  EXPECT_EQ(to_text(ended.end), "exited with code 3");
}

TEST(Process, TellsSignals) {
  const Ended ended = run("kill -9 $$");
  EXPECT_EQ(ended.end, (ProcessEnd{true, SIGKILL}));
  EXPECT_EQ(to_text(ended.end), "was killed by signal 9 (Killed)");
}

TEST(Process, AProgramThatIsNotThereIsAnError) {
  bool shortage = true;
  const auto process = spawn({"rubato-no-such-program"}, plain(), {}, &shortage);
  ASSERT_FALSE(process.ok());
  EXPECT_EQ(process.error().message,
            "cannot start \"rubato-no-such-program\": the program was not found (of a script: or "
            "what its first line names)");
  EXPECT_FALSE(shortage) << "the machine could have started it";
}

TEST(Process, AMachineWithoutDescriptorsIsNotTheProgramsFault) {
  // When the sanitizer sees the type of a buffer for the first time, it needs descriptors itself.
  EXPECT_FALSE(spawn({"/no/such/program"}, plain()).ok());
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit none = before;
  none.rlim_cur = 3;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  bool shortage = false;
  const auto process = spawn({"true"}, plain(), {}, &shortage);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_FALSE(process.ok());
  EXPECT_TRUE(shortage);
}

// With a copy of a program, which starts itself again when its file is gone.
TEST(Process, TheRunningProgramCanBeStartedWhenItsFileIsGone) {
  const std::string directory = std::filesystem::temp_directory_path() / "rubato-image-XXXXXX";
  std::string made = directory;
  ASSERT_NE(mkdtemp(made.data()), nullptr);
  const std::string copy = made + "/sh";
  std::filesystem::copy_file(std::filesystem::canonical("/bin/sh"), copy);
  const std::string script =
      fmt::format("rm '{0}'; test -e '{0}' && exit 1; exec {1} -c 'exit 7'", copy, kRunningProgram);
  Detached detached;
  detached.command = {"shown", "-c", script};
  detached.image = copy;
  detached.environment = plain();
  const auto pid = start_detached(detached);
  ASSERT_TRUE(pid) << pid.error().message;
  int status = 0;
  ASSERT_EQ(waitpid(*pid, &status, 0), *pid);
  EXPECT_EQ(WEXITSTATUS(status), 7);
  std::filesystem::remove_all(made);
}

TEST(Process, LivesUntilItEnds) {
  auto process = spawn({"sleep", "60"}, plain());
  ASSERT_TRUE(process.ok());
  EXPECT_FALSE(reap(*process).has_value());
  EXPECT_EQ(getpgid(process->pid), process->pid);
  send_signal(*process, SIGTERM);
  wait_for(process->ended);
  EXPECT_EQ(reap(*process), (ProcessEnd{true, SIGTERM}));
  EXPECT_FALSE(reap(*process).has_value());
}

TEST(Process, WhatItForkedGoesWithIt) {
  const Ended ended = run("sleep 600 >/dev/null 2>&1 & echo $!");
  const auto child = parse_integer(trim(ended.out));
  ASSERT_TRUE(child.has_value());
  // It is a zombie until init or a subreaper collects it, which may never happen in a container.
  const wire::Fd watch = wire::watch_process(static_cast<int>(*child));
  if (watch.valid()) wait_for(watch);
}

TEST(Process, SignalsOfTheLauncherDoNotReachIt) {
  sigset_t set, before;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigprocmask(SIG_BLOCK, &set, &before);
  const auto old_pipe = std::signal(SIGPIPE, SIG_IGN);
  const auto old_quit = std::signal(SIGQUIT, SIG_IGN);
  const Ended ended = run("grep -E '^Sig(Blk|Ign)' /proc/self/status | tr -d '\\t\\n'");
  std::signal(SIGQUIT, old_quit);
  std::signal(SIGPIPE, old_pipe);
  sigprocmask(SIG_SETMASK, &before, nullptr);
  EXPECT_EQ(ended.out, "SigBlk:0000000000000000SigIgn:0000000000000000");
}

TEST(Process, StartsNiced) {
  if (getpriority(PRIO_PROCESS, 0) >= 10) GTEST_SKIP() << "we are nicer than that";
  EXPECT_EQ(run("nice", plain(), true).out, "10\n");
  if (may_undo_nice()) {
    EXPECT_EQ(run("renice -n 0 -p $$ >/dev/null && nice", plain(), true).out, "0\n");
  }
}

TEST(Process, StartsWhereItIsToldAndWithoutOurDescriptors) {
  const wire::Fd ours(open("/dev/null", O_RDONLY));  // stays open across exec
  ASSERT_TRUE(ours.valid());
  const auto listed = [&](bool close_others) {
    auto process =
        spawn({"sh", "-c", fmt::format("pwd; test -e /proc/self/fd/{} && echo open", ours.get())},
              plain(), {false, "/usr", close_others});
    EXPECT_TRUE(process.ok());
    wait_for(process->ended);
    EXPECT_TRUE(reap(*process).has_value());
    return rest_of(process->out);
  };
  EXPECT_EQ(listed(false), "/usr\nopen\n");
  EXPECT_EQ(listed(true), "/usr\n");
  EXPECT_FALSE(spawn({"true"}, plain(), {false, "/no/such/directory"}).ok());
}

class DetachedTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "rubato-XXXXXX").string();
    root_ = mkdtemp(pattern.data());
    // Others must be able to enter it on the way to their own directories.
    ASSERT_EQ(chmod(root_.c_str(), 0711), 0);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  // The output of a script.
  std::string run(const std::string& script, const std::optional<RunAs>& user,
                  const std::string& directory) {
    Detached detached{{"sh", "-c", script}, user ? clean_environment(*user) : plain()};
    detached.user = user;
    detached.directories = {"/no/such/directory", directory};
    detached.output = directory + "/output";
    const auto pid = start_detached(detached);
    EXPECT_TRUE(pid.ok()) << pid.error().message;
    if (!pid) return "";
    int status = 0;
    EXPECT_EQ(waitpid(*pid, &status, 0), *pid);
    EXPECT_EQ(status, 0);
    std::ifstream file(detached.output);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  std::string root_;
};

TEST_F(DetachedTest, LeadsASessionOfItsOwn) {
  const wire::Fd ours(open("/dev/null", O_RDONLY));
  const std::string script = fmt::format(
      "test -e /proc/self/fd/{} && echo open; cut -d' ' -f1,5,6 /proc/$$/stat; echo oh >&2",
      ours.get());
  const std::string printed = run(script, std::nullopt, root_);
  const auto pid = printed.substr(0, printed.find(' '));
  EXPECT_EQ(printed, fmt::format("{0} {0} {0}\noh\n", pid));
  EXPECT_TRUE(start_detached({{"rubato-no-such-program"}, plain()})
                  .error()
                  .message.starts_with("cannot start \"rubato-no-such-program\""));
}

TEST(Users, AreLookedUp) {
  const auto root = look_up_user("root");
  ASSERT_TRUE(root.ok());
  EXPECT_EQ(root->uid, 0U);
  EXPECT_FALSE(root->groups.empty());
  EXPECT_EQ(look_up_user("no such user").error().message,
            "this machine has no user \"no such user\"");
  EXPECT_EQ(clean_environment(*root)[1], "HOME=" + root->home);
}

TEST(Users, RootMayBecomeAnybodyAndOthersNobody) {
  EXPECT_FALSE(run_as("").value().has_value()) << "as we are";
  EXPECT_FALSE(run_as("no such user").ok());
  const auto nobody = look_up_user("nobody");
  if (!nobody || nobody->uid == geteuid()) GTEST_SKIP() << "there is no other user to become";
  const auto other = run_as("nobody");
  EXPECT_EQ(other.ok(), geteuid() == 0);
  if (other) {
    EXPECT_EQ(other.value()->uid, nobody->uid);
    EXPECT_FALSE(run_as("root").value().has_value());
  }
}

TEST_F(DetachedTest, RunsAsAnotherUserWithoutAWayBack) {
  if (geteuid() != 0) GTEST_SKIP() << "root alone may become another";
  const auto nobody = look_up_user("nobody");
  if (!nobody) GTEST_SKIP() << nobody.error().message;
  const std::string home = root_ + "/theirs";
  std::filesystem::create_directory(home);
  ASSERT_EQ(chown(home.c_str(), nobody->uid, nobody->gid), 0);
  ASSERT_EQ(chmod(home.c_str(), 0700), 0);
  std::ofstream(root_ + "/ours") << "secret\n";
  ASSERT_EQ(chmod((root_ + "/ours").c_str(), 0600), 0);
  const std::string printed =
      run("id -u; id -g; id -G; grep NoNewPrivs /proc/self/status | cut -f2; echo $USER; "
          "cat ../ours 2>/dev/null || echo denied; echo mine > file",
          *nobody, home);
  EXPECT_EQ(printed, fmt::format("{}\n{}\n{}\n1\nnobody\ndenied\n", nobody->uid, nobody->gid,
                                 fmt::join(nobody->groups, " ")));
  for (const char* name : {"file", "output"}) {
    struct stat there {};
    ASSERT_EQ(stat((home + "/" + name).c_str(), &there), 0);
    EXPECT_EQ(there.st_uid, nobody->uid) << name;
  }
  // Its output file is opened with its own rights, and not through a link.
  Detached detached{{"true"}, plain()};
  detached.user = *nobody;
  detached.output = root_ + "/ours";
  EXPECT_FALSE(start_detached(detached).ok());
  std::filesystem::create_symlink(home + "/file", home + "/link");
  detached.output = home + "/link";
  EXPECT_FALSE(start_detached(detached).ok());
}

TEST(Process, FindsAFreePort) {
  const auto port = free_port();
  ASSERT_TRUE(port.ok());
  EXPECT_TRUE(wire::listen_on(fmt::format("tcp:127.0.0.1:{}", *port)).ok());
}

}  // namespace
}  // namespace rubato::launch
