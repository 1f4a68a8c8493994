// Tables for each rule, and a simulator that tries crash orders: processes with a Membership each,
// ordered channels between them, and a random choice of what happens next. A seed that fails is
// printed; RUBATO_SEED=n runs it alone, RUBATO_SEEDS=n runs that many.
#include "rubato/member/membership.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <fmt/format.h>
#include <functional>
#include <gtest/gtest.h>
#include <memory>
#include <stdexcept>
#include <string>
#include <unistd.h>

#include "rubato/base/random.h"
#include "rubato/base/testing_seeds.h"

namespace rubato::member {
namespace {

// --- tables

using Members = std::vector<Member>;

Member working(Uid uid) { return {uid, Role::working, 0, 0}; }
Member leaving(Uid uid) { return {uid, Role::leaving, 0, 0}; }
Member joining(Uid uid, Uid donor, Step since) { return {uid, Role::joining, donor, since}; }

StepPlan step_plan(Step step) {
  StepPlan plan;
  plan.step = step;
  return plan;
}

template <typename Kind>
std::vector<Kind> only(const std::vector<Membership::Action>& actions) {
  std::vector<Kind> found;
  for (const auto& action : actions) {
    if (const auto* kind = std::get_if<Kind>(&action)) found.push_back(*kind);
  }
  return found;
}

// A working member `self` of a record with these members, at step 10: taken in while joining, and
// made a worker by the next step.
Membership member_of(Uid self, const Members& members) {
  Membership m(self);
  Members before = members;
  bool others = false;
  for (Member& member : before) {
    if (member.uid == self) {
      member = joining(self, 0, 9);
    } else {
      others |= member.role == Role::working;
    }
  }
  if (!others) {
    before.push_back(working(99));
  }
  m.adopt({Record{{1, 0}, 0, 9, before}, step_plan(10)});
  std::map<Uid, Word> words;
  for (const Uid uid : m.record()->working()) {
    words[uid].uid = uid;
    words[uid].proposal = {{Record{{1, 1}, 0, 11, members}, step_plan(11)}};
  }
  m.completed(words);
  (void)m.take_actions();
  return m;
}

// Completes the current step with words that all say the same.
void complete(Membership& m, const Record& next, const std::vector<Uid>& ready = {}) {
  std::map<Uid, Word> words;
  for (const Uid uid : m.record()->working()) {
    words[uid].uid = uid;
    words[uid].ready = ready;
    words[uid].proposal = {{next, step_plan(m.next().step + 1)}};
  }
  m.completed(words);
}

TEST(Membership, ProposesWhatThePlanAsksFor) {
  struct Case {
    const char* what;
    Members members;
    std::vector<Uid> plan;
    std::vector<Uid> ready;
    std::vector<Uid> dead;
    std::vector<Uid> level;
    Members expected;
  };
  const Case cases[] = {
      {"no change", {working(1), working(2)}, {1, 2}, {}, {}, {}, {working(1), working(2)}},
      {"a ready one joins", {working(1)}, {1, 2}, {2}, {}, {}, {working(1), joining(2, 1, 12)}},
      {"one that is not ready does not", {working(1)}, {1, 2}, {}, {}, {}, {working(1)}},
      {"nor a dead one", {working(1)}, {1, 2}, {2}, {2}, {}, {working(1)}},
      {"donors take turns",
       {working(1), working(2)},
       {1, 2, 3, 4},
       {3, 4},
       {},
       {},
       {working(1), working(2), joining(3, 1, 12), joining(4, 2, 12)}},
      {"level: works",
       {working(1), joining(2, 1, 11)},
       {1, 2},
       {},
       {},
       {2},
       {working(1), working(2)}},
      {"not level: goes on joining",
       {working(1), joining(2, 1, 11)},
       {1, 2},
       {},
       {},
       {},
       {working(1), joining(2, 1, 11)}},
      {"a dead joiner is dropped",
       {working(1), joining(2, 1, 11)},
       {1, 2},
       {},
       {2},
       {},
       {working(1)}},
      {"so is one no longer planned",
       {working(1), joining(2, 1, 11)},
       {1},
       {},
       {},
       {},
       {working(1)}},
      {"the next group waits for the first",
       {working(1), joining(2, 1, 11)},
       {1, 2, 3},
       {3},
       {},
       {},
       {working(1), joining(2, 1, 11)}},
      {"not planned: leaves", {working(1), working(2)}, {1}, {}, {}, {}, {working(1), leaving(2)}},
      {"the leader, too", {working(1), working(2)}, {2}, {}, {}, {}, {leaving(1), working(2)}},
      {"left", {working(1), leaving(2)}, {1}, {}, {}, {}, {working(1)}},
      {"nobody joins beside one that leaves",
       {working(1), working(2)},
       {1, 3},
       {3},
       {},
       {},
       {working(1), leaving(2)}},
      {"the last state stays", {working(1)}, {2}, {2}, {}, {}, {working(1), joining(2, 1, 12)}},
      {"until another has it",
       {working(1), joining(2, 1, 11)},
       {2},
       {},
       {},
       {2},
       {leaving(1), working(2)}},
      {"a joiner whose donor leaves starts over",
       {working(1), working(2), joining(3, 2, 11)},
       {1, 3},
       {},
       {},
       {},
       {working(1), leaving(2)}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    Membership m = member_of(1, c.members);
    const Record same = *m.record();
    for (const Uid uid : c.ready) m.ready(uid);
    // A step in which everybody says who is ready, so step 12 is next.
    complete(m, same, c.ready);
    m.plan({1, c.plan});
    for (const Uid uid : c.dead) m.dead(uid);
    for (const Uid uid : c.level) m.level(uid, {0, 11});
    const Record next = m.propose();
    Members expected = c.expected;
    for (Member& member : expected) member.since += member.since == 12 ? 1 : 0;
    EXPECT_EQ(next.members, expected);
    const bool changed = next.members != same.members;
    EXPECT_EQ(next.generation, changed ? (MembershipGeneration{1, 2}) : same.generation);
    EXPECT_EQ(next.first, changed ? 13 : same.first);
  }
}

TEST(Membership, TakesNobodyInWhileALeavingOneLives) {
  Membership m = member_of(1, {working(1), leaving(2)});
  m.plan({1, {1, 3}});
  m.ready(3);
  complete(m, m.propose(), {3});
  complete(m, m.propose(), {3});
  EXPECT_EQ(m.propose().members, Members{working(1)});
  m.dead(2);
  EXPECT_EQ(m.propose().members.size(), 2u);
}

TEST(Membership, ALeaderWithAnOldPlanKeepsEverybody) {
  Membership m = member_of(1, {working(1), working(2)});
  m.plan({3, {1}});
  complete(m, {{5, 0}, 0, 12, {working(1), working(2)}});
  EXPECT_EQ(m.propose(), *m.record());
  m.plan({6, {1}});
  EXPECT_EQ(m.propose().generation, (MembershipGeneration{6, 0}));
  EXPECT_EQ(m.propose().members[1].role, Role::leaving);
}

TEST(Membership, ALevelOfAnEarlierAttemptDoesNotCount) {
  const Level stale[] = {{0, 8}, {1, 11}};
  for (const Level& level : stale) {
    Membership m = member_of(1, {working(1), joining(2, 1, 11)});
    m.plan({1, {1, 2}});
    m.level(2, level);
    EXPECT_EQ(m.propose().members[1].role, Role::joining);
  }
}

TEST(Membership, ADeathIsReportedAndTheLowestCommits) {
  Membership m = member_of(1, {working(1), working(2), working(3)});
  m.lost(3);
  auto actions = m.take_actions();
  EXPECT_EQ(only<Membership::Interrupted>(actions).size(), 1u);
  EXPECT_EQ(only<Membership::SendReport>(actions).size(), 2u);
  m.report(2, {*m.record(), 11, step_plan(12), {}, *m.record()});
  EXPECT_TRUE(only<Membership::SendCommit>(m.take_actions()).empty());  // 3 may be alive
  m.dead(3);
  actions = m.take_actions();
  const auto commits = only<Membership::SendCommit>(actions);
  ASSERT_EQ(commits.size(), 1u);
  EXPECT_EQ(commits[0].to, 2);
  const Commit& commit = commits[0].commit;
  EXPECT_EQ(commit.record.members, (Members{working(1), working(2)}));
  EXPECT_EQ(commit.record.recovery, 1);
  EXPECT_EQ(commit.applied, 11);
  EXPECT_EQ(commit.holder, 2);
  EXPECT_EQ(commit.behind, std::vector<Uid>{1});
  const auto resume = only<Membership::Resume>(actions);
  ASSERT_EQ(resume.size(), 1u);
  EXPECT_TRUE(resume[0].behind);
  EXPECT_EQ(m.applied(), 10);
  m.caught_up();
  EXPECT_EQ(m.applied(), 11);
  EXPECT_EQ(m.next().step, 12);
}

TEST(Membership, ABrokenConnectionRemovesNobody) {
  Membership m = member_of(1, {working(1), working(2)});
  m.lost(2);
  m.report(2, {*m.record(), 10, step_plan(11), {}, *m.record()});
  ASSERT_TRUE(m.record() && !m.recovering());
  EXPECT_EQ(m.record()->members, (Members{working(1), working(2)}));
}

TEST(Membership, TheSecondCommitsOnlyWhenAllHaveGivenUpTheFirst) {
  Membership m = member_of(2, {working(1), working(2), working(3)});
  m.lost(1);
  m.report(3, {*m.record(), 10, step_plan(11), {}, *m.record()});
  m.dead(1);
  EXPECT_TRUE(m.recovering());  // 3 may have followed a commit of 1
  m.report(3, {*m.record(), 10, step_plan(11), {1}, *m.record()});
  EXPECT_FALSE(m.recovering());
  EXPECT_EQ(m.record()->working(), (std::vector<Uid>{2, 3}));
}

TEST(Membership, ACommitOfADeadOneIsNotFollowed) {
  Membership m = member_of(3, {working(1), working(2), working(3)});
  m.dead(1);
  Commit commit{*m.record(), step_plan(11), 10, 2, {}, false};
  commit.record.recovery = 1;
  commit.record.members.erase(commit.record.members.begin());
  m.commit(1, commit);
  EXPECT_TRUE(m.recovering());
  m.commit(2, commit);
  EXPECT_FALSE(m.recovering());
}

TEST(Membership, WhoIsLateIsToldHowItEnded) {
  Membership m = member_of(1, {working(1), working(2)});
  const Record before = *m.record();
  m.dead(2);
  (void)m.take_actions();
  m.report(3, {before, kNoState, {}, {}, before});
  const auto answers = only<Membership::SendCommit>(m.take_actions());
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].to, 3);
  EXPECT_EQ(answers[0].commit.record, *m.record());
}

TEST(Membership, AListedJoinerAnswersThoughNoDonorSpokeToIt) {
  Membership m(3);
  const Record record{{1, 1}, 0, 11, {working(1), working(2), joining(3, 2, 11)}};
  m.report(1, {record, 10, step_plan(11), {2}, record});
  const auto reports = only<Membership::SendReport>(m.take_actions());
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_EQ(reports[0].to, 1);
  EXPECT_EQ(reports[0].report.applied, kNoState);
  Commit commit{{{1, 2}, 1, 11, {working(1)}}, step_plan(11), 10, 1, {}, false};
  m.commit(1, commit);
  EXPECT_EQ(only<Membership::Dropped>(m.take_actions()).size(), 1u);
  // What the dead donor had sent comes too late.
  m.adopt({record, step_plan(11)});
  EXPECT_FALSE(m.record());
}

TEST(Membership, LeavesAsPlannedAndDropsJoiners) {
  Membership leaver = member_of(2, {working(1), leaving(2)});
  complete(leaver, {{1, 2}, 0, 12, {working(1)}});
  auto actions = leaver.take_actions();
  EXPECT_EQ(only<Membership::Leave>(actions).size(), 1u);
  Membership joiner(2);
  joiner.adopt({{{1, 1}, 0, 11, {working(1), joining(2, 1, 11)}}, step_plan(11)});
  complete(joiner, {{1, 2}, 0, 12, {working(1)}});
  actions = joiner.take_actions();
  EXPECT_EQ(only<Membership::Dropped>(actions).size(), 1u);
}

// Found by RUBATO_SEED=27688 of the simulator below.
TEST(Membership, ALeaverWithoutWhomAnotherDecidedTheSameRecoveryLeaves) {
  Membership leaver = member_of(2, {leaving(2), working(7)});
  const Record before = *leaver.record();
  Commit other;
  other.record = before;
  other.record.members = {working(7)};
  leaver.commit(7, other);
  EXPECT_TRUE(leaver.record()) << "of the same generation: it is in the other's record, too";
  ++other.record.generation.revision;
  leaver.commit(7, other);
  EXPECT_FALSE(leaver.record());
  EXPECT_EQ(only<Membership::Leave>(leaver.take_actions()).size(), 1u);
}

TEST(Membership, LeaversTakeOverWhenAllOthersAreDead) {
  Membership m = member_of(2, {working(1), leaving(2)});
  m.dead(1);
  ASSERT_TRUE(m.record() && !m.recovering());
  EXPECT_EQ(m.role(), Role::working);
  EXPECT_EQ(m.applied(), 10);
}

TEST(Membership, StrandedWithoutAState) {
  Membership m(2);
  const Record record{{1, 1}, 0, 11, {working(1), joining(2, 1, 11)}};
  m.adopt({record, step_plan(11)});
  m.dead(1);
  const auto actions = m.take_actions();
  EXPECT_EQ(only<Membership::Stranded>(actions).size(), 1u);
  EXPECT_FALSE(m.record());
  // Others that it had not heard of may take it in.
  m.adopt({{{1, 5}, 0, 15, {joining(2, 3, 15), working(3)}}, step_plan(15)});
  EXPECT_TRUE(m.record());
}

// --- a job that spans hosts; testing_hosts.h has its simulator

TEST(Membership, TheListOfTheGoneIsOneFact) {
  Membership m = member_of(2, {working(1), working(2), working(3)});
  m.gone({1, 3});
  EXPECT_EQ(only<Membership::Interrupted>(m.take_actions()).size(), 1u);
  EXPECT_EQ(m.record()->working(), std::vector<Uid>{2});
}

TEST(Membership, WhoIsOnTheListEndsAndDoesNothingElse) {
  Membership m = member_of(2, {working(1), working(2)});
  m.gone({1, 2});
  auto actions = m.take_actions();
  EXPECT_EQ(actions.size(), 1u);
  EXPECT_EQ(only<Membership::Excluded>(actions).size(), 1u);
  Membership by_report = member_of(2, {working(1), working(2), working(3)});
  by_report.lost(3);
  by_report.report(1, {*by_report.record(), 10, step_plan(11), {2}, *by_report.record()});
  actions = by_report.take_actions();
  EXPECT_EQ(actions.size(), 1u);
  EXPECT_EQ(only<Membership::Excluded>(actions).size(), 1u);
}

TEST(Membership, SaysItsReportAgainOnANewConnection) {
  Membership m = member_of(2, {working(1), working(2)});
  m.reconnected(1);
  EXPECT_TRUE(m.take_actions().empty());
  m.lost(1);
  EXPECT_EQ(only<Membership::SendReport>(m.take_actions()).size(), 1u);
  m.reconnected(1);
  EXPECT_EQ(only<Membership::SendReport>(m.take_actions()).size(), 1u);
}

// Found by RUBATO_SEED=35307 of the simulator across hosts.
TEST(Membership, ALeaverAsksOnANewConnection) {
  Membership m = member_of(2, {working(1), leaving(2)});
  m.reconnected(1);
  EXPECT_TRUE(m.recovering());
  Membership works = member_of(2, {working(1), working(2)});
  works.reconnected(1);
  EXPECT_FALSE(works.recovering());
}

TEST(Membership, AJoinerWithABrokenConnectionIsDroppedAndTold) {
  Membership m = member_of(1, {working(1), working(2), joining(3, 1, 11)});
  m.plan({1, {1, 2, 3}});
  m.lost(3);
  EXPECT_FALSE(m.recovering());
  EXPECT_EQ(m.broken_joiners(), std::vector<Uid>{3});
  std::map<Uid, Word> words;
  for (const Uid uid : {1, 2}) {
    words[uid].uid = uid;
    words[uid].proposal = {{*m.record(), step_plan(12)}};
  }
  words[2].broken = {3};  // so 2 has lost it, too
  m.completed(words);
  const Record without = m.propose();
  EXPECT_EQ(without.members, (Members{working(1), working(2)}));
  complete(m, without);
  const auto told = only<Membership::SendDropped>(m.take_actions());
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].to, 3);
  EXPECT_EQ(told[0].attempt, (Level{0, 11}));

  Membership joiner(3);
  joiner.adopt({{{1, 1}, 0, 11, {working(1), working(2), joining(3, 1, 11)}}, step_plan(11)});
  joiner.dropped({0, 9});
  EXPECT_TRUE(joiner.record());
  joiner.dropped({0, 11});
  EXPECT_FALSE(joiner.record());
}

TEST(Membership, AJoinerThatWorksOverABrokenConnectionStartsARecovery) {
  Membership m = member_of(2, {working(1), working(2), joining(3, 1, 11)});
  m.lost(3);
  Record next = *m.record();
  next.members[2] = working(3);
  ++next.generation.revision;
  complete(m, next);
  EXPECT_TRUE(m.recovering());
}

// --- the simulator

struct Violation : std::runtime_error {
  using std::runtime_error::runtime_error;
};

void require(bool holds, const std::string& what) {
  if (!holds) throw Violation(what);
}

std::uint64_t link(std::uint64_t before, const StepPlan& step) {
  Random mixed(before ^
               static_cast<std::uint64_t>(step.step * 1000003 + step.cursor * 7919 + step.samples));
  return mixed.next();
}

struct Words {
  std::int64_t recovery;
  Word word;
};

using History = std::map<Step, std::uint64_t>;  // the state after each step, as a hash

struct Process {
  explicit Process(Uid self) : uid(self), membership(self) {}

  Uid uid;
  Membership membership;
  bool alive = true;
  bool left = false;
  bool stranded = false;

  History history;  // of the state held; also of one that is joining
  std::map<Step, std::int64_t> completed_under;
  std::vector<Words> words;
  std::pair<std::int64_t, Step> said{-1, -1};  // the last word: recovery and step
  struct Gradient {
    std::int64_t recovery;
    Step step;
    Uid from;
    std::uint64_t state;
  };
  std::vector<Gradient> gradients;
  std::optional<Commit> behind;
  int steps_to_level = 0;
  bool said_level = false;
  Step steps_done = 0;

  bool holds_state() const { return alive && membership.applied() != kNoState; }
};

class Simulation {
 public:
  explicit Simulation(std::uint64_t seed) : random_(seed) {
    max_kills_ = static_cast<int>(random_.below(12));
    kill_chance_ = 1.0 / static_cast<double>(20 + random_.below(200));
    plan_chance_ = 1.0 / static_cast<double>(20 + random_.below(200));
    slowness_ = random_.below(3) == 0 ? 0 : random_.uniform();
  }

  void run(int events) {
    // Whoever is there first founds, so it need not be the one with the lowest number.
    for (int i = static_cast<int>(random_.below(3)); i > 0; --i) start(false);
    start(true);
    for (int i = static_cast<int>(random_.below(3)); i > 0; --i) start(false);
    send_plan();
    for (int i = 0; i < events; ++i) {
      if (random_.uniform() < plan_chance_) change_plan();
      if (kills_ < max_kills_ && random_.uniform() < kill_chance_) {
        kill_somebody();
        // Often several at once: a crash during a recovery is what is hard.
        while (kills_ < max_kills_ && random_.below(3) == 0) kill_somebody();
      }
      happen();
    }
    settle();
  }

  bool stranded = false;
  int recoveries = 0;
  int leaves = 0;
  int joins = 0;
  int drops = 0;
  int needless_stranded = 0;

 private:
  struct Channel {
    Uid from = 0;
    Uid to = 0;
    double slow = 0;
    std::deque<std::function<void()>> queue;
  };

  // --- channels

  std::size_t channel(Uid from, Uid to, int kind) {
    const auto [found, fresh] = named_.try_emplace({from, to, kind}, channels_.size());
    if (fresh) {
      channels_.push_back({from, to, slow(), {}});
    }
    return found->second;
  }
  double slow() {
    if (random_.uniform() >= slowness_) return 0;
    constexpr double kSlow[] = {0.5, 0.9, 0.98};
    return kSlow[random_.below(3)];
  }
  void post(std::size_t to, std::function<void()> message) {
    Channel& channel = channels_[to];
    if (const auto found = processes_.find(channel.to);
        found == processes_.end() || !found->second->alive) {
      return;
    }
    if (channel.queue.empty()) busy_.push_back(to);
    channel.queue.push_back(std::move(message));
  }
  // A fact that reaches a process in any order relative to all others.
  void tell(Uid to, std::function<void()> fact) {
    channels_.push_back({0, to, slow(), {}});
    post(channels_.size() - 1, std::move(fact));
  }
  static constexpr int kControl = 0;
  static constexpr int kData = 1;
  static constexpr int kLauncher = 2;
  static constexpr int kSelf = 3;

  void happen() {
    if (busy_.empty()) return;
    const std::size_t place = random_.below(busy_.size());
    const std::size_t index = busy_[place];
    if (!settling_ && random_.uniform() < channels_[index].slow) return;
    std::function<void()> message;
    if (!channels_[index].queue.empty()) {
      message = std::move(channels_[index].queue.front());
      channels_[index].queue.pop_front();
    }
    if (channels_[index].queue.empty()) {
      busy_[place] = busy_.back();
      busy_.pop_back();
    }
    const auto to = processes_.find(channels_[index].to);
    if (!message || !to->second->alive) return;
    message();
    if (to->second->alive) progress(*to->second);
  }

  // --- the launcher

  Process& start(bool founder) {
    const Uid uid = ++last_uid_;
    auto& process = *(processes_[uid] = std::make_unique<Process>(uid));
    plan_.workers.push_back(uid);
    for (const auto& [other, peer] : processes_) {
      if (other == uid) continue;
      if (peer->alive) {
        tell(other, [p = peer.get(), uid] { p->membership.ready(uid); });
        tell(uid, [p = &process, o = other] { p->membership.ready(o); });
      } else {
        tell(uid, [p = &process, o = other] { p->membership.dead(o); });
      }
    }
    if (founder) {
      plan_.number = 1;
      process.membership.found(plan_, first_step());
      process.history[0] = 0;
      progress(process);
    }
    return process;
  }
  static StepPlan first_step() {
    StepPlan first;
    first.samples = 1;
    return first;
  }
  void send_plan() {
    ++plan_.number;
    for (const auto& [uid, process] : processes_) {
      if (!process->alive) continue;
      post(channel(0, uid, kLauncher),
           [p = process.get(), plan = plan_] { p->membership.plan(plan); });
    }
  }
  void drop_dead_from_plan() {
    std::vector<Uid> living;
    for (const Uid uid : plan_.workers) {
      if (processes_.at(uid)->alive) living.push_back(uid);
    }
    plan_.workers = living;
  }
  void change_plan() {
    drop_dead_from_plan();
    for (int i = static_cast<int>(random_.below(3)); i > 0 && plan_.workers.size() > 1; --i) {
      plan_.workers.erase(plan_.workers.begin() +
                          static_cast<std::ptrdiff_t>(random_.below(plan_.workers.size())));
    }
    // One that was taken out and is still there may be wanted again.
    for (const auto& [uid, process] : processes_) {
      const bool planned =
          std::find(plan_.workers.begin(), plan_.workers.end(), uid) != plan_.workers.end();
      if (process->alive && !planned && random_.below(4) == 0) plan_.workers.push_back(uid);
    }
    for (int i = static_cast<int>(random_.below(3)); i > 0 && plan_.workers.size() < 6; --i) {
      start(false);
    }
    if (plan_.workers.empty()) start(false);
    send_plan();
  }

  // --- death

  void kill_somebody() {
    std::vector<Process*> living;
    for (const auto& [uid, process] : processes_) {
      if (process->alive) living.push_back(process.get());
    }
    if (living.size() < 2) return;
    Process& victim = *living[random_.below(living.size())];
    // The last state is seldom lost: there is little to see afterwards.
    const auto holders = std::count_if(living.begin(), living.end(),
                                       [](const Process* p) { return p->holds_state(); });
    if (victim.holds_state() && holders == 1 && random_.below(20) != 0) return;
    ++kills_;
    end(victim, true);
  }
  void end(Process& victim, bool suddenly) {
    victim.alive = false;
    for (Channel& channel : channels_) {
      if (channel.to == victim.uid) channel.queue.clear();
      if (channel.from == victim.uid && suddenly && !channel.queue.empty()) {
        channel.queue.resize(random_.below(channel.queue.size() + 1));
      }
    }
    for (const auto& [uid, peer] : processes_) {
      if (!peer->alive) continue;
      channels_.push_back({0, uid, slow(), {}});
      const std::size_t news = channels_.size() - 1;
      post(news, [this, p = peer.get(), v = victim.uid] {
        p->membership.lost(v);
        act(*p);
      });
      post(news, [this, p = peer.get(), v = victim.uid] {
        p->membership.dead(v);
        act(*p);
      });
    }
  }

  // --- a worker

  void progress(Process& p) {
    act(p);
    while (p.alive && advance(p)) act(p);
  }

  // One thing that this process can do by itself.
  bool advance(Process& p) {
    Membership& m = p.membership;
    if (!m.record() || m.recovering()) return false;
    if (p.behind) return catch_up(p);
    const Record record = *m.record();
    const StepPlan step = m.next();
    const std::pair<std::int64_t, Step> now{record.recovery, step.step};
    if (m.role() == Role::working && p.said != now) {
      p.said = now;
      // Computing takes a while.
      post(channel(p.uid, p.uid, kSelf), [this, &p, now] { say_word(p, now); });
    }
    if (m.role() == Role::joining && !p.said_level && p.steps_to_level <= 0 && connected(p)) {
      p.said_level = true;
      for (const Member& member : record.members) {
        if (member.uid == p.uid) continue;
        post(channel(p.uid, member.uid, kControl),
             [to = process(member.uid), from = p.uid, level = m.own_level()] {
               to->membership.level(from, level);
             });
      }
      return false;
    }
    return complete(p);
  }

  bool connected(const Process& p) {
    const std::vector<Uid> ready = p.membership.ready_peers();
    for (const Member& member : p.membership.record()->members) {
      if (member.uid != p.uid && std::find(ready.begin(), ready.end(), member.uid) == ready.end()) {
        return false;
      }
    }
    return true;
  }

  void say_word(Process& p, std::pair<std::int64_t, Step> of) {
    Membership& m = p.membership;
    if (!m.record() || m.recovering() || p.behind) return;
    const Record record = *m.record();
    if (of != std::pair{record.recovery, m.next().step} || m.role() != Role::working) return;
    Words words{record.recovery, {}};
    words.word.uid = p.uid;
    words.word.step = m.next().step;
    words.word.ready = m.ready_peers();
    if (record.leader() == p.uid) {
      StepPlan next = m.next();
      ++next.step;
      next.cursor += next.samples;
      next.samples = 1 + static_cast<std::int64_t>(random_.below(5));
      words.word.proposal.push_back({m.propose(), next});
      require(!words.word.proposal[0].record.working().empty(), "a proposal without workers");
    }
    for (const Member& member : record.members) {
      if (member.uid == p.uid) {
        p.words.push_back(words);
        continue;
      }
      post(channel(p.uid, member.uid, kData),
           [to = process(member.uid), words] { to->words.push_back(words); });
    }
  }

  bool complete(Process& p) {
    Membership& m = p.membership;
    const Record record = *m.record();
    const StepPlan step = m.next();
    std::erase_if(p.words, [&](const Words& words) {
      return words.recovery < record.recovery ||
             (words.recovery == record.recovery && words.word.step < step.step);
    });
    std::map<Uid, Word> words;
    for (const Words& heard : p.words) {
      const Member* member = record.find(heard.word.uid);
      if (heard.recovery == record.recovery && heard.word.step == step.step && member != nullptr &&
          member->role == Role::working) {
        words[heard.word.uid] = heard.word;
      }
    }
    if (words.size() != record.working().size()) return false;
    require(!p.history.empty() && p.history.rbegin()->first == step.step - 1,
            fmt::format("{} applies step {} to another state", p.uid, step.step));
    const Role before = m.role();
    const Step applied = m.applied();
    require(before == Role::joining || applied == step.step - 1, "a step was skipped");
    m.completed(words);
    p.history[step.step] = link(p.history.rbegin()->second, step);
    if (before == Role::joining) --p.steps_to_level;
    ++p.steps_done;
    p.completed_under[step.step] = record.recovery;
    if (m.record()) {
      check_record(p);
      if (m.applied() != kNoState) check_state(p);
      if (before == Role::joining && m.role() == Role::working) {
        require(p.said_level, "a joiner works that is not level");
        ++joins;
      }
      take_in(p, record);
    }
    return true;
  }

  // Right after a step that gave a joiner to this donor.
  void take_in(Process& p, const Record& before) {
    const Membership& m = p.membership;
    for (const Member& member : m.record()->members) {
      if (member.role != Role::joining || member.donor != p.uid) continue;
      const Member* already = before.find(member.uid);
      if (already != nullptr && already->since == member.since) continue;
      post(channel(p.uid, member.uid, kData),
           [this, to = process(member.uid), proposal = Proposal{*m.record(), m.next()},
            history = p.history] { taken_in(*to, proposal, history); });
    }
  }
  void taken_in(Process& p, const Proposal& proposal, const History& history) {
    p.membership.adopt(proposal);
    if (p.membership.record() != proposal.record || p.membership.applied() != kNoState) return;
    p.history = history;
    p.said_level = false;
    p.behind.reset();
    p.completed_under.clear();
    p.steps_to_level = static_cast<int>(random_.below(5));
    check_record(p);
  }

  bool catch_up(Process& p) {
    for (const Process::Gradient& gradient : p.gradients) {
      if (gradient.recovery != p.behind->record.recovery || gradient.from != p.behind->holder) {
        continue;
      }
      require(gradient.step == p.behind->applied, "the gradient of another step");
      p.membership.caught_up();
      p.behind.reset();
      require(p.history.rbegin()->first == gradient.step - 1, "more than one step behind");
      p.history[gradient.step] = gradient.state;
      check_state(p);
      return true;
    }
    return false;
  }

  void act(Process& p) {
    for (bool any = true; any && p.alive;) {
      const auto actions = p.membership.take_actions();
      any = !actions.empty();
      for (const auto& action : actions) {
        std::visit([&](const auto& a) { perform(p, a); }, action);
      }
    }
  }
  void perform(Process& p, const Membership::SendReport& send) {
    require(send.to != p.uid, "a report to itself");
    post(channel(p.uid, send.to, kControl), [to = process(send.to), from = p.uid, r = send.report] {
      to->membership.report(from, r);
    });
  }
  void perform(Process& p, const Membership::SendCommit& send) {
    require(send.to != p.uid, "a commit to itself");
    post(channel(p.uid, send.to, kControl), [to = process(send.to), from = p.uid, c = send.commit] {
      to->membership.commit(from, c);
    });
  }
  void perform(Process&, const Membership::SendDropped&) {}  // it gets all words
  void perform(Process& p, const Membership::Interrupted&) { p.behind.reset(); }
  void perform(Process& p, const Membership::Resume& resume) {
    const Commit& commit = resume.commit;
    ++recoveries;
    p.behind.reset();
    if (resume.behind) p.behind = commit;
    const bool listed =
        std::find(commit.behind.begin(), commit.behind.end(), p.uid) != commit.behind.end();
    require(listed == resume.behind, "the commit does not know who is behind");
    for (const auto& [uid, other] : processes_) {
      const auto& record = other->membership.record();
      require(!other->holds_state() || record->recovery >= commit.record.recovery ||
                  other->membership.applied() <= commit.applied,
              fmt::format("{} goes back to step {} though {} lives", p.uid, commit.applied, uid));
    }
    if (commit.holder == p.uid) {
      require(p.history.rbegin()->first == commit.applied, "the holder does not hold the step");
      for (const Uid uid : commit.behind) {
        post(
            channel(p.uid, uid, kData),
            [to = process(uid), gradient = Process::Gradient{commit.record.recovery, commit.applied,
                                                             p.uid, p.history.rbegin()->second}] {
              to->gradients.push_back(gradient);
            });
      }
    }
    check_record(p);
  }
  void perform(Process& p, const Membership::Dropped&) {
    ++drops;
    forget(p);
  }
  void perform(Process& p, const Membership::Leave&) {
    ++leaves;
    p.left = true;
    forget(p);
    end(p, false);
  }
  void perform(Process& p, const Membership::Excluded&) {
    throw Violation(fmt::format("{} is excluded, on one machine", p.uid));
  }
  void perform(Process& p, const Membership::Stranded&) {
    for (const auto& [uid, other] : processes_) {
      if (other->holds_state()) {
        ++needless_stranded;
        break;
      }
    }
    p.stranded = true;
  }
  void forget(Process& p) {
    p.history.clear();
    p.completed_under.clear();
    p.behind.reset();
    p.said_level = false;
  }

  // --- what must always hold

  // One record a recovery and generation, among the living.
  void check_record(const Process& p) {
    const Record& record = *p.membership.record();
    for (const auto& [uid, other] : processes_) {
      const auto& its = other->membership.record();
      if (!other->alive || !its || its->recovery != record.recovery) continue;
      require(its->generation != record.generation || *its == record,
              fmt::format("{} and {} have different records of one generation", p.uid, uid));
      if (p.membership.role() != Role::working || other->membership.role() != Role::working) {
        continue;
      }
      const Member* member = record.find(uid);
      const Step difference = p.membership.applied() - other->membership.applied();
      require(member == nullptr || member->role != Role::working || !its->find(p.uid) ||
                  std::abs(difference) <= 1,
              fmt::format("{} and {} are more than a step apart", p.uid, uid));
    }
    if (p.membership.role() != Role::working) return;
    const std::vector<Uid> ready = p.membership.ready_peers();
    for (const Member& member : record.members) {
      require(member.uid == p.uid || member.role == Role::leaving ||
                  p.membership.is_dead(member.uid) ||
                  std::find(ready.begin(), ready.end(), member.uid) != ready.end(),
              fmt::format("{} works with {} without a connection", p.uid, member.uid));
    }
  }
  // Equal states after equal steps, and no step is done twice among the living.
  void check_state(const Process& p) {
    const Step step = p.membership.applied();
    require(p.history.rbegin()->first == step, "the state is of another step than the record");
    const auto under = p.completed_under.find(step);
    for (const auto& [uid, other] : processes_) {
      if (!other->holds_state()) continue;
      const auto state = other->history.find(step);
      require(state == other->history.end() || state->second == p.history.rbegin()->second,
              fmt::format("{} and {} differ after step {}", p.uid, uid, step));
      const auto its = other->completed_under.find(step);
      require(under == p.completed_under.end() || its == other->completed_under.end() ||
                  its->second == under->second,
              fmt::format("{} and {} did step {} in two recoveries", p.uid, uid, step));
    }
  }

  // --- the end: no more faults, one last plan; training must go on with exactly its workers

  void settle() {
    settling_ = true;
    drop_dead_from_plan();
    if (plan_.workers.empty()) start(false);
    send_plan();
    std::map<Uid, Step> base;
    for (int round = 0; round < 400; ++round) {
      for (int i = 0; i < 100; ++i) happen();
      // A worker that left before it heard of being wanted again is started anew.
      const std::size_t planned = plan_.workers.size();
      drop_dead_from_plan();
      if (plan_.workers.size() != planned) {
        if (plan_.workers.empty()) start(false);
        send_plan();
      }
      if (!as_planned()) {
        base.clear();
        if (busy_.empty()) break;
        continue;
      }
      bool enough = true;
      for (const Uid uid : plan_.workers) {
        const Step done = process(uid)->steps_done;
        enough &= done >= base.try_emplace(uid, done).first->second + 20;
      }
      if (enough) return;
    }
    for (const auto& [uid, p] : processes_) {
      if (p->holds_state()) throw Violation("no progress" + describe());
    }
    for (const auto& [uid, p] : processes_) {
      require(!p->alive || !p->membership.record(), "waits in a record of the dead" + describe());
    }
    stranded = true;
  }
  bool as_planned() {
    std::vector<Uid> wanted = plan_.workers;
    std::sort(wanted.begin(), wanted.end());
    for (const Uid uid : wanted) {
      const auto& record = process(uid)->membership.record();
      if (!record || record->members.size() != wanted.size() || record->working() != wanted) {
        return false;
      }
    }
    for (const auto& [uid, p] : processes_) {
      if (p->holds_state() && !std::binary_search(wanted.begin(), wanted.end(), uid)) return false;
    }
    return true;
  }
  std::string describe() {
    std::string text = fmt::format("\n  plan {}: {}", plan_.number, fmt::join(plan_.workers, " "));
    for (const auto& [uid, p] : processes_) {
      if (!p->alive) continue;
      text += fmt::format("\n  {}: applied {} recovering {} behind {} words {}", uid,
                          p->membership.applied(), p->membership.recovering(),
                          p->behind.has_value(), p->words.size());
      const auto& record = p->membership.record();
      if (!record) continue;
      text += fmt::format(" recovery {} generation {}.{} plan {} next {}", record->recovery,
                          record->generation.plan, record->generation.revision,
                          p->membership.newest_plan().number, p->membership.next().step);
      for (const Member& member : record->members) {
        text += fmt::format(" {}:{}", member.uid, static_cast<int>(member.role));
      }
    }
    return text;
  }
  Process* process(Uid uid) { return processes_.at(uid).get(); }

  Random random_;
  std::map<Uid, std::unique_ptr<Process>> processes_;
  std::deque<Channel> channels_;
  std::map<std::tuple<Uid, Uid, int>, std::size_t> named_;
  std::vector<std::size_t> busy_;
  MembershipPlan plan_;
  Uid last_uid_ = 0;
  int kills_ = 0;
  int max_kills_ = 0;
  double kill_chance_ = 0;
  double plan_chance_ = 0;
  double slowness_ = 0;
  bool settling_ = false;
};

std::uint64_t running_seed = 0;

// A CHECK ends the process: say which seed it was.
void name_the_seed(int) {
  char text[64];
  const int size = std::snprintf(text, sizeof text, "RUBATO_SEED=%llu\n",
                                 static_cast<unsigned long long>(running_seed));
  (void)!write(2, text, static_cast<std::size_t>(size));
}

TEST(Membership, SurvivesEveryCrashOrderTried) {
  const auto one = only_seed();
  const std::uint64_t first = one.value_or(1);
  const std::uint64_t count = one ? 1 : seeds(2000);
  const auto events = static_cast<int>(number_from_environment("RUBATO_EVENTS").value_or(400));
  const auto before = std::signal(SIGABRT, name_the_seed);
  int stranded = 0, recoveries = 0, leaves = 0, joins = 0, drops = 0, needless = 0, failed = 0;
  for (std::uint64_t seed = first; seed < first + count && failed < 10; ++seed) {
    running_seed = seed;
    Simulation simulation(seed);
    try {
      simulation.run(events);
    } catch (const Violation& violation) {
      ADD_FAILURE() << "RUBATO_SEED=" << seed << ": " << violation.what();
      ++failed;
    }
    stranded += simulation.stranded;
    recoveries += simulation.recoveries;
    leaves += simulation.leaves;
    joins += simulation.joins;
    drops += simulation.drops;
    needless += simulation.needless_stranded;
  }
  std::signal(SIGABRT, before);
  if (count > 2000) {
    fmt::print("stranded {} recoveries {} leaves {} joins {} drops {} needless {}\n", stranded,
               recoveries, leaves, joins, drops, needless);
  }
  if (!one) {
    // The simulator does try what it is for.
    EXPECT_GT(recoveries, static_cast<int>(count / 2));
    EXPECT_GT(leaves, static_cast<int>(count / 2));
    EXPECT_GT(joins, static_cast<int>(count / 2));
    EXPECT_LT(stranded, static_cast<int>(count / 4));
  }
}

}  // namespace
}  // namespace rubato::member
