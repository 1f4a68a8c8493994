#include "rubato/member/membership.h"

#include <algorithm>

#include "rubato/base/check.h"

namespace rubato::member {

void Membership::found(const MembershipPlan& plan, const StepPlan& first,
                       const MembershipGeneration& after) {
  CHECK(!record_);
  plan_ = plan;
  const MembershipGeneration generation = std::max(
      MembershipGeneration{plan.number, 0}, MembershipGeneration{after.plan, after.revision + 1});
  const std::int64_t recovery = known_ ? known_->recovery + 1 : 0;
  enter({generation, recovery, first.step, {{self_, Role::working, 0, 0, host_of(self_)}}});
  next_ = first;
  applied_ = first.step - 1;
}

void Membership::adopt(const Proposal& proposal) {
  const Member* self = proposal.record.find(self_);
  if (self == nullptr || self->role != Role::joining || dead_.contains(self->donor)) return;
  // A job that restarts from its checkpoint counts recoveries from 0 again, under a later plan.
  const bool new_start =
      !record_ && known_ && proposal.record.generation.plan > known_->generation.plan;
  if (known_ && !proposal.record.newer_than(*known_) && !new_start) {
    return;
  }
  enter(proposal.record);
  next_ = proposal.plan;
  applied_ = kNoState;
  if (!reports_.empty()) return start_recovery();  // others have stopped already
  look_for_dead();
}

// Leaving members are remembered until they are dead: see may_take_in().
void Membership::enter(const Record& record) {
  const auto note = [&](const Record& of) {
    for (const Member& member : of.members) {
      if (member.role == Role::leaving && !dead_.contains(member.uid)) left_.insert(member.uid);
    }
  };
  if (known_) note(*known_);
  for (const Member& member : record.members) left_.erase(member.uid);
  note(record);
  if (reports_of_ != record.recovery) {
    reports_.clear();
    told_.clear();
  }
  reports_of_ = record.recovery;
  recovering_ = false;
  catching_up_.reset();
  record_ = record;
  known_ = record;
}

void Membership::plan(const MembershipPlan& plan) {
  if (plan.number > plan_.number) plan_ = plan;
}

void Membership::ready(Uid peer) {
  if (!dead_.contains(peer)) ready_.insert(peer);
}

void Membership::unready(Uid peer) { ready_.erase(peer); }

void Membership::level(Uid peer, const Level& level) {
  if (!dead_.contains(peer)) level_[peer] = level;
}

Level Membership::own_level() const {
  CHECK(role() == Role::joining);
  return {record_->recovery, record_->find(self_)->since};
}

Role Membership::role() const {
  CHECK(record_ && record_->find(self_) != nullptr);
  return record_->find(self_)->role;
}

std::vector<Uid> Membership::ready_peers() const { return {ready_.begin(), ready_.end()}; }

std::vector<Uid> Membership::broken_joiners() const {
  std::vector<Uid> uids;
  for (const auto& [uid, since] : broken_) {
    const Member* member = record_ ? record_->find(uid) : nullptr;
    if (member != nullptr && member->role == Role::joining && member->since == since) {
      uids.push_back(uid);
    }
  }
  return uids;
}

std::vector<Membership::Action> Membership::take_actions() {
  std::vector<Action> actions;
  actions.swap(actions_);
  return actions;
}

// --- undisturbed training ---

// If the record belongs to a newer plan than the one that this leader knows, the leader keeps all
// members.
bool Membership::planned(Uid uid) const {
  return plan_.number < record_->generation.plan ||
         std::find(plan_.workers.begin(), plan_.workers.end(), uid) != plan_.workers.end();
}

std::string Membership::host_of(Uid uid) const {
  const auto found = hosts_.find(uid);
  return found == hosts_.end() ? "" : found->second;
}

// Workers are accepted only while all members work and no process that has left is alive. Then, if
// a member knows an older record than others, its record has all of those others. Workers that join
// at the same time must be connected to each other. They need no connection to workers that join
// later.
bool Membership::may_take_in(const Record& next) const {
  return plan_.number >= record_->generation.plan && left_.empty() &&
         next.working().size() == next.members.size() &&
         record_->working().size() == record_->members.size();
}

Record Membership::propose() const {
  Record next = *record_;
  next.members.clear();
  const auto is_level = [&](const Member& member) {
    const auto said = level_.find(member.uid);
    return said != level_.end() && said->second == Level{record_->recovery, member.since};
  };
  std::vector<Member> leaving;
  std::vector<Member> joining;
  for (const Member& member : record_->members) {
    if (member.role == Role::leaving) continue;
    if (member.role == Role::joining) {
      if (!planned(member.uid) || dead_.contains(member.uid) ||
          broken_somewhere_.contains(member.uid)) {
        continue;
      }
      if (is_level(member)) {
        next.members.push_back({member.uid, Role::working, 0, 0, member.host});
      } else {
        joining.push_back(member);
      }
    } else if (planned(member.uid)) {
      next.members.push_back(member);
    } else {
      leaving.push_back(member);
    }
  }
  // The last member that has the state stays until another one has it.
  const bool anybody_works = !next.members.empty();
  for (Member member : leaving) {
    if (anybody_works) member.role = Role::leaving;
    next.members.push_back(member);
  }
  // A joining worker whose donor leaves is accepted again later.
  for (const Member& member : joining) {
    const Member* donor = next.find(member.donor);
    if (donor != nullptr && donor->role == Role::working) next.members.push_back(member);
  }
  if (may_take_in(next)) {
    // Takes donors in turn, so that two joining workers have different ones.
    const std::vector<Uid> donors = record_->working();
    std::size_t turn = 0;
    for (const Uid uid : plan_.workers) {
      if (record_->find(uid) != nullptr || !ready_.contains(uid) ||
          !ready_everywhere_.contains(uid)) {
        continue;
      }
      next.members.push_back(
          {uid, Role::joining, donors[turn++ % donors.size()], next_.step + 1, host_of(uid)});
    }
  }
  std::sort(next.members.begin(), next.members.end(),
            [](const Member& a, const Member& b) { return a.uid < b.uid; });
  if (next.members == record_->members) return next;
  next.first = next_.step + 1;
  next.generation =
      plan_.number > record_->generation.plan
          ? MembershipGeneration{plan_.number, 0}
          : MembershipGeneration{record_->generation.plan, record_->generation.revision + 1};
  return next;
}

void Membership::completed(const std::map<Uid, Word>& words) {
  CHECK(record_ && !recovering_);
  const Word& leader = words.at(record_->leader());
  CHECK(leader.proposal.size() == 1);
  const Role before = role();
  const Step step = next_.step;

  std::map<Uid, std::size_t> seen;
  for (const auto& [uid, word] : words) {
    for (const Uid peer : word.ready) ++seen[peer];
  }
  ready_everywhere_.clear();
  for (const auto& [peer, count] : seen) {
    if (count == words.size()) ready_everywhere_.insert(peer);
  }

  broken_somewhere_.clear();
  for (const auto& [uid, word] : words) {
    broken_somewhere_.insert(word.broken.begin(), word.broken.end());
  }
  const Record record = *record_;
  const Proposal proposal = leader.proposal.front();
  // A member that has just begun to work has not said yet to which joining workers it is connected.
  for (const Uid uid : proposal.record.working()) {
    if (!words.contains(uid)) ready_everywhere_.clear();
  }
  enter(proposal.record);
  next_ = proposal.plan;
  if (record_->find(self_) == nullptr) return leave_record(before == Role::leaving);
  // A joining member counts as having applied a step only when it works.
  if (role() != Role::joining) applied_ = step;
  tell_dropped(record);
  look_for_dead();
  // It was promoted before the leader heard that our connection broke: words are lost on it.
  if (works_without_connection(record)) start_recovery();
}

void Membership::tell_dropped(const Record& before) {
  for (const Member& member : before.members) {
    if (member.role == Role::joining && member.donor == self_ && !dead_.contains(member.uid) &&
        record_->find(member.uid) == nullptr) {
      actions_.emplace_back(SendDropped{member.uid, {before.recovery, member.since}});
    }
  }
}

void Membership::dropped(const Level& attempt) {
  if (record_ && role() == Role::joining && own_level() == attempt) leave_record(false);
}

// Whether a joiner of `before` works now though its connection with this worker broke.
bool Membership::works_without_connection(const Record& before) const {
  return std::any_of(before.members.begin(), before.members.end(), [&](const Member& member) {
    const auto broken = broken_.find(member.uid);
    const Member* now = record_->find(member.uid);
    return member.role == Role::joining && broken != broken_.end() &&
           broken->second == member.since && now != nullptr && now->role == Role::working;
  });
}

void Membership::leave_record(bool as_planned) {
  recovering_ = false;
  catching_up_.reset();
  record_.reset();
  applied_ = kNoState;
  if (as_planned) {
    actions_.emplace_back(Leave{});
  } else {
    actions_.emplace_back(Dropped{});
  }
}

// --- failure ---

void Membership::bury(Uid peer) {
  if (peer == self_ || !dead_.insert(peer).second) return;
  ready_.erase(peer);
  level_.erase(peer);
  left_.erase(peer);
  broken_.erase(peer);
  reports_.erase(peer);
  early_.erase(peer);
}

void Membership::exclude_self() {
  record_.reset();
  recovering_ = false;
  applied_ = kNoState;
  actions_.clear();
  actions_.emplace_back(Excluded{});
}

void Membership::gone(const std::vector<Uid>& list) {
  if (std::find(list.begin(), list.end(), self_) != list.end()) return exclude_self();
  const std::size_t before = dead_.size();
  for (const Uid uid : list) bury(uid);
  if (dead_.size() == before) return;
  if (!recovering_) return look_for_dead();
  tell_all();
  evaluate();
}

void Membership::dead(Uid peer) {
  bury(peer);
  if (!recovering_) return look_for_dead();
  tell_all();
  evaluate();
}

void Membership::lost(Uid peer) {
  const Member* member = record_ ? record_->find(peer) : nullptr;
  if (member == nullptr) return;
  if (member->role == Role::joining) broken_[peer] = member->since;
  if (member->role == Role::working || (catching_up_ && catching_up_->holder == peer)) {
    start_recovery();
  }
}

// Nobody tells a leaving member of a recovery that began after it had left the others' record. If a
// connection was broken when it went on, the words that it waits for may be lost: it asks.
void Membership::reconnected(Uid peer) {
  told_.erase(peer);
  if (recovering_) return tell_all();
  const Member* member = record_ ? record_->find(peer) : nullptr;
  if (member != nullptr && member->role == Role::working && role() == Role::leaving) {
    start_recovery();
  }
}

// The others do not wait for joining and leaving members, except for the gradient of a commit. The
// leader's next proposal is without them.
void Membership::look_for_dead() {
  if (!record_ || recovering_) return;
  if (catching_up_ && dead_.contains(catching_up_->holder)) return start_recovery();
  for (const Member& member : record_->members) {
    if (member.role == Role::working && dead_.contains(member.uid)) return start_recovery();
  }
}

void Membership::start_recovery() {
  if (recovering_ || !record_) return;
  recovering_ = true;
  actions_.emplace_back(Interrupted{});
  tell_all();
  evaluate();
}

Report Membership::own_report() const {
  Report report{*known_, applied_, next_, {}, record_ ? *record_ : Record{}};
  std::set<Uid> dead;
  const auto note = [&](const Record& record) {
    for (const Member& member : record.members) {
      if (dead_.contains(member.uid)) dead.insert(member.uid);
    }
  };
  note(report.record);
  note(report.own);
  for (const auto& [uid, other] : reports_) note(other.own);
  report.dead.assign(dead.begin(), dead.end());
  return report;
}

// Also tells workers that asked and are not members: they may know this worker from an older
// record.
void Membership::tell_all() {
  const Report report = own_report();
  for (const Member& member : record_->members) tell(member.uid, report);
  for (const Member& member : known_->members) tell(member.uid, report);
  for (const auto& [uid, unused] : reports_) tell(uid, report);
  for (const auto& [uid, unused] : early_) tell(uid, report);
}

void Membership::tell(Uid to, const Report& report) {
  if (to == self_ || dead_.contains(to)) return;
  const Told told{report.record.generation, report.dead};
  const auto [last, first] = told_.try_emplace(to, told);
  if (!first && last->second == told) return;
  last->second = told;
  actions_.emplace_back(SendReport{to, report});
}

void Membership::report(Uid from, const Report& report) {
  if (dead_.contains(from)) return;
  if (std::find(report.dead.begin(), report.dead.end(), self_) != report.dead.end()) {
    return exclude_self();
  }
  for (const Uid uid : report.dead) bury(uid);
  if (known_ && report.record.recovery < known_->recovery) {
    answer_late(from);
  } else if (!record_) {
    if (!known_ || report.record.newer_than(*known_)) known_ = report.record;
    // A peer that is not a member only answers what this worker asked before it left.
    const bool takes_part = !report.own.members.empty();
    if (known_->find(self_) != nullptr && takes_part) return take_part(from, report);
    if (report.record.find(self_) != nullptr) {
      actions_.emplace_back(SendReport{from, own_report()});
    }
  } else if (report.record.recovery > record_->recovery) {
    if (applied_ == kNoState && report.record.find(self_) != nullptr) {
      known_ = report.record;
      return take_part(from, report);
    }
    // When it knows which step this worker has applied, it answers with the commit.
    early_[from] = report;
    start_recovery();
  } else {
    if (report.record.newer_than(*known_)) known_ = report.record;
    reports_[from] = report;
    start_recovery();
  }
  look_for_dead();
  if (!recovering_) return;
  tell_all();
  evaluate();
}

// A recovery lists this worker as joining, but the message of its donor has not come and may never
// come.
void Membership::take_part(Uid from, const Report& report) {
  enter(Record(*known_));
  next_ = report.plan;
  applied_ = kNoState;
  if (report.record.recovery == record_->recovery) reports_[from] = report;
  start_recovery();
}

// Tells a peer that is still in an earlier recovery how that recovery ended. If this worker came
// later, tells it that it is not a member. A peer that the commit lets leave may have left since:
// then the words for which it would wait are said, and it leaves at once.
void Membership::answer_late(Uid to) {
  Commit answer;
  if (last_commit_ && last_commit_->record.recovery == known_->recovery) {
    answer = *last_commit_;
    const Member* then = answer.record.find(to);
    const bool left = then != nullptr && then->role == Role::leaving && record_ &&
                      record_->recovery == known_->recovery && record_->find(to) == nullptr;
    if (left) answer.record = *record_;
  } else {
    // Older than any record of this recovery. A record that accepts the peer may be on its way.
    answer.record.recovery = known_->recovery;
  }
  actions_.emplace_back(SendCommit{to, answer});
}

// The record whose living members continue. If all members of the newest record are dead, members
// that had left it or were leaving have the newest state. Then it is the newest record that one of
// these has reached.
const Record& Membership::basis() const {
  const auto lives = [&](const Member& member) { return !dead_.contains(member.uid); };
  if (std::any_of(known_->members.begin(), known_->members.end(), lives)) return *known_;
  const Record* newest = &*record_;
  for (const auto& [uid, report] : reports_) {
    if (!report.own.members.empty() && report.own.newer_than(*newest)) newest = &report.own;
  }
  return *newest;
}

bool Membership::all_reported(const Record& record) const {
  for (const Member& member : record.members) {
    if (member.uid == self_ || dead_.contains(member.uid)) continue;
    if (member.uid < self_) return false;  // it will commit
    const auto report = reports_.find(member.uid);
    if (report == reports_.end()) return false;
    for (const Member& before : record.members) {
      const std::vector<Uid>& dead = report->second.dead;
      if (before.uid < self_ && std::find(dead.begin(), dead.end(), before.uid) == dead.end()) {
        return false;
      }
    }
  }
  return true;
}

void Membership::evaluate() {
  if (!recovering_) return;
  const Record record = basis();
  if (record.find(self_) == nullptr || !all_reported(record)) return;
  const Commit decision = decide(record);
  for (const auto& [uid, report] : reports_) actions_.emplace_back(SendCommit{uid, decision});
  commit(self_, decision);
}

Commit Membership::decide(const Record& record) const {
  Commit result;
  result.record = *known_;  // newer than all of these, whichever members continue
  result.record.members.clear();
  ++result.record.recovery;
  ++result.record.generation.revision;
  result.applied = kNoState;
  for (const Member& member : record.members) {
    if (dead_.contains(member.uid)) continue;
    const Report report = member.uid == self_ ? own_report() : reports_.at(member.uid);
    if (report.applied == kNoState) continue;  // it was joining and starts again
    result.record.members.push_back({member.uid, member.role, 0, 0, member.host});
    if (report.applied > result.applied) {
      result.applied = report.applied;
      result.holder = member.uid;
      result.plan = report.plan;
    }
  }
  if (result.record.members.empty()) {
    result.stranded = true;
    return result;
  }
  if (result.record.working().empty()) {
    for (Member& member : result.record.members) member.role = Role::working;
  }
  for (const Member& member : result.record.members) {
    const Step applied = member.uid == self_ ? applied_ : reports_.at(member.uid).applied;
    if (applied < result.applied) result.behind.push_back(member.uid);
  }
  result.record.first = result.applied + 1;
  result.plan = for_workers(result.plan, static_cast<int>(result.record.working().size()));
  return result;
}

// Two members may decide the same recovery: a leaving member, and a member that knows a newer
// record without the leaving one. The others continue without the leaving member, which would wait
// for them for ever.
bool Membership::left_out_by(const Commit& commit) const {
  return record_ && !recovering_ && role() == Role::leaving && !commit.stranded &&
         commit.record.recovery == record_->recovery &&
         commit.record.generation > record_->generation && commit.record.find(self_) == nullptr;
}

void Membership::commit(Uid from, const Commit& commit) {
  if (dead_.contains(from)) return;
  if (left_out_by(commit)) return leave_record(true);
  if (!recovering_ || commit.record.recovery <= record_->recovery) return;
  // The sender is a joining member that is behind. Other members remain.
  if (commit.stranded && commit.record.generation <= known_->generation) return;
  std::map<Uid, Report> early;
  early.swap(early_);
  if (commit.stranded) {
    // No member continues from this commit. Members that its sender does not know may still be in
    // the old recovery and accept us. The commit is passed on, because a peer that waits for us may
    // count its sender as dead.
    for (const auto& [uid, report] : reports_) {
      if (from != self_) actions_.emplace_back(SendCommit{uid, commit});
    }
    leave_record(false);
    actions_.emplace_back(Stranded{});
  } else if (commit.record.find(self_) == nullptr) {
    last_commit_ = commit;
    known_ = commit.record;
    leave_record(applied_ != kNoState);
  } else {
    last_commit_ = commit;
    enter(commit.record);
    const bool behind = applied_ < commit.applied;
    // Until the gradient is applied, another recovery must know that it is missing.
    if (behind) {
      catching_up_ = commit;
    } else {
      next_ = commit.plan;
    }
    actions_.emplace_back(Resume{commit, behind});
    look_for_dead();
  }
  for (const auto& [uid, later] : early) report(uid, later);
}

void Membership::caught_up() {
  if (!catching_up_) return;  // another recovery came first
  applied_ = catching_up_->applied;
  next_ = catching_up_->plan;
  catching_up_.reset();
}

}  // namespace rubato::member
