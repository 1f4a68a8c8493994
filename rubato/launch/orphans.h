// Processes that our children leave behind when they end.
//
// A process whose parent has died becomes our child (PR_SET_CHILD_SUBREAPER). A session or an
// environment of its own does not prevent that. So a launcher finds all that its workers have
// started, and an agent finds what a killed master has left. Only direct children are killed: their
// pids cannot be reused before we collect them, and their own children become ours once they are
// dead.
//
// Not found is what another program starts for a job (cron, at, systemd-run). Not killed is a
// process that has changed to another user.
//
// Belongs to one thread, the only one of its process that starts any.
#pragma once

#include <functional>
#include <set>

namespace rubato::launch {

class Orphans {
 public:
  // From now on they are ours. Children that are there already are none.
  Orphans();

  // `own`: children that we have started and not collected.
  // Collects those that have ended by themselves.
  void collect(const std::set<int>& own) const;
  // Kills those that are not spared. Whether none is left but the spared; what cannot be looked at
  // is not gone.
  [[nodiscard]] bool end(const std::set<int>& own,
                         const std::function<bool(int pid)>& spared = {}) const;

 private:
  [[nodiscard]] bool concerns_us(int pid, const std::set<int>& own) const {
    return !own.contains(pid) && !before_.contains(pid);
  }

  std::set<int> before_;
};

}  // namespace rubato::launch
