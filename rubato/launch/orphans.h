// What the processes that we have started leave behind when they end.
//
// A process whose parent has died becomes ours (PR_SET_CHILD_SUBREAPER), whatever it has done to
// get away: neither a session of its own nor another environment helps. So a launcher finds all
// that its workers have started, and an agent what its masters have, should one be killed. Only
// direct children are killed: their numbers cannot pass to others before we collect them, and what
// they have started is ours once they are dead.
//
// What another program starts for a job (cron, at, systemd-run) is not below us and is not found;
// nor can a process be killed that has become another user.
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
