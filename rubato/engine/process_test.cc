#include "rubato/engine/process.h"

#include <cerrno>
#include <csignal>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include "rubato/base/text.h"

namespace rubato {
namespace {

Environment plain() { return {"PATH=/usr/bin:/bin"}; }

void wait_for(const wire::Fd& fd) {
  pollfd asked{fd.get(), POLLIN, 0};
  ASSERT_EQ(poll(&asked, 1, 20'000), 1);
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
  const auto process = spawn({"rubato-no-such-program"}, plain());
  ASSERT_FALSE(process.ok());
  EXPECT_EQ(process.error().message,
            "cannot start \"rubato-no-such-program\": No such file or directory");
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
  const Ended ended = run("sleep 60 >/dev/null 2>&1 & echo $!");
  const auto child = parse_integer(trim(ended.out));
  ASSERT_TRUE(child.has_value());
  // It is a zombie until init or a subreaper collects it, which may never happen in a container.
  bool dead = false;
  for (int i = 0; i < 200 && !dead; ++i) {
    const wire::Fd watch = wire::watch_process(static_cast<int>(*child));
    pollfd asked{watch.get(), POLLIN, 0};
    dead = !watch.valid() || poll(&asked, 1, 10) == 1;
  }
  EXPECT_TRUE(dead);
}

TEST(Process, SignalsOfTheLauncherDoNotReachIt) {
  sigset_t set, before;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigprocmask(SIG_BLOCK, &set, &before);
  const auto old = std::signal(SIGPIPE, SIG_IGN);
  const Ended ended = run("grep -E '^Sig(Blk|Ign)' /proc/self/status | tr -d '\\t\\n'");
  std::signal(SIGPIPE, old);
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

TEST(Process, FindsAFreePort) {
  const auto port = free_port();
  ASSERT_TRUE(port.ok());
  EXPECT_TRUE(wire::listen_on(fmt::format("tcp:127.0.0.1:{}", *port)).ok());
}

}  // namespace
}  // namespace rubato
