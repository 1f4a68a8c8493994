#include "rubato/launch/roster_master.h"

#include <algorithm>

namespace rubato::launch {

RosterMaster::RosterMaster(RosterStore& store, const RosterVersion& seen)
    : store_(store), version_(seen.number), roster_(seen.roster) {
  (void)write(taken_over(roster_));
}

bool RosterMaster::write(const Roster& next) {
  if (ended_) return false;
  ended_ = !store_.create(version_ + 1, next);
  if (ended_) return false;
  ++version_;
  roster_ = next;
  return true;
}

void RosterMaster::read_epoch() {
  if (store_.newest().roster.epoch > roster_.epoch) ended_ = true;
}

std::vector<ShareName> RosterMaster::linked_shares() const {
  return {shares_.begin(), shares_.end()};
}

// --- what is said ---

void RosterMaster::say(Uid uid) {
  if (roster_.ending || !linked(uid)) return;
  actions_.emplace_back(SayToWorker{
      uid, {roster_.round, roster_.epoch, roster_.plan, roster_.gone, roster_.founder}});
}

void RosterMaster::say_to_all() {
  for (const auto& [uid, hello] : said_) say(uid);
}

void RosterMaster::write_gone(const std::vector<Uid>& uids) {
  if (!uids.empty() && write(with_gone(roster_, uids))) say_to_all();
}

// --- shares ---

bool RosterMaster::share_said(const wire::ShareHello& hello) {
  ended_ = ended_ || hello.epoch > roster_.epoch;
  std::int64_t& latest = share_connections_[hello.share];
  if (ended_ || hello.connection < latest) return false;
  latest = hello.connection;
  shares_.insert(hello.share);
  std::vector<Uid> died;
  for (const Uid uid : hello.ended) {
    const auto worker = roster_.workers.find(uid);
    const bool vouched = worker != roster_.workers.end() && worker->second.share == hello.share;
    if (vouched && !roster_.is_gone(uid)) died.push_back(uid);
  }
  write_gone(died);
  if (!ended_) order_share(hello);
  return !ended_;
}

// Says again what may have been lost: the share starts no worker twice.
void RosterMaster::order_share(const wire::ShareHello& hello) {
  const auto order = [&](auto what) { actions_.emplace_back(SayToShare{hello.share, what}); };
  if (!hello.ended.empty()) order(wire::EndsKept{roster_.epoch, hello.ended});
  const auto in = [](const std::vector<Uid>& uids, Uid uid) {
    return std::find(uids.begin(), uids.end(), uid) != uids.end();
  };
  for (const Uid uid : hello.running) {
    const bool ours = roster_.workers.contains(uid) && !roster_.is_gone(uid) && !roster_.ending;
    if (!ours) order(wire::KillOrder{roster_.round, roster_.epoch, uid});
  }
  for (const auto& [uid, worker] : roster_.workers) {
    if (worker.share != hello.share || roster_.is_gone(uid)) continue;
    if (in(hello.running, uid) || in(hello.ended, uid)) continue;
    // Started and ended at once if the round ends: only the share can vouch that it never ran.
    order(wire::StartOrder{roster_.round, roster_.epoch, uid});
    if (roster_.ending) order(wire::KillOrder{roster_.round, roster_.epoch, uid});
  }
}

bool RosterMaster::admit(const wire::ShareHello& hello) {
  if (hello.native.empty() && hello.instance.empty()) return true;  // it does not say
  const Roster::Admitted process{hello.native, hello.instance};
  const auto found = roster_.admitted.find(hello.share);
  if (found != roster_.admitted.end()) return found->second == process;
  return write(with_admitted(roster_, hello.share, process));
}

void RosterMaster::share_silent(const ShareName& share) { shares_.erase(share); }

void RosterMaster::share_gone(const ShareName& share) { gone_shares_.insert(share); }

std::optional<Uid> RosterMaster::add_worker(const ShareName& share) {
  const Uid uid = roster_.next_uid;
  return add_worker(share, uid) ? std::optional<Uid>(uid) : std::nullopt;
}

bool RosterMaster::add_worker(const ShareName& share, Uid uid, const Slot& slot) {
  const bool possible = share_linked(share) && !gone_shares_.contains(share) && !roster_.ending;
  if (!possible || !write(with_worker(roster_, share, uid, slot))) return false;
  actions_.emplace_back(SayToShare{share, wire::StartOrder{roster_.round, roster_.epoch, uid}});
  return true;
}

bool RosterMaster::kill(Uid uid) {
  const auto worker = roster_.workers.find(uid);
  if (ended_ || worker == roster_.workers.end() || !share_linked(worker->second.share)) {
    return false;
  }
  actions_.emplace_back(
      SayToShare{worker->second.share, wire::KillOrder{roster_.round, roster_.epoch, uid}});
  return true;
}

// --- workers ---

bool RosterMaster::worker_said(const wire::WorkerHello& hello) {
  ended_ = ended_ || hello.epoch > roster_.epoch;
  std::int64_t& latest = worker_connections_[hello.uid];
  if (ended_ || hello.connection < latest) return false;
  const bool first = !linked(hello.uid) || hello.connection > latest;
  latest = hello.connection;
  said_.insert_or_assign(hello.uid, hello);
  if (appoint_founder()) {
    say_to_all();
  } else if (first && !ended_) {
    say(hello.uid);
  }
  return !ended_;
}

// The first planned worker that is there.
bool RosterMaster::appoint_founder() {
  if (roster_.founder != 0 || roster_.ending) return false;
  for (const Uid uid : roster_.plan.workers) {
    if (linked(uid)) return write(with_founder(roster_, uid));
  }
  return false;
}

void RosterMaster::worker_silent(Uid uid) { said_.erase(uid); }

bool RosterMaster::plan(std::vector<Uid> workers) {
  if (roster_.ending || !write(with_plan(roster_, std::move(workers)))) return false;
  (void)appoint_founder();
  if (!ended_) say_to_all();
  return !ended_;
}

// --- exclusion ---

bool RosterMaster::is_survivor(Uid uid) const {
  const auto said = said_.find(uid);
  const auto worker = roster_.workers.find(uid);
  return said != said_.end() && worker != roster_.workers.end() && !roster_.is_gone(uid) &&
         said->second.works && worker->second.planned_since <= said->second.generation.plan;
}

bool RosterMaster::has_survivor(const std::set<Uid>& excluded) const {
  return std::any_of(said_.begin(), said_.end(), [&](const auto& said) {
    return !excluded.contains(said.first) && is_survivor(said.first);
  });
}

std::set<Uid> RosterMaster::on_gone_shares() const {
  std::set<Uid> uids;
  for (const Uid uid : roster_.not_gone()) {
    if (gone_shares_.contains(roster_.workers.at(uid).share)) uids.insert(uid);
  }
  return uids;
}

bool RosterMaster::exclude_silent() {
  if (ended_ || roster_.ending || shares_.empty()) return false;
  std::set<Uid> excluded = on_gone_shares();
  for (const Uid uid : roster_.not_gone()) {
    if (!share_linked(roster_.workers.at(uid).share) && !linked(uid)) excluded.insert(uid);
  }
  const bool founded = roster_.founder != 0;  // else nobody has a state
  if (excluded.empty() || (founded && !has_survivor(excluded))) return false;
  write_gone({excluded.begin(), excluded.end()});
  for (const Uid uid : excluded) kill(uid);
  return !ended_;
}

// --- rounds ---

// A worker has no state for good if it says so and knows of all that are gone: nobody else can have
// given it any since. The founder will have it.
bool RosterMaster::surely_without_state(Uid uid) const {
  const auto said = said_.find(uid);
  return uid != roster_.founder && said != said_.end() && said->second.applied < 0 &&
         said->second.gone == static_cast<std::int64_t>(roster_.gone.size());
}

bool RosterMaster::cannot_be_saved() const {
  const std::vector<Uid> rest = roster_.not_gone();
  if (roster_.founder == 0) return false;
  const bool lost =
      std::all_of(rest.begin(), rest.end(), [&](Uid uid) { return surely_without_state(uid); });
  if (lost) return true;
  // Whoever is only silent may come back and be a survivor.
  const std::set<Uid> excluded = on_gone_shares();
  return !excluded.empty() && !has_survivor(excluded) &&
         std::all_of(rest.begin(), rest.end(),
                     [&](Uid uid) { return excluded.contains(uid) || linked(uid); });
}

bool RosterMaster::look_for_end() {
  if (ended_ || shares_.empty()) return false;
  if (!roster_.ending) {
    if (!cannot_be_saved() || !write(with_ending(roster_))) return false;
  }
  const std::set<Uid> vouched = on_gone_shares();
  write_gone({vouched.begin(), vouched.end()});
  if (ended_) return false;
  if (!roster_.not_gone().empty()) {
    kill_all();
    return true;
  }
  if (!write(next_round(roster_))) return false;
  say_to_all();  // whoever of the old round still lives ends
  return true;
}

bool RosterMaster::begin_start(std::int64_t start) {
  Roster next = next_round(roster_);
  next.admitted.clear();
  next.run = {};
  next.run.start = start;
  return write(next);
}

bool RosterMaster::note(RosterRun run) {
  set_run(std::move(run));
  return write(roster_);
}

bool RosterMaster::give_up() { return roster_.ending || write(with_ending(roster_)); }

void RosterMaster::kill_all() {
  std::set<ShareName> silent;
  for (const Uid uid : roster_.not_gone()) {
    if (!kill(uid)) silent.insert(roster_.workers.at(uid).share);
  }
  for (const ShareName& share : silent) actions_.emplace_back(CancelShare{share});
}

}  // namespace rubato::launch
