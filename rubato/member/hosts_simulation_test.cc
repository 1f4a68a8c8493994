// The simulation of testing_hosts.h, and its seeds. A seed that fails is printed; RUBATO_SEED=n
// runs it alone, RUBATO_SEEDS=n runs that many.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <gtest/gtest.h>
#include <unistd.h>

#include "rubato/base/testing_seeds.h"
#include "rubato/member/testing_hosts.h"

namespace rubato::member::hosts {

namespace {

constexpr int kFront = 0;  // the host of the masters; it has no shares
constexpr double kSoon = 0.9;
constexpr std::size_t kRemembered = 16;  // steps

bool contains(const std::vector<Uid>& uids, Uid uid) {
  return std::find(uids.begin(), uids.end(), uid) != uids.end();
}

std::vector<CheckpointName> names_of(const CheckpointDirectory& directory) {
  std::vector<CheckpointName> names;
  for (const auto& [name, file] : directory.files) names.push_back(name);
  return names;
}

}  // namespace

Hosts::Hosts(std::uint64_t seed, Rules rules) : Network(seed), rules_(rules) {
  host_count_ = 2 + static_cast<int>(random_.below(3));
  wanted_ = 1 + static_cast<int>(random_.below(4));
  most_faults_ = static_cast<int>(random_.below(150));
  fault_chance_ = 1.0 / static_cast<double>(10 + random_.below(60));
  exclude_chance_ = random_.below(4) == 0 ? 0 : random_.uniform(0.2, 1);
  plan_chance_ = random_.below(4) == 0 ? 0.3 : 0.05 * random_.uniform();
  lie_chance_ = random_.below(2) == 0 ? 0 : 0.05;
  crash_chance_ = random_.below(2) == 0 ? 0 : 0.01;
  slowness_ = random_.below(2) == 0 ? 0 : 0.5 * random_.uniform();
  tracing_ = std::getenv("RUBATO_TRACE") != nullptr;
}

void Hosts::run(int events) {
  for (int host = 1; host <= host_count_; ++host) start_share(host);
  start_master();
  const auto quiet = static_cast<int>(random_.below(1000));  // mostly, a job can form first
  for (int i = 0; i < events; ++i) {
    if (i >= quiet) inject();
    happen();
  }
  settle();
}

// --- the world ---

Share& Hosts::start_share(int host) {
  Share& s = make<Share>(host, fmt::format("s{}", ++names_));
  shares_.push_back(&s);
  fact(s.pid, [this, &s] { dial_master(s); });
  return s;
}

Master& Hosts::start_master() {
  Master& m = make<Master>(kFront, versions_, rules_);
  masters_.push_back(&m);
  fact(m.pid, [this, &m] {
    const RosterVersion seen = m.store.newest();
    fact(m.pid, [this, &m, seen] {
      m.core.emplace(m.store, seen);
      m.last = m.core->roster();
      ++counts.adoptions;
      tick(m);
    });
  });
  return m;
}

void Hosts::inject() {
  keep_running();
  time_out();
  if (faults_ >= most_faults_ || !chance(fault_chance_)) return;
  ++faults_;
  const double kind = random_.uniform();
  if (kind < 0.35) {
    const std::vector<int> whole = whole_connections();
    if (!whole.empty()) break_connection(whole[random_.below(whole.size())]);
  } else if (kind < 0.63) {
    cut_or_heal();
  } else if (kind < 0.83) {
    freeze_or_thaw();
  } else if (kind < 0.95) {
    kill_somebody();
  } else if (kind < 0.97) {
    if (dead_hosts_.size() + 1 < static_cast<std::size_t>(host_count_)) {
      kill_host(1 + static_cast<int>(random_.below(static_cast<std::uint64_t>(host_count_))));
    }
  } else {
    start_master();
  }
}

// Who hears nothing for long closes the connection.
void Hosts::time_out() {
  if (!chance(0.5)) return;
  const std::vector<int> whole = whole_connections();
  if (whole.empty()) return;
  const int number = whole[random_.below(whole.size())];
  if (stalls(number)) break_connection(number);
}

// What others do about the faults: the cluster manager, and whoever watches the master.
void Hosts::keep_running() {
  if (!chance(0.02)) return;
  const bool served = std::any_of(masters_.begin(), masters_.end(),
                                  [](const Master* m) { return m->alive && !m->frozen; });
  if (!served) start_master();
  for (Share* s : std::vector<Share*>(shares_)) {
    if (!s->gone && !s->alive && chance(0.1)) s->gone = true;
    if (!s->gone && s->alive && chance(lie_chance_ * 0.1)) manager_says_gone(*s);
  }
  for (const int host : std::set<int>(dead_hosts_)) {
    if (!chance(0.05)) continue;
    dead_hosts_.erase(host);
    start_share(host);
  }
}

// Its processes may live on. The host gets another share.
void Hosts::manager_says_gone(Share& s) {
  s.gone = true;
  start_share(s.host);
}

void Hosts::freeze_or_thaw() {
  std::vector<Process*> living;
  std::vector<Process*> frozen;
  for (const auto& process : processes_) {
    if (!process->alive) continue;
    (process->frozen ? frozen : living).push_back(process.get());
  }
  const bool thaw = !frozen.empty() && random_.below(3) != 0;
  std::vector<Process*>& from = thaw ? frozen : living;
  if (from.empty()) return;
  Process& chosen = *from[random_.below(from.size())];
  // Often the whole host.
  const bool host = chosen.host != kFront && random_.below(2) == 0;
  for (Process* process : from) {
    if (process == &chosen || (host && process->host == chosen.host)) process->frozen = !thaw;
  }
}

void Hosts::cut_or_heal() {
  if (!cut_.empty() && random_.below(3) != 0) {
    if (random_.below(2) == 0) {
      cut_.clear();
    } else {
      auto one = cut_.begin();
      std::advance(one, static_cast<std::ptrdiff_t>(random_.below(cut_.size())));
      cut_.erase(one);
    }
    return;
  }
  const auto hosts = static_cast<std::uint64_t>(host_count_) + 1;
  const int host = static_cast<int>(random_.below(hosts));
  const bool from_all = random_.below(3) == 0;
  const bool one_way = random_.below(3) == 0;
  for (int other = 0; other <= host_count_; ++other) {
    if (other == host || (!from_all && random_.below(2) == 0)) continue;
    cut_.insert({host, other});
    if (!one_way) cut_.insert({other, host});
  }
}

void Hosts::kill_somebody() {
  std::vector<Process*> living;
  int holders = 0;
  for (const auto& process : processes_) {
    if (!process->alive || dynamic_cast<Share*>(process.get()) != nullptr) continue;
    living.push_back(process.get());
    if (const auto* w = dynamic_cast<Worker*>(process.get())) holders += w->holds_state();
  }
  if (living.empty()) return;
  Process& victim = *living[random_.below(living.size())];
  if (auto* m = dynamic_cast<Master*>(&victim)) {
    if (random_.below(3) == 0) end_master(*m);
    return;
  }
  auto& w = dynamic_cast<Worker&>(victim);
  // The last state is seldom lost: there is little to see afterwards.
  if (w.holds_state() && holders == 1 && random_.below(10) != 0) return;
  end_worker(w);
}

void Hosts::kill_host(int host) {
  dead_hosts_.insert(host);
  for (const auto& process : processes_) {
    if (process->alive && process->host == host) end_process(*process);
  }
}

// --- a master ---

void Hosts::tick(Master& m) {
  if (!m.serves() || !m.store.flush()) return end_master(m);
  if (rules_.master_reads_epoch && (settling_ || chance(0.3))) m.core->read_epoch();
  for (const Share* s : shares_) {
    if (s->gone) m.core->share_gone(s->name);
  }
  if (!scripted_) choose(m);
  obey(m);
  if (m.alive)
    fact(
        m.pid, [this, &m] { tick(m); }, kSoon);
}

void Hosts::choose(Master& m) {
  RosterMaster& core = *m.core;
  if (chance(settling_ ? 0.05 : exclude_chance_)) core.exclude_silent();
  core.look_for_end();
  const Roster roster = core.roster();
  if (core.ended() || roster.ending) return;
  std::vector<Uid> workers = roster.plan.workers;
  if (!settling_ && chance(0.05)) {
    for (const Uid uid : roster.not_gone()) {
      if (!core.linked(uid)) core.kill(uid);
    }
  }
  if (!settling_ && !workers.empty() && !chance(plan_chance_)) return;
  change_plan(m, std::move(workers));
}

void Hosts::change_plan(Master& m, std::vector<Uid> workers) {
  RosterMaster& core = *m.core;
  const Roster& roster = core.roster();
  if (settling_) {
    while (static_cast<int>(workers.size()) > wanted_) workers.pop_back();
  } else {
    for (int i = static_cast<int>(random_.below(3)); i > 0 && workers.size() > 1; --i) {
      workers.erase(workers.begin() + static_cast<std::ptrdiff_t>(random_.below(workers.size())));
    }
    // One that was omitted and is still there may be wanted again.
    for (const Uid uid : roster.not_gone()) {
      if (!contains(workers, uid) && random_.below(3) == 0) workers.push_back(uid);
    }
  }
  std::vector<wire::ShareName> shares = core.linked_shares();
  std::erase_if(shares, [&](const auto& name) { return share(name) == nullptr; });
  const int most = settling_ ? wanted_ : 6;
  while (!shares.empty() && static_cast<int>(workers.size()) < most &&
         (static_cast<int>(workers.size()) < wanted_ || random_.below(3) == 0)) {
    const auto uid = core.add_worker(shares[random_.below(shares.size())]);
    if (!uid) break;
    workers.push_back(*uid);
  }
  if (!core.ended() && workers != core.roster().plan.workers) core.plan(workers);
}

void Hosts::obey(Master& m) {
  if (!m.core) return;
  after_write(m, m.last);
  for (const RosterMaster::Action& action : m.core->take_actions()) {
    if (!settling_ && chance(crash_chance_)) return end_master(m);
    if (const auto* word = std::get_if<RosterMaster::SayToWorker>(&action)) say(m, *word);
    if (const auto* to = std::get_if<RosterMaster::SayToShare>(&action)) order(m, *to);
    if (const auto* to = std::get_if<RosterMaster::CancelShare>(&action)) cancel(to->share);
  }
  if (!rules_.nothing_said_while_ending && m.core->roster().ending) {
    const Roster& r = m.core->roster();
    for (const auto& [uid, connection] : m.workers) {
      say(m, {uid, {r.round, r.epoch, r.plan, r.gone, r.founder}});
    }
  }
  if (m.core->ended()) end_master(m);
}

void Hosts::after_write(Master& m, const Roster& before) {
  const Roster& now = m.core->roster();
  if (now.round != before.round) ++counts.rounds;
  trace("master {} of epoch {}: round {} ending {} plan {}: {} gone {}", m.pid, now.epoch,
        now.round, now.ending, now.plan.number, fmt::join(now.plan.workers, " "),
        fmt::join(now.gone, " "));
  if (now.ending && !before.ending) check_end(m, before);
  if (now.round == before.round && !now.ending && now.gone.size() > before.gone.size()) {
    for (const Worker* w : workers_) {
      const bool newly = now.is_gone(w->uid) && !before.is_gone(w->uid);
      if (newly && w->alive) ++counts.exclusions;
    }
  }
  m.last = now;
}

void Hosts::say(Master& m, const RosterMaster::SayToWorker& action) {
  const auto connection = m.workers.find(action.uid);
  Worker* w = worker(action.uid);
  if (connection == m.workers.end() || w == nullptr) return;
  wire::RosterWord word = action.word;
  if (!rules_.whole_gone_list && !word.gone.empty()) word.gone = {word.gone.back()};
  const int number = connection->second;
  send(number, m, LaneKind::control, [this, w, word] { hear(*w, word); });
}

void Hosts::order(Master& m, const RosterMaster::SayToShare& action) {
  const auto connection = m.shares.find(action.share);
  Share* s = share(action.share);
  if (connection == m.shares.end() || s == nullptr) return;
  send(connection->second, m, LaneKind::control, [this, s, order = action.order] {
    std::visit([&](const auto& one) { obey(*s, one); }, order);
  });
}

// The manager ends the share, or only says so.
void Hosts::cancel(const wire::ShareName& name) {
  Share* s = share(name);
  if (s == nullptr || s->gone || !chance(0.05)) return;
  if (s->alive && !chance(lie_chance_)) {
    for (Worker* w : workers_) {
      if (w->alive && w->share == s->pid) end_process(*w);
    }
    end_process(*s);
  }
  manager_says_gone(*s);
}

void Hosts::end_master(Master& m) {
  if (m.alive) end_process(m);
}

void Hosts::hear_worker(Master& m, int connection, const wire::WorkerHello& hello,
                        const std::vector<Uid>& working) {
  if (!m.serves() || !m.core->worker_said(hello)) return;
  const auto before = m.workers.find(hello.uid);
  if (before != m.workers.end() && before->second != connection) close_end(before->second, m.pid);
  m.workers[hello.uid] = connection;
  if (rules_.survivor_says_so_itself) return;
  for (const Uid uid : working) {
    if (uid == hello.uid || !m.core->linked(uid)) continue;
    wire::WorkerHello other = hello;
    other.uid = uid;
    other.epoch = 0;
    other.connection = m.workers.at(uid);
    m.core->worker_said(other);
  }
}

void Hosts::hear_share(Master& m, int connection, const wire::ShareHello& hello) {
  if (!m.serves() || !m.core->share_said(hello)) return;
  const auto before = m.shares.find(hello.share);
  if (before != m.shares.end() && before->second != connection) close_end(before->second, m.pid);
  m.shares[hello.share] = connection;
}

void Hosts::lost_connection(Master& m, int connection) {
  for (const auto& [uid, number] : m.workers) {
    if (number != connection) continue;
    if (m.core && rules_.survivor_linked) m.core->worker_silent(uid);
    m.workers.erase(uid);
    return;
  }
  for (const auto& [name, number] : m.shares) {
    if (number != connection) continue;
    if (m.core) m.core->share_silent(name);
    m.shares.erase(name);
    return;
  }
}

// --- a share ---

// Mostly the newest; some still know the address of an earlier one.
Master* Hosts::some_master() {
  std::vector<Master*> all = living(masters_);
  std::erase_if(all, [](const Master* m) { return !m->core; });  // not listening yet
  if (all.empty()) return nullptr;
  return settling_ || chance(0.8) ? all.back() : all[random_.below(all.size())];
}

void Hosts::dial_master(Share& s) {
  if (s.master != kNone) return;
  Master* m = some_master();
  if (m == nullptr || !reachable(s, *m)) {
    return fact(
        s.pid, [this, &s] { dial_master(s); }, kSoon);
  }
  s.master = connect(s, *m);
  say_hello(s);
}

void Hosts::say_hello(Share& s) {
  if (s.master == kNone) return;
  wire::ShareHello hello = s.core.hello(s.master);
  if (!rules_.hello_names_epoch) hello.epoch = 0;
  if (!rules_.share_repeats_ends) s.core.kept({s.core.epoch(), hello.ended});
  send(s.master, s, LaneKind::control, [this, &s, hello, connection = s.master] {
    hear_share(dynamic_cast<Master&>(*peer_of(connection, s.pid)), connection, hello);
  });
}

void Hosts::obey(Share& s, const wire::StartOrder& order) {
  wire::StartOrder heard = order;
  if (!rules_.share_refuses_lower_epoch) heard.epoch = std::max(heard.epoch, s.core.epoch());
  if (s.core.start(heard) || !rules_.share_starts_once) start_worker(s, order);
}

void Hosts::start_worker(Share& s, const wire::StartOrder& order) {
  Worker& w = make<Worker>(s.host, order.uid, order.round, s.pid);
  workers_.push_back(&w);
  by_uid_[order.uid] = w.pid;
  fact(
      w.pid, [this, &w] { dial_master(w); }, random_slowness());
}

void Hosts::obey(Share& s, const wire::KillOrder& order) {
  wire::KillOrder heard = order;
  if (!rules_.share_refuses_lower_epoch) heard.epoch = std::max(heard.epoch, s.core.epoch());
  if (!s.core.kill(heard)) return;
  for (Worker* w : living(workers_)) {
    if (w->uid == order.uid && w->share == s.pid) end_worker(*w);
  }
}

void Hosts::obey(Share& s, const wire::EndsKept& kept) { s.core.kept(kept); }

// --- a worker and its master ---

wire::WorkerHello Hosts::hello_of(const Worker& w) const {
  wire::WorkerHello hello = w.standing.hello(w.membership, w.master);
  if (!rules_.survivor_never_omitted) hello.generation.plan = Roster::kNotPlanned - 1;
  if (!rules_.hello_names_epoch) hello.epoch = 0;
  return hello;
}

void Hosts::dial_master(Worker& w) {
  if (w.master != kNone) return;
  Master* m = some_master();
  if (m == nullptr || !reachable(w, *m)) {
    return fact(
        w.pid, [this, &w] { dial_master(w); }, kSoon);
  }
  w.master = connect(w, *m);
  w.address = fmt::format("{}/{}", w.host, m->pid % 2);
  w.said_to_master.reset();
  say_hello(w);
}

void Hosts::say_hello(Worker& w) {
  const wire::WorkerHello hello = hello_of(w);
  // The step is not worth a message: only whether there is a state.
  const auto same = [&](wire::WorkerHello before) {
    before.applied = std::min<Step>(before.applied, 0);
    wire::WorkerHello now = hello;
    now.applied = std::min<Step>(now.applied, 0);
    return before == now;
  };
  if (w.master == kNone || (w.said_to_master && same(*w.said_to_master))) return;
  w.said_to_master = hello;
  std::vector<Uid> working;
  if (w.membership.record()) working = w.membership.record()->working();
  send(w.master, w, LaneKind::control, [this, &w, hello, working, connection = w.master] {
    hear_worker(dynamic_cast<Master&>(*peer_of(connection, w.pid)), connection, hello, working);
  });
}

void Hosts::hear(Worker& w, wire::RosterWord word) {
  if (!rules_.worker_refuses_lower_epoch) word.epoch = std::max(word.epoch, w.standing.epoch());
  const Standing::Verdict verdict = w.standing.hear(word);
  trace("{} hears epoch {} plan {}: {} gone {} founder {}: {}", w.uid, word.epoch, word.plan.number,
        fmt::join(word.plan.workers, " "), fmt::join(word.gone, " "), word.founder,
        static_cast<int>(verdict));
  if (verdict == Standing::Verdict::refused) return;
  if (verdict == Standing::Verdict::heard) return take_word(w, word);
  ++counts.zombies;
  if (rules_.gone_worker_ends_first) return end_worker(w);
  std::vector<Uid> others = w.standing.gone();
  std::erase(others, w.uid);
  w.membership.gone(others);
  fact(
      w.pid, [this, &w] { end_worker(w); }, kSoon);
}

void Hosts::take_word(Worker& w, const wire::RosterWord& word) {
  w.membership.gone(w.standing.gone());
  w.membership.plan(word.plan);
  act(w);
  if (!w.alive) return;
  const bool again = !rules_.found_once && word.founder == w.uid && !w.membership.record();
  if (w.standing.may_found() || (again && !w.founding)) {
    w.founding = true;
    fact(w.pid, [this, &w] { found(w); });
  }
  if (!std::exchange(w.welcomed, true)) meet_others(w);
  leave_if_unplanned(w);
}

void Hosts::leave_if_unplanned(Worker& w) {
  const Membership& m = w.membership;
  if (w.alive && w.welcomed && !w.founding && !m.record() &&
      !contains(m.newest_plan().workers, w.uid)) {
    end_worker(w);
  }
}

void Hosts::end_worker(Worker& w) {
  if (!w.alive) return;
  trace("{} of round {} ends", w.uid, w.standing.round());
  end_process(w);
  if (Share* s = dynamic_cast<Share*>(processes_[static_cast<std::size_t>(w.share)].get());
      s->alive) {
    fact(
        s->pid,
        [this, s, uid = w.uid] {
          s->core.ended(uid);
          say_hello(*s);
        },
        random_slowness());
  }
  if (rules_.death_only_from_gone) return;
  for (Worker* other : living(workers_)) {
    if (other->host != w.host) continue;
    fact(
        other->pid, [other, uid = w.uid] { other->membership.dead(uid); }, random_slowness());
  }
}

void Hosts::found(Worker& w) {
  const std::int64_t round = w.standing.round();
  require(!w.membership.record(), fmt::format("founder {} is a member already", w.uid));
  require(directory_.claimed() != round, fmt::format("round {} is founded twice", round));
  if (directory_.claimed() > round) return end_worker(w);  // it comes too late
  std::optional<CheckpointName> name = newest_checkpoint(directory_.claims, names_of(directory_));
  if (!rules_.checkpoint_names && !directory_.files.empty())
    name = directory_.files.rbegin()->first;
  require(!name || directory_.files.contains(*name), "what the round began with was removed");
  require(name.has_value() == directory_.best.has_value(), "the newest checkpoint is not found");
  StepPlan first;
  first.samples = 1;
  w.history = {{0, 0}};
  CheckpointClaim claim{round, {}};
  if (name) {
    const Checkpoint file = directory_.files.at(*name);
    require(file.history == directory_.best->history,
            fmt::format("round {} begins with step {} of {}, not with step {} of {}", round,
                        file.name.step, file.name.round, directory_.best->name.step,
                        directory_.best->name.round));
    w.history = file.history;
    first = file.next;
    claim.base = rules_.base_of_own_round ? base_of_round(*name, round, w.uid) : *name;
    if (rules_.base_of_own_round && rules_.checkpoint_names) {
      directory_.files[*claim.base] = file;
    }
    directory_.best->name = base_of_round(file.name, round, w.uid);
  }
  directory_.claims.push_back(claim);
  w.founding = false;
  trace("{} founds round {} at {}", w.uid, round, first.step);
  w.membership.located(w.uid, w.address);
  w.membership.found(w.membership.newest_plan(), first);
  const Record& record = *w.membership.record();
  w.resumed = {record.recovery, first.step - 1, record.members};
}

// --- a worker and its peers ---

Worker* Hosts::worker(Uid uid) const {
  const auto found = by_uid_.find(uid);
  return found == by_uid_.end()
             ? nullptr
             : dynamic_cast<Worker*>(processes_[static_cast<std::size_t>(found->second)].get());
}
Share* Hosts::share(const wire::ShareName& name) const {
  const auto found =
      std::find_if(shares_.begin(), shares_.end(), [&](const Share* s) { return s->name == name; });
  return found == shares_.end() ? nullptr : *found;
}

bool Hosts::accepts(const Worker& w, const Worker& from) const {
  const std::int64_t round =
      rules_.peers_compare_rounds ? from.standing.round() : w.standing.round();
  return w.standing.accepts(round, from.uid);
}

// It was welcomed last, so it dials.
void Hosts::meet_others(Worker& w) {
  for (Worker* other : living(workers_)) {
    if (other->uid == w.uid || !other->welcomed || w.peers.contains(other->uid)) continue;
    if (!accepts(w, *other)) continue;
    w.peers[other->uid].dials = true;
    dial(w, other->uid);
  }
}

void Hosts::dial(Worker& w, Uid to) {
  Worker::Peer& peer = w.peers[to];
  Worker* other = worker(to);
  if (peer.connection != kNone || peer.pending != kNone || w.standing.is_gone(to)) return;
  if (!other->alive || !reachable(w, *other)) {
    return fact(
        w.pid, [this, &w, to] { dial(w, to); }, kSoon);
  }
  peer.pending = connect(w, *other);
  send(peer.pending, w, LaneKind::control,
       [this, other, &w, connection = peer.pending, address = w.address] {
         hello_from(*other, w, connection, address);
       });
}

void Hosts::hello_from(Worker& w, Worker& from, int connection, const std::string& address) {
  if (!accepts(w, from)) {
    close_end(connection, w.pid);
    return break_connection(connection);
  }
  Worker::Peer& peer = w.peers[from.uid];
  if (rules_.newer_connection_voids && connection < peer.newest) return;
  peer.newest = std::max(peer.newest, connection);
  const int before = std::exchange(peer.connection, kNone);
  if (before != kNone && rules_.newer_connection_voids) {
    close_end(before, w.pid);
    lost_peer(w, from.uid);
    act(w);
    if (!w.alive) return;
  }
  connected(w, from.uid, connection, address);
  send(connection, w, LaneKind::control, [this, &from, to = w.uid, connection, own = w.address] {
    if (from.peers[to].pending == connection) connected(from, to, connection, own);
  });
}

void Hosts::connected(Worker& w, Uid to, int connection, const std::string& address) {
  Worker::Peer& peer = w.peers[to];
  peer.connection = connection;
  peer.pending = kNone;
  peer.address = address;
  for (const auto& unsent : std::exchange(peer.unsent, {})) unsent(connection);
  w.membership.located(to, address);
  w.membership.ready(to);
  if (rules_.told_again) w.membership.reconnected(to);
}

void Hosts::lost_peer(Worker& w, Uid peer) {
  Membership& m = w.membership;
  m.unready(peer);
  const Member* member = m.record() ? m.record()->find(peer) : nullptr;
  if (!rules_.broken_joiner_interrupts && member != nullptr && member->role == Role::joining) {
    w.broken[peer] = member->since;
  } else {
    m.lost(peer);
  }
}

void Hosts::lost_connection(Worker& w, int connection) {
  if (w.master == connection) {
    w.master = kNone;
    return fact(
        w.pid, [this, &w] { dial_master(w); }, random_slowness());
  }
  const auto& other = dynamic_cast<Worker&>(*peer_of(connection, w.pid));
  Worker::Peer& peer = w.peers[other.uid];
  if (peer.pending == connection || peer.connection == connection) {
    // Data may have come on it before the answer to our hello.
    (peer.pending == connection ? peer.pending : peer.connection) = kNone;
    lost_peer(w, other.uid);
  } else if (!rules_.newer_connection_voids) {
    return lost_peer(w, other.uid);
  }
  if (peer.dials)
    fact(
        w.pid, [this, &w, to = other.uid] { dial(w, to); }, kSoon);
}

void Hosts::on_lost(Process& process, int connection) {
  if (auto* m = dynamic_cast<Master*>(&process)) return lost_connection(*m, connection);
  if (auto* w = dynamic_cast<Worker*>(&process)) return lost_connection(*w, connection);
  auto& s = dynamic_cast<Share&>(process);
  if (s.master != connection) return;
  s.master = kNone;
  fact(
      s.pid, [this, &s] { dial_master(s); }, random_slowness());
}

void Hosts::on_event(Process& process) {
  if (auto* m = dynamic_cast<Master*>(&process)) obey(*m);
  if (auto* w = dynamic_cast<Worker*>(&process)) progress(*w);
}

void Hosts::send_control(Worker& w, Uid to, std::function<void(Worker&)> message) {
  require(to != w.uid, "a message to itself");
  if (!w.connected(to)) return;  // said again when there is a connection
  Worker* other = worker(to);
  send(w.peers.at(to).connection, w, LaneKind::control,
       [this, other, &w, message = std::move(message)] {
         if (accepts(*other, w)) message(*other);
       });
}

void Hosts::send_data(Worker& w, Uid to, std::function<void(Worker&)> message) {
  Worker* other = worker(to);
  const auto give = [this, &w, other, message = std::move(message)](int connection) {
    send(connection, w, LaneKind::data, [this, &w, other, message] {
      if (accepts(*other, w)) message(*other);
    });
  };
  if (w.connected(to)) return give(w.peers.at(to).connection);
  w.peers[to].unsent.emplace_back(give);
}

// --- a worker's steps ---

void Hosts::progress(Worker& w) {
  act(w);
  while (w.alive && advance(w)) act(w);
  if (w.alive) say_hello(w);
}

bool Hosts::advance(Worker& w) {
  Membership& m = w.membership;
  if (!m.record() || m.recovering()) return false;
  if (w.behind) return catch_up(w);
  const std::pair<std::int64_t, Step> now{m.record()->recovery, m.next().step};
  if (m.role() == Role::working && w.said != now) {
    w.said = now;
    // Computing takes a while.
    fact(
        w.pid, [this, &w, now] { say_word(w, now); }, random_slowness());
  }
  if (m.role() == Role::joining && !w.said_level && w.steps_to_level <= 0) say_level(w);
  return complete(w);
}

void Hosts::say_level(Worker& w) {
  const std::vector<Member> members = w.membership.record()->members;
  for (const Member& member : members) {
    if (member.uid != w.uid && !w.connected(member.uid)) return;
  }
  w.said_level = true;
  for (const Member& member : members) {
    if (member.uid == w.uid) continue;
    send_control(w, member.uid, [from = w.uid, level = w.membership.own_level()](Worker& to) {
      to.membership.level(from, level);
    });
  }
}

void Hosts::say_word(Worker& w, std::pair<std::int64_t, Step> of) {
  Membership& m = w.membership;
  if (!m.record() || m.recovering() || w.behind) return;
  const Record record = *m.record();
  if (of != std::pair{record.recovery, m.next().step} || m.role() != Role::working) return;
  Heard heard{record.recovery, {}};
  heard.word.uid = w.uid;
  heard.word.step = m.next().step;
  heard.word.ready = m.ready_peers();
  if (rules_.broken_joiner_dropped) heard.word.broken = m.broken_joiners();
  for (const auto& [uid, since] : w.broken) {
    const Member* member = record.find(uid);
    if (member != nullptr && member->since == since) heard.word.broken.push_back(uid);
  }
  if (record.leader() == w.uid) {
    StepPlan next = m.next();
    ++next.step;
    next.cursor += next.samples;
    next.samples = 1 + static_cast<std::int64_t>(random_.below(5));
    heard.word.proposal.push_back({m.propose(), next});
    require(!heard.word.proposal[0].record.working().empty(), "a proposal without workers");
  }
  for (const Member& member : record.members) {
    if (member.uid == w.uid) {
      w.words.push_back(heard);
    } else if (!m.is_dead(member.uid)) {
      send_data(w, member.uid, [heard](Worker& to) { to.words.push_back(heard); });
    }
  }
}

bool Hosts::complete(Worker& w) {
  Membership& m = w.membership;
  const Record record = *m.record();
  const StepPlan step = m.next();
  std::erase_if(w.words, [&](const Heard& heard) {
    return heard.recovery < record.recovery ||
           (heard.recovery == record.recovery && heard.word.step < step.step);
  });
  std::map<Uid, Word> words;
  for (const Heard& heard : w.words) {
    const Member* member = record.find(heard.word.uid);
    if (heard.recovery == record.recovery && heard.word.step == step.step && member != nullptr &&
        member->role == Role::working) {
      words[heard.word.uid] = heard.word;
    }
  }
  if (words.size() != record.working().size()) return false;
  require(!words.at(record.leader()).proposal.empty(), "the leader proposes nothing");
  require(!w.history.empty() && w.history.rbegin()->first == step.step - 1,
          fmt::format("{} applies step {} to another state", w.uid, step.step));
  const Role before = m.role();
  require(before == Role::joining || m.applied() == step.step - 1, "a step was skipped");
  m.completed(words);
  w.history[step.step] = after_step(w.history.rbegin()->second, step);
  if (before == Role::joining) --w.steps_to_level;
  ++w.steps_done;
  ++counts.steps;
  const Done done{record.recovery, places_of(w, record)};
  w.completed_under[step.step] = done;
  if (w.history.size() > kRemembered) w.history.erase(w.history.begin());
  if (w.completed_under.size() > kRemembered) w.completed_under.erase(w.completed_under.begin());
  trace("{} did step {} in recovery {}", w.uid, step.step, record.recovery);
  check_groups(w, record.recovery, step.step);
  check_places(w, step.step, done);
  if (!m.record()) return true;
  check_record(w);
  if (m.applied() != kNoState) check_state(w);
  if (before == Role::joining && m.role() == Role::working) {
    require(w.said_level, "a joiner works that is not level");
    ++counts.joins;
  }
  take_in(w, record);
  if (m.role() == Role::working && m.record()->leader() == w.uid && chance(0.1)) {
    write_checkpoint(w);
  }
  return true;
}

// Right after a step that gave a joiner to this donor.
void Hosts::take_in(Worker& w, const Record& before) {
  const Membership& m = w.membership;
  for (const Member& member : m.record()->members) {
    if (member.role != Role::joining || member.donor != w.uid) continue;
    const Member* already = before.find(member.uid);
    if (already != nullptr && already->since == member.since) continue;
    send_data(w, member.uid,
              [this, proposal = Proposal{*m.record(), m.next()}, history = w.history](Worker& to) {
                taken_in(to, proposal, history);
              });
  }
}

void Hosts::bury_unknown(Worker& w, const Record& record) {
  if (rules_.unknown_members_live) return;
  for (const Member& member : record.members) {
    if (member.uid != w.uid && !w.connected(member.uid)) w.membership.dead(member.uid);
  }
}

void Hosts::taken_in(Worker& w, const Proposal& proposal, const History& history) {
  bury_unknown(w, proposal.record);
  w.membership.adopt(proposal);
  if (w.membership.record() != proposal.record || w.membership.applied() != kNoState) return;
  w.history = history;
  w.said_level = false;
  w.behind.reset();
  w.completed_under.clear();
  w.steps_to_level = static_cast<int>(random_.below(5));
  check_record(w);
}

bool Hosts::catch_up(Worker& w) {
  for (const Gradient& gradient : w.gradients) {
    if (gradient.recovery != w.behind->record.recovery || gradient.from != w.behind->holder) {
      continue;
    }
    require(gradient.step == w.behind->applied, "the gradient of another step");
    w.membership.caught_up();
    w.behind.reset();
    require(w.history.rbegin()->first == gradient.step - 1, "more than one step behind");
    w.history[gradient.step] = gradient.state;
    check_state(w);
    return true;
  }
  return false;
}

void Hosts::write_checkpoint(Worker& w) {
  const Membership& m = w.membership;
  const Record& record = *m.record();
  const Checkpoint checkpoint{
      {w.standing.round(), record.recovery, m.applied(), record.generation, w.uid},
      m.next(),
      w.history};
  fact(
      w.pid, [this, &w, checkpoint] { written(w, checkpoint); }, 0.98);
}

void Hosts::written(Worker& w, const Checkpoint& checkpoint) {
  ++counts.checkpoints;
  CheckpointName name = checkpoint.name;
  if (!rules_.checkpoint_names) name = {0, 0, checkpoint.name.step, {}, 0};
  trace("{} has written step {}", w.uid, name.step);
  directory_.files[name] = checkpoint;
  const std::int64_t round = w.standing.round();
  auto& best = directory_.best;
  if (round == directory_.claimed() && (!best || checkpoint.name > best->name)) best = checkpoint;
  const std::int64_t of = rules_.checkpoint_names ? round : 0;
  for (const CheckpointName& old : removable(of, 2, names_of(directory_))) {
    directory_.files.erase(old);
  }
}

// --- actions ---

void Hosts::act(Worker& w) {
  for (bool any = true; any && w.alive;) {
    const auto actions = w.membership.take_actions();
    any = !actions.empty();
    for (const auto& action : actions) {
      if (w.alive) std::visit([&](const auto& a) { perform(w, a); }, action);
    }
  }
}

void Hosts::perform(Worker& w, const Membership::SendReport& send) {
  send_control(w, send.to, [this, from = w.uid, report = send.report](Worker& to) {
    bury_unknown(to, report.record);
    to.membership.report(from, report);
  });
}
void Hosts::perform(Worker& w, const Membership::SendCommit& send) {
  send_control(w, send.to, [from = w.uid, commit = send.commit](Worker& to) {
    to.membership.commit(from, commit);
  });
}
void Hosts::perform(Worker& w, const Membership::SendDropped& send) {
  if (!rules_.donor_tells_dropped) return;
  send_data(w, send.to, [attempt = send.attempt](Worker& to) { to.membership.dropped(attempt); });
}
void Hosts::perform(Worker& w, const Membership::Interrupted&) {
  trace("{} interrupted at {}", w.uid, w.membership.applied());
  w.behind.reset();
  for (auto& [uid, peer] : w.peers) peer.unsent.clear();
}

void Hosts::perform(Worker& w, const Membership::Resume& resume) {
  const Commit& commit = resume.commit;
  ++counts.recoveries;
  trace("{} resumes recovery {} after {} with {}{}", w.uid, commit.record.recovery, commit.applied,
        fmt::join(commit.record.working(), " "), describe());
  w.behind.reset();
  if (resume.behind) w.behind = commit;
  w.resumed = {commit.record.recovery, commit.applied, commit.record.members};
  require(contains(commit.behind, w.uid) == resume.behind,
          "the commit does not know who is behind");
  for (const Worker* other : workers_) {
    if (!counts_on(w) || !counts_on(*other) || !other->holds_state()) continue;
    require(
        other->membership.record()->recovery >= commit.record.recovery ||
            other->membership.applied() <= commit.applied,
        fmt::format("{} goes back to step {} though {} lives", w.uid, commit.applied, other->uid));
  }
  if (commit.holder == w.uid) {
    require(w.history.rbegin()->first == commit.applied, "the holder does not hold the step");
    for (const Uid uid : commit.behind) {
      send_data(w, uid,
                [gradient = Gradient{commit.record.recovery, commit.applied, w.uid,
                                     w.history.rbegin()->second}](Worker& to) {
                  to.gradients.push_back(gradient);
                });
    }
  }
  check_record(w);
}

void Hosts::perform(Worker& w, const Membership::Dropped&) {
  trace("{} dropped", w.uid);
  ++counts.drops;
  forget(w);
  leave_if_unplanned(w);
}
void Hosts::perform(Worker& w, const Membership::Leave&) {
  ++counts.leaves;
  forget(w);
  end_worker(w);
}
void Hosts::perform(Worker&, const Membership::Stranded&) { ++counts.stranded; }
void Hosts::perform(Worker& w, const Membership::Excluded&) {
  ++counts.zombies;
  end_worker(w);
}

void Hosts::forget(Worker& w) {
  w.history.clear();
  w.completed_under.clear();
  w.behind.reset();
  w.said_level = false;
}

// --- what must hold ---

bool Hosts::counts_on(const Worker& w) const {
  const Roster& roster = versions_.newest();
  return w.alive && w.standing.round() == roster.round && roster.workers.contains(w.uid) &&
         !roster.is_gone(w.uid);
}

void Hosts::check_record(const Worker& w) const {
  if (!counts_on(w)) return;
  const Record& record = *w.membership.record();
  for (const Worker* other : workers_) {
    const auto& its = other->membership.record();
    if (other == &w || !counts_on(*other) || !its || its->recovery != record.recovery) continue;
    require(its->generation != record.generation || *its == record,
            fmt::format("{} and {} have different records of one generation", w.uid, other->uid));
    if (w.membership.role() != Role::working || other->membership.role() != Role::working) continue;
    const Member* member = record.find(other->uid);
    const Step difference = w.membership.applied() - other->membership.applied();
    require(member == nullptr || member->role != Role::working || its->find(w.uid) == nullptr ||
                std::abs(difference) <= 1,
            fmt::format("{} and {} are more than a step apart", w.uid, other->uid));
  }
}

void Hosts::check_state(const Worker& w) const {
  const Step step = w.membership.applied();
  require(w.history.rbegin()->first == step, "the state is of another step than the record");
  if (!counts_on(w)) return;
  const auto under = w.completed_under.find(step);
  for (const Worker* other : workers_) {
    if (other == &w || !counts_on(*other) || !other->holds_state()) continue;
    const auto state = other->history.find(step);
    require(state == other->history.end() || state->second == w.history.rbegin()->second,
            fmt::format("{} and {} differ after step {}", w.uid, other->uid, step));
    const auto its = other->completed_under.find(step);
    require(under == w.completed_under.end() || its == other->completed_under.end() ||
                its->second.recovery == under->second.recovery,
            fmt::format("{} and {} did step {} in two recoveries", w.uid, other->uid, step));
  }
}

// Whether somebody lives, gone or not, who has taken a step in this recovery.
bool Hosts::stepped(const Worker& besides, std::int64_t recovery) const {
  return std::any_of(workers_.begin(), workers_.end(), [&](const Worker* w) {
    return w != &besides && w->alive && w->standing.round() == besides.standing.round() &&
           std::any_of(w->completed_under.begin(), w->completed_under.end(),
                       [&](const auto& done) { return done.second.recovery == recovery; });
  });
}

// Whoever lives, gone or not, has done no step that a later recovery of its round has given up, but
// for the one that the members of that recovery repeat. If all of one group are dead, the other may
// begin where it likes: a leaving member may take over at an older step.
void Hosts::check_groups(const Worker& w, std::int64_t recovery, Step step) {
  auto& groups = groups_[w.standing.round()];
  if (w.resumed && w.resumed->recovery == recovery) {
    const Group& own = *w.resumed;
    const auto [known, fresh] = groups.try_emplace(recovery, own);
    require(known->second == own || !stepped(w, recovery),
            fmt::format("{} steps in recovery {} after step {}, others in another group after {}",
                        w.uid, recovery, own.after, known->second.after));
    known->second = own;
    for (const Worker* other : workers_) {
      if (!fresh || !other->alive || other->standing.round() != w.standing.round()) continue;
      for (const auto& [done, under] : other->completed_under) {
        require(under.recovery >= recovery || done <= own.after + 1,
                fmt::format("{} steps after step {} though {} has done step {}", w.uid, own.after,
                            other->uid, done));
      }
    }
  }
  for (auto later = groups.upper_bound(recovery); later != groups.end(); ++later) {
    require(step <= later->second.after + 1 || !stepped(w, later->first),
            fmt::format("{} does step {} in recovery {} though others went on after step {} in {}",
                        w.uid, step, recovery, later->second.after, later->first));
  }
}

// Without the rule, by what this worker has heard itself.
Places Hosts::places_of(const Worker& w, const Record& record) const {
  Places places;
  for (const Uid uid : record.working()) {
    if (rules_.hosts_by_record) {
      places[uid] = record.find(uid)->host;
    } else {
      places[uid] = uid == w.uid ? w.address : w.peers.at(uid).address;
    }
  }
  return places;
}

void Hosts::check_places(const Worker& w, Step step, const Done& own) const {
  for (const auto& [uid, host] : own.places) {
    require(host.starts_with(fmt::format("{}/", worker(uid)->host)),
            fmt::format("{} takes '{}' for the host of {}", w.uid, host, uid));
  }
  for (const Worker* other : workers_) {
    if (!other->alive || other->standing.round() != w.standing.round()) continue;
    const auto its = other->completed_under.find(step);
    if (its == other->completed_under.end() || its->second.recovery != own.recovery) continue;
    require(its->second.places == own.places,
            fmt::format("{} and {} know members on other hosts in step {} of recovery {}", w.uid,
                        other->uid, step, own.recovery));
  }
}

// A round is given up: nobody may have the state but those who cannot go on, because a share is
// gone whose workers cannot be excluded.
void Hosts::check_end(const Master& m, const Roster& before) const {
  const Roster& roster = m.core->roster();
  const std::vector<Uid> left = before.not_gone();
  const bool forced = std::any_of(left.begin(), left.end(), [&](Uid uid) {
    const Share* s = share(before.workers.at(uid).share);
    return s != nullptr && s->gone;
  });
  for (const Worker* w : workers_) {
    if (!counts_on(*w) || !w->holds_state()) continue;
    const auto* s = dynamic_cast<Share*>(processes_[static_cast<std::size_t>(w->share)].get());
    if (s->gone) continue;
    require(forced && m.core->linked(w->uid),
            fmt::format("round {} is given up though {} has its state{}", roster.round, w->uid,
                        describe()));
  }
}

// --- the end: no more faults; training must go on with exactly the planned workers ---

void Hosts::settle() {
  counts.stormy_steps = counts.steps;
  settling_ = true;
  patience_ = 0;
  cut_.clear();
  for (const auto& process : processes_) process->frozen = false;
  for (Share* s : std::vector<Share*>(shares_)) {
    if (!s->alive && !s->gone) manager_says_gone(*s);
  }
  if (living(masters_).empty()) start_master();
  std::map<Uid, Step> base;
  for (int i = 0; i < 500; ++i) {
    for (int j = 0; j < 100; ++j) happen();
    if (living(masters_).empty()) start_master();
    if (settled(base)) return;
  }
  throw Violation("no progress" + describe());
}

bool Hosts::settled(std::map<Uid, Step>& base) {
  const Roster& roster = versions_.newest();
  std::vector<Uid> wanted = roster.plan.workers;
  std::sort(wanted.begin(), wanted.end());
  bool as_planned = !roster.ending && static_cast<int>(wanted.size()) == wanted_;
  for (const Worker* w : living(workers_)) {
    const auto& record = w->membership.record();
    const bool member = std::binary_search(wanted.begin(), wanted.end(), w->uid);
    as_planned = as_planned && member && record && record->working() == wanted &&
                 record->members.size() == wanted.size();
  }
  if (!as_planned || living(workers_).size() != wanted.size()) {
    base.clear();
    return false;
  }
  return std::all_of(wanted.begin(), wanted.end(), [&](Uid uid) {
    const Step done = worker(uid)->steps_done;
    return done >= base.try_emplace(uid, done).first->second + 10;
  });
}

std::string Hosts::describe() const {
  const Roster& roster = versions_.newest();
  std::string text =
      fmt::format("\n  epoch {} round {} ending {} founder {} plan {}: {} gone: {}; wanted {}",
                  roster.epoch, roster.round, roster.ending, roster.founder, roster.plan.number,
                  fmt::join(roster.plan.workers, " "), fmt::join(roster.gone, " "), wanted_);
  for (const Master* m : living(masters_)) {
    text += fmt::format("\n  master {} epoch {} workers {} shares {}", m->pid,
                        m->core ? m->core->roster().epoch : 0, m->workers.size(), m->shares.size());
  }
  for (const Worker* w : living(workers_)) {
    text += fmt::format(
        "\n  {} of round {} on {}: master {} applied {} recovering {} behind {} "
        "words {} plan {} gone {}",
        w->uid, w->standing.round(), w->host, w->master != kNone, w->membership.applied(),
        w->membership.recovering(), w->behind.has_value(), w->words.size(),
        w->membership.newest_plan().number, w->standing.gone().size());
    for (const auto& [uid, peer] : w->peers) {
      if (peer.connection != kNone) text += fmt::format(" +{}", uid);
    }
    const auto& record = w->membership.record();
    if (!record) continue;
    text += fmt::format(" recovery {} generation {}.{} next {}", record->recovery,
                        record->generation.plan, record->generation.revision,
                        w->membership.next().step);
    for (const Member& member : record->members) {
      text += fmt::format(" {}:{}", member.uid, static_cast<int>(member.role));
    }
  }
  return text;
}

// --- seeds ---

namespace {

std::uint64_t current_seed = 0;

void name_current_seed(int) {
  char text[64];
  const int size = std::snprintf(text, sizeof text, "RUBATO_SEED=%llu\n",
                                 static_cast<unsigned long long>(current_seed));
  (void)!write(2, text, static_cast<std::size_t>(size));
}

TEST(MembershipAcrossHosts, SurvivesEveryFaultTried) {
  const std::uint64_t one = only_seed().value_or(0);
  const std::uint64_t count = one != 0 ? 1 : seeds(200);
  const auto events = static_cast<int>(number_from_environment("RUBATO_EVENTS").value_or(2500));
  const auto before = std::signal(SIGABRT, name_current_seed);
  Hosts::Counts sum;
  int failed = 0;
  for (std::uint64_t i = 0; i < count && failed < 10; ++i) {
    current_seed = one != 0 ? one : i + 1;
    Hosts hosts(current_seed);
    try {
      hosts.run(events);
    } catch (const std::exception& violation) {
      ADD_FAILURE() << "RUBATO_SEED=" << current_seed << ": " << violation.what();
      ++failed;
    }
    sum.add(hosts.counts);
  }
  std::signal(SIGABRT, before);
  if (count != 200) fmt::print("{}\n", sum.text());
  if (count < 200) return;
  // The simulation does try what it is for.
  EXPECT_GT(sum.recoveries, 100);
  EXPECT_GT(sum.exclusions, 30);
  EXPECT_GT(sum.adoptions, 400);
  EXPECT_GT(sum.rounds, 20);
  EXPECT_GT(sum.joins, 100);
  EXPECT_GT(sum.leaves, 20);
}

}  // namespace
}  // namespace rubato::member::hosts
