// Finds and kills processes that our children leave behind when they end.
//
// A process whose parent has died becomes our child (PR_SET_CHILD_SUBREAPER), even if it has its
// own session or environment. So a launcher finds everything that its workers have started, and an
// agent finds what a killed master has left. Only direct children are killed: their pids cannot be
// reused before we collect them, and their own children become ours when they are dead.
//
// It does not find processes that another program starts for a job (cron, at, systemd-run). It
// cannot kill a process that has changed to another user.
//
// For one thread, which must be the only one of its process that starts processes.
#pragma once

#include <functional>
#include <set>

namespace rubato::launch {

class Orphans {
 public:
  // From now on orphans become our children. Children that exist already are not orphans.
  Orphans();

  // `own`: children that we have started and not collected. Collects orphans that have ended by
  // themselves.
  void collect(const std::set<int>& own) const;
  // Kills orphans that are not spared. Returns whether only spared ones are left. A process that
  // cannot be looked at counts as left.
  [[nodiscard]] bool end(const std::set<int>& own,
                         const std::function<bool(int pid)>& spared = {}) const;

 private:
  [[nodiscard]] bool concerns_us(int pid, const std::set<int>& own) const {
    return !own.contains(pid) && !before_.contains(pid);
  }

  std::set<int> before_;
};

}  // namespace rubato::launch
