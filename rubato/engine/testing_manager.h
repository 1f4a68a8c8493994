// A cluster manager for fault tests, without clock, socket or process:
//
//   FakeCluster   the manager's own world: nodes, shares, jobs of others. It outlives the daemon.
//   Like
//                 a real manager, it never gives a GPU to two of its jobs.
//   FakeManager   a ClusterManager on it. It dies with the daemon; what it has sent may still
//   arrive.
//
// Requests and answers take their time. Answers get lost, are doubled and overtake each other. A
// request may be carried out though nobody hears of it. Shares are refused, wait, are preempted,
// end by their time limit or by themselves; nodes fall silent and come back; others take GPUs.
//
// Time passes in advance(). One seed is one life.
#pragma once

#include <algorithm>
#include <cstdint>
#include <fmt/format.h>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "rubato/base/random.h"
#include "rubato/engine/cluster_manager.h"

namespace rubato::engine {

struct ManagerFaults {
  double lost = 0;     // of the answers
  double doubled = 0;  // of the answers
  double unknown = 0;  // of the submissions: nobody knows; half of them are made
  double refused = 0;  // of the submissions
  Duration latest{};   // a request or an answer takes up to so long
};

class FakeCluster {
 public:
  using State = ManagedShare::State;
  struct Entry {
    ManagedShare share;
    int gpus = 1;
    bool foreign = false;
    Time ends = kNever;  // its time limit
  };
  struct Machine {
    std::string name;
    int gpus = 0;
    NodeState state = NodeState::up;  // unknown: it does not answer; what runs there goes on
  };

  FakeCluster(std::vector<Machine> machines, std::uint64_t seed)
      : machines_(std::move(machines)), random_(seed) {}

  ManagerFaults faults;
  std::vector<std::string> violations;
  std::vector<ShareSpec> specs;  // of all submissions
  int submissions = 0, refusals = 0, preemptions = 0, doubles = 0;

  [[nodiscard]] Time clock() const { return clock_; }
  [[nodiscard]] std::vector<Machine>& machines() { return machines_; }
  [[nodiscard]] const std::map<std::string, Entry>& entries() const { return entries_; }

  void advance(Time now) {
    while (!events_.empty() && events_.begin()->first.first <= now) {
      const auto event = events_.extract(events_.begin());
      clock_ = std::max(clock_, event.key().first);
      event.mapped()();
    }
    clock_ = std::max(clock_, now);
    schedule();
  }

  // --- shares ---

  // Whether the process of a share with this name runs: of the first one, if there are two.
  [[nodiscard]] bool runs(const ShareName& name) const {
    const Entry* entry = first(name);
    return entry != nullptr && lives(*entry);
  }
  // Its process ends by itself.
  void leave(const ShareName& name) {
    for (auto& [native, entry] : entries_) {
      if (entry.share.name == name && entry.share.state == State::running) end(native, "completed");
    }
  }
  // Somebody else ends a share that runs.
  bool preempt(std::string why) {
    const auto running = ours_in(State::running);
    if (running.empty()) return false;
    ++preemptions;
    end(running[random_.below(running.size())], std::move(why));
    return true;
  }
  [[nodiscard]] std::size_t alive() const {
    return static_cast<std::size_t>(
        std::count_if(entries_.begin(), entries_.end(), [](const auto& entry) {
          return !entry.second.foreign && entry.second.share.state != State::gone;
        }));
  }

  // --- others and nodes ---

  void add_foreign(std::size_t node, int gpus) {
    Entry& entry = entries_[next_native()];
    entry.share = {"job of somebody", "", machines_[node].name, State::waiting, ""};
    entry.gpus = gpus;
    entry.foreign = true;
  }
  void end_foreign() {
    std::erase_if(entries_, [](const auto& entry) { return entry.second.foreign; });
  }
  void silence(std::size_t node) {
    machines_[node].state = NodeState::unknown;
    for (auto& [native, entry] : entries_) {
      if (entry.share.node == machines_[node].name && entry.share.state == State::running)
        entry.share.state = State::lost;
    }
  }
  // The node answers again. Whatever the manager had given up there has been killed.
  void end_silence(std::size_t node) {
    machines_[node].state = NodeState::up;
    for (auto& [native, entry] : entries_) {
      if (entry.share.node == machines_[node].name && entry.share.state == State::lost)
        entry.share.state = State::gone;
    }
  }

 private:
  friend class FakeManager;

  // A process of a share that the manager has given up lives on.
  static bool lives(const Entry& entry) {
    return entry.share.state == State::running || entry.share.state == State::lost;
  }
  [[nodiscard]] const Entry* first(const ShareName& name) const {
    for (const auto& [native, entry] : entries_) {
      if (entry.share.name == name) return &entry;
    }
    return nullptr;
  }
  [[nodiscard]] std::vector<std::string> ours_in(State state) const {
    std::vector<std::string> found;
    for (const auto& [native, entry] : entries_) {
      if (!entry.foreign && entry.share.state == state) found.push_back(native);
    }
    return found;
  }
  std::string next_native() { return fmt::format("{:08}", ++native_); }
  bool chance(double part) { return part > 0 && random_.uniform() < part; }
  [[nodiscard]] Duration soon() {
    return Duration(static_cast<std::int64_t>(
        random_.uniform() * static_cast<double>(std::max(faults.latest, Duration(1)).count())));
  }
  void later(Duration by, std::function<void()> what) {
    events_.emplace(std::pair(clock_ + by, ++numbered_), std::move(what));
  }

  [[nodiscard]] Machine* machine(const std::string& name) {
    const auto found = std::find_if(machines_.begin(), machines_.end(),
                                    [&](const Machine& one) { return one.name == name; });
    return found == machines_.end() ? nullptr : &*found;
  }
  [[nodiscard]] int used(const std::string& node, bool foreign_only) const {
    int gpus = 0;
    for (const auto& [native, entry] : entries_) {
      const State state = entry.share.state;
      if (entry.share.node == node && state != State::gone && state != State::waiting &&
          (entry.foreign || !foreign_only))
        gpus += entry.gpus;
    }
    return gpus;
  }
  void schedule() {
    for (auto& [native, entry] : entries_) {
      if (entry.share.state == State::running && entry.ends <= clock_) end(native, "TIMEOUT");
      if (entry.share.state != State::waiting) continue;
      const Machine& there = *machine(entry.share.node);
      const bool room = used(there.name, false) + entry.gpus <= there.gpus;
      entry.share.why = room ? "" : "Resources";
      if (room && there.state == NodeState::up) entry.share.state = State::running;
    }
  }
  void end(const std::string& native, std::string why) {
    Entry& entry = entries_.at(native);
    if (entry.share.state == State::gone || entry.share.state == State::ending) return;
    const bool waited = entry.share.state == State::waiting;
    entry.share.state = waited ? State::gone : State::ending;
    entry.share.why = std::move(why);
    if (waited) return;
    later(soon(), [this, native] { entries_.at(native).share.state = State::gone; });
  }
  // It is carried out: a share of this name is made.
  void make(const ShareSpec& spec) {
    Entry& entry = entries_[next_native()];
    entry.share = {spec.name, fmt::format("{:08}", native_), spec.node, State::waiting, ""};
    entry.gpus = spec.gpus;
    if (chance(0.05)) entry.ends = clock_ + from_seconds(20 + 60 * random_.uniform());
  }

  std::vector<Machine> machines_;
  Random random_;
  Time clock_ = kStart;
  std::uint64_t native_ = 0, numbered_ = 0;
  std::int64_t listings_ = 0;
  std::map<std::pair<Time, std::uint64_t>, std::function<void()>> events_;
  std::map<std::string, Entry> entries_;  // by native id
  std::set<ShareName> asked_;
};

class FakeManager final : public ClusterManager {
 public:
  // With a clock, time passes in turn(), as for a real manager.
  explicit FakeManager(FakeCluster& cluster, std::function<Time()> clock = {})
      : cluster_(cluster), clock_(std::move(clock)) {}

  void submit(const ShareSpec& share) override {
    FakeCluster& c = cluster_;
    ++c.submissions;
    c.specs.push_back(share);
    if (!c.asked_.insert(share.name).second)
      c.violations.push_back(fmt::format("{} is asked for twice", share.name));
    if (c.chance(c.faults.refused)) {
      ++c.refusals;
      const bool of_user = c.chance(0.5);
      return answer(
          c.soon(),
          ShareRefused{share.name, of_user ? "QOSMaxGRESPerUser" : "the node is closed", of_user});
    }
    const bool unknown = c.chance(c.faults.unknown);
    const Duration made = c.soon();
    if (!unknown || c.chance(0.5)) {
      c.later(made, [&c, share] { c.make(share); });
      if (c.chance(c.faults.doubled)) {
        ++c.doubles;
        c.later(made + c.soon(), [&c, share] { c.make(share); });
      }
    }
    if (unknown)
      answer(made + c.soon(), ShareUnknown{share.name, "no answer"});
    else
      answer(made + c.soon(), ShareTaken{share.name, ""});
  }
  void cancel(const ShareName& share) override {
    FakeCluster& c = cluster_;
    if (c.chance(c.faults.lost)) return;
    c.later(c.soon(), [&c, share] {
      for (auto& [native, entry] : c.entries_) {
        if (entry.share.name == share && entry.share.state != FakeCluster::State::lost)
          c.end(native, "CANCELLED");
      }
    });
  }
  // What it says was true at some time after it began.
  std::int64_t list() override {
    if (listing_) return *listing_;
    FakeCluster& c = cluster_;
    listing_ = ++c.listings_;
    const std::int64_t number = *listing_;
    c.later(c.soon(), [&c, number, answers = answers_, mine = std::weak_ptr(answers_)] {
      Listing listing{number, {}, {}, {}};
      for (const auto& machine : c.machines_)
        listing.nodes.push_back({machine.name,
                                 machine.gpus,
                                 "gpu",
                                 machine.state,
                                 machine.state == NodeState::up ? "" : "not responding",
                                 c.used(machine.name, true),
                                 {}});
      for (const auto& [native, entry] : c.entries_) {
        if (entry.foreign) continue;
        ManagedShare share = entry.share;
        if (entry.ends != kNever) share.left = entry.ends - c.clock_;
        listing.shares.push_back(std::move(share));
      }
      // Those that ended long ago are no longer listed.
      for (auto at = c.entries_.begin(); at != c.entries_.end();) {
        const bool old = at->second.share.state == FakeCluster::State::gone && c.chance(0.5);
        at = old ? c.entries_.erase(at) : std::next(at);
      }
      c.later(c.soon(), [answers, listing = std::move(listing)] { answers->push_back(listing); });
    });
    return number;
  }
  void turn() override {
    if (clock_) cluster_.advance(clock_());
  }
  [[nodiscard]] std::vector<ManagerAnswer> take_answers() override {
    std::vector<ManagerAnswer> all = std::exchange(*answers_, {});
    // A listing whose answer was lost is given up after a while.
    for (const ManagerAnswer& one : all) {
      const auto* listing = std::get_if<Listing>(&one);
      if (listing != nullptr && listing_ == listing->number) listing_.reset();
    }
    return all;
  }

 private:
  void answer(Duration after, const ManagerAnswer& what) {
    FakeCluster& c = cluster_;
    const auto arrive = [answers = answers_, what] { answers->push_back(what); };
    if (!c.chance(c.faults.lost)) c.later(after, arrive);
    if (c.chance(c.faults.doubled)) c.later(after + c.soon() + c.soon(), arrive);
  }

  FakeCluster& cluster_;
  std::function<Time()> clock_;
  // Answers that come after its end are heard by nobody.
  std::shared_ptr<std::vector<ManagerAnswer>> answers_ =
      std::make_shared<std::vector<ManagerAnswer>>();
  std::optional<std::int64_t> listing_;
};

}  // namespace rubato::engine
