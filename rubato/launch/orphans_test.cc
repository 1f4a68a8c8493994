#include "rubato/launch/orphans.h"

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rubato/launch/processes.h"

namespace rubato::launch {
namespace {

constexpr auto kPatience = std::chrono::seconds(60);

// In its own process, because it changes which process is the parent of orphans. 0 if everything
// holds.
int code_of(const std::function<int()>& play) {
  const pid_t pid = fork();
  if (pid == 0) {
    alarm(120);
    std::_Exit(play());
  }
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

[[noreturn]] void sleep_forever() {
  for (;;) pause();
}

// A child that starts a process with its own session, and ends. Returns that process.
int leave_one_behind(int children = 0) {
  int ends[2] = {-1, -1};
  if (pipe(ends) != 0) std::_Exit(99);
  const pid_t between = fork();
  if (between == 0) {
    const pid_t left = fork();
    if (left == 0) {
      setsid();
      for (int i = 0; i < children; ++i) {
        if (fork() == 0) {
          setsid();
          sleep_forever();
        }
      }
      const pid_t self = getpid();
      if (write(ends[1], &self, sizeof(self)) != sizeof(self)) std::_Exit(98);
      sleep_forever();
    }
    std::_Exit(0);
  }
  pid_t left = 0;
  if (read(ends[0], &left, sizeof(left)) != sizeof(left)) std::_Exit(97);
  waitpid(between, nullptr, 0);
  close(ends[0]);
  close(ends[1]);
  return left;
}

bool ends_in_time(const Orphans& orphans, const std::set<int>& own,
                  const std::function<bool(int)>& spared = {}) {
  const auto until = std::chrono::steady_clock::now() + kPatience;
  while (std::chrono::steady_clock::now() < until) {
    if (orphans.end(own, spared)) return true;
    usleep(10'000);
  }
  return false;
}

bool is_there(int pid) { return kill(pid, 0) == 0; }

TEST(Orphans, AreKilledWithAllThatTheyHaveStarted) {
  EXPECT_EQ(code_of([] {
              const Orphans orphans;
              const int left = leave_one_behind(3);
              const auto table = all_processes();
              if (!table || below(getpid(), *table).size() != 4) return 1;
              if (!ends_in_time(orphans, {})) return 2;
              if (is_there(left)) return 3;
              return waitpid(-1, nullptr, WNOHANG) < 0 && errno == ECHILD ? 0 : 4;
            }),
            0);
}

TEST(Orphans, AreNeitherOurOwnNorThoseThatWereThereNorTheSpared) {
  EXPECT_EQ(code_of([] {
              const pid_t before = fork();
              if (before == 0) sleep_forever();
              const Orphans orphans;
              const pid_t own = fork();
              if (own == 0) sleep_forever();
              const int spared = leave_one_behind();
              const int left = leave_one_behind();
              if (!ends_in_time(orphans, {own}, [&](int pid) { return pid == spared; })) return 1;
              const bool right =
                  is_there(before) && is_there(own) && is_there(spared) && !is_there(left);
              for (const int pid : {int{before}, int{own}, spared}) {
                kill(pid, SIGKILL);
                waitpid(pid, nullptr, 0);
              }
              return right ? 0 : 2;
            }),
            0);
}

TEST(Orphans, AreCollectedWhenTheyEndByThemselves) {
  EXPECT_EQ(code_of([] {
              const Orphans orphans;
              const int left = leave_one_behind();
              orphans.collect({});
              if (!is_there(left)) return 1;
              kill(left, SIGTERM);
              const auto until = std::chrono::steady_clock::now() + kPatience;
              while (is_there(left) && std::chrono::steady_clock::now() < until) {
                orphans.collect({});
                usleep(10'000);
              }
              return is_there(left) ? 2 : 0;
            }),
            0);
}

TEST(Processes, KnowWhoStartedWhom) {
  const std::vector<ProcessEntry> table = {
      {{1, 5}, 0, false},  {{10, 6}, 1, false},  {{11, 7}, 10, true}, {{12, 8}, 11, false},
      {{20, 9}, 1, false}, {{30, 9}, 31, false}, {{31, 9}, 30, false}};
  EXPECT_EQ(below(10, table), (std::vector<ProcessName>{{11, 7}, {12, 8}}));
  EXPECT_EQ(below(1, table).size(), 4U);
  EXPECT_TRUE(below(99, table).empty());
  EXPECT_EQ(below(30, table).size(), 2U) << "it comes to an end";
}

}  // namespace
}  // namespace rubato::launch
