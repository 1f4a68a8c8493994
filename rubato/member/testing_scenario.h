// For tests: a schedule of faults that is written down, in the world of testing_hosts.h. The master
// chooses nothing by itself, and nothing breaks that the test does not break.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "rubato/member/testing_hosts.h"

namespace rubato::member::hosts {

class Scenario : public Hosts {
 public:
  explicit Scenario(Rules rules, int hosts = 3, std::uint64_t seed = 1) : Hosts(seed, rules) {
    scripted_ = true;
    host_count_ = hosts;
    slowness_ = crash_chance_ = lie_chance_ = 0;
    for (int host = 1; host <= hosts; ++host) start_share(host);
    start_master();
    reach("shares linked", [&] {
      return masters_.back()->core && masters_.back()->shares.size() == shares_.size();
    });
  }

  // Lets things happen until it is so.
  void reach(const std::string& what, const std::function<bool()>& so) {
    for (int i = 0; i < 20'000; ++i) {
      if (so()) return;
      happen();
    }
    throw std::logic_error("the schedule does not reach: " + what + describe());
  }
  void pass(int events) {
    for (int i = 0; i < events; ++i) happen();
  }
  // No more faults; the masters choose again.
  void come_right() {
    scripted_ = false;
    settle();
  }

  Master& master() { return *masters_.back(); }
  RosterMaster& core() { return *master().core; }
  Share& share_on(int host) { return *shares_[static_cast<std::size_t>(host) - 1]; }
  Worker& at(Uid uid) { return *worker(uid); }
  bool worker_exists(Uid uid) { return worker(uid) != nullptr; }
  const Record& record(Uid uid) { return *at(uid).membership.record(); }
  // By the worker's own record.
  bool has_role(Uid of, Uid uid, Role role) {
    const auto& record = at(of).membership.record();
    const Member* member = record ? record->find(uid) : nullptr;
    return member != nullptr && member->role == role;
  }

  // One worker on each of these hosts, numbered from 1 on, and all of them work.
  void form(const std::vector<int>& hosts) {
    std::vector<Uid> uids = core().roster().plan.workers;
    for (const int host : hosts) uids.push_back(add(host));
    plan(uids);
    reach("all work", [&] {
      return std::all_of(uids.begin(), uids.end(), [&](Uid uid) {
        return worker(uid) != nullptr && at(uid).membership.record() &&
               record(uid).working().size() == uids.size() &&
               record(uid).members.size() == uids.size();
      });
    });
    pass(500);  // the master hears it
  }
  Uid add(int host) { return core().add_worker(share_on(host).name).value(); }
  void plan(const std::vector<Uid>& uids) {
    core().plan(uids);
    obey(master());
  }
  bool exclude() {
    const bool did = core().exclude_silent();
    obey(master());
    return did;
  }
  void look_for_end() {
    core().look_for_end();
    obey(master());
  }
  void new_master() {
    start_master();
    reach("a new master", [&] { return master().core.has_value(); });
  }

  void cut(int from, int to) { cut_.insert({from, to}); }
  void cut_both(int a, int b) {
    cut(a, b);
    cut(b, a);
  }
  void heal() { cut_.clear(); }
  void heal(int from, int to) { cut_.erase({from, to}); }
  // The connections between these hosts break.
  void break_between(int a, int b) {
    for (const int number : whole_connections()) {
      const Process* one = peer_of(number, kNone);
      const Process* other = peer_of(number, one->pid);
      if ((one->host == a && other->host == b) || (one->host == b && other->host == a)) {
        break_connection(number);
      }
    }
  }
  // The master hears nothing more of this host.
  void isolate_from_master(int host) {
    cut_both(0, host);
    break_between(0, host);
    reach("the host is silent", [&] {
      return !master().shares.contains(share_on(host).name) &&
             std::none_of(workers_.begin(), workers_.end(), [&](const Worker* w) {
               return w->alive && w->host == host && core().linked(w->uid);
             });
    });
  }
  void freeze(Process& process, bool frozen = true) { process.frozen = frozen; }
  void kill(Uid uid) { end_worker(at(uid)); }
  void kill_master() { end_master(master()); }
  void go_on(Uid uid) { progress(at(uid)); }

  // Begins to write one.
  void checkpoint(Uid uid) { write_checkpoint(at(uid)); }
  [[nodiscard]] bool wrote(std::int64_t round) const {
    return std::any_of(directory_.files.begin(), directory_.files.end(), [&](const auto& file) {
      return file.second.name.round == round && file.second.name.recovery >= 0;
    });
  }
  // The manager calls the share of this host gone, and nobody else has the state.
  void give_round_up(int host) {
    share_on(host).gone = true;
    core().share_gone(share_on(host).name);
    look_for_end();
  }
  // A worker of the new round, which founds it.
  Uid found_on(int host) {
    const Uid uid = add(host);
    plan({uid});
    reach("it founds", [&] { return worker_exists(uid) && at(uid).membership.record(); });
    return uid;
  }
};

}  // namespace rubato::member::hosts
