#include "rubato/launch/roster.h"

#include <algorithm>
#include <utility>

namespace rubato::launch {
namespace {

bool holds(const std::vector<Uid>& uids, Uid uid) {
  return std::find(uids.begin(), uids.end(), uid) != uids.end();
}

}  // namespace

bool Roster::is_gone(Uid uid) const { return holds(gone, uid); }

std::vector<Uid> Roster::not_gone() const {
  std::vector<Uid> uids;
  for (const auto& [uid, worker] : workers) {
    if (!is_gone(uid)) uids.push_back(uid);
  }
  return uids;
}

Roster taken_over(Roster roster) {
  ++roster.epoch;
  return roster;
}

Roster with_worker(Roster roster, const ShareName& share) {
  const Uid uid = roster.next_uid;
  return with_worker(std::move(roster), share, uid);
}

Roster with_worker(Roster roster, const ShareName& share, Uid uid) {
  roster.workers[uid] = {share, Roster::kNotPlanned};
  roster.next_uid = std::max(roster.next_uid, uid + 1);
  return roster;
}

Roster with_plan(Roster roster, std::vector<Uid> workers) {
  std::erase_if(workers, [&](Uid uid) { return roster.is_gone(uid); });
  ++roster.plan.number;
  for (auto& [uid, worker] : roster.workers) {
    if (!holds(workers, uid)) {
      worker.planned_since = Roster::kNotPlanned;
    } else if (worker.planned_since == Roster::kNotPlanned) {
      worker.planned_since = roster.plan.number;
    }
  }
  roster.plan.workers = std::move(workers);
  return roster;
}

Roster with_gone(Roster roster, const std::vector<Uid>& uids) {
  for (const Uid uid : uids) {
    if (!roster.is_gone(uid)) roster.gone.push_back(uid);
  }
  std::vector<Uid> workers = roster.plan.workers;
  return with_plan(std::move(roster), std::move(workers));
}

Roster with_founder(Roster roster, Uid founder) {
  roster.founder = founder;
  return roster;
}

Roster with_ending(Roster roster) {
  roster.ending = true;
  return roster;
}

Roster next_round(Roster roster) {
  ++roster.round;
  roster.ending = false;
  roster.first_uid = roster.next_uid;
  roster.founder = 0;
  roster.workers.clear();
  roster.gone.clear();
  return with_plan(std::move(roster), {});
}

}  // namespace rubato::launch
