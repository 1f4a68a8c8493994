#include "rubato/launch/orphans.h"

#include <cerrno>
#include <csignal>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rubato/launch/processes.h"

namespace rubato::launch {

Orphans::Orphans() {
  const auto table = all_processes();
  if (table) {
    for (const ProcessEntry& entry : *table) {
      if (entry.parent == getpid()) before_.insert(entry.name.pid);
    }
  }
  prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
}

void Orphans::collect(const std::set<int>& own) const {
  for (;;) {
    siginfo_t info{};
    const bool found = waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
    // If the first one is our own child, the others are looked at after it has been collected.
    if (!found || info.si_pid == 0 || !concerns_us(info.si_pid, own)) return;
    waitpid(info.si_pid, nullptr, WNOHANG);
  }
}

bool Orphans::end(const std::set<int>& own, const std::function<bool(int pid)>& spared) const {
  for (;;) {
    const auto table = all_processes();
    if (!table) return false;
    bool collected = false;
    bool left = false;
    for (const ProcessEntry& entry : *table) {
      const int pid = entry.name.pid;
      if (entry.parent != getpid() || !concerns_us(pid, own)) continue;
      if (entry.ended) {
        collected |= waitpid(pid, nullptr, WNOHANG) == pid;
      } else if (!spared || !spared(pid)) {
        left |= kill(pid, SIGKILL) == 0 || errno != EPERM;
      }
    }
    if (left) return false;
    // Children of the processes that were just collected may have become ours since we looked.
    if (!collected) return true;
  }
}

}  // namespace rubato::launch
