// For tests: processes on hosts, and connections between them that break, lose their last bytes and
// are made again. A seed decides what happens next, so a run can be repeated.
//
// A connection has two lanes in each direction (control and data); each lane keeps its order. When
// a connection breaks, each lane loses its end, and each side hears of it at a moment of its own. A
// host can be cut off from another in one direction only. A frozen process does nothing, but its
// connections stay.
#pragma once

#include <algorithm>
#include <array>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "rubato/base/random.h"

namespace rubato::member::hosts {

struct Violation : std::runtime_error {
  using std::runtime_error::runtime_error;
};
inline void require(bool holds, const std::string& what) {
  if (!holds) throw Violation(what);
}

using Pid = int;
constexpr int kNone = -1;

struct Process {
  Process(Pid number, int on) : pid(number), host(on) {}
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  virtual ~Process() = default;

  Pid pid;
  int host;
  bool alive = true;
  bool frozen = false;
};

enum class LaneKind : std::uint8_t { control, data };

class Network {
 public:
  explicit Network(std::uint64_t seed) : random_(seed) {}
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;
  virtual ~Network() = default;

 protected:
  using Event = std::function<void()>;
  struct Lane {
    int connection = kNone;  // kNone: a fact that the process learns by itself
    int end = 0;             // of the connection: who reads
    Pid to = 0;
    int from_host = 0;
    double slow = 0;
    std::deque<Event> queue{};
    bool listed = false;
  };
  struct Connection {
    std::array<Pid, 2> ends{};  // 0 dialled
    std::array<bool, 2> open{true, true};
    bool broken = false;
    std::array<std::array<int, 2>, 2> lanes{};  // by reader and kind
  };

  // Called when a side of a connection learns that it broke.
  virtual void on_lost(Process& process, int connection) = 0;
  // Called after each event of a process.
  virtual void on_event(Process& process) = 0;

  template <class Kind, class... Arguments>
  Kind& make(int host, Arguments&&... arguments) {
    const Pid pid = static_cast<Pid>(processes_.size());
    auto made = std::make_unique<Kind>(pid, host, std::forward<Arguments>(arguments)...);
    Kind& kept = *made;
    processes_.push_back(std::move(made));
    return kept;
  }

  // --- events ---

  // Something that a process learns or does by itself, at any time from now on.
  void fact(Pid to, Event event, double slow = 0) {
    lanes_.push_back({kNone, 0, to, 0, slow, {}, false});
    push(static_cast<int>(lanes_.size()) - 1, std::move(event));
  }
  void send(int connection, const Process& from, LaneKind kind, Event event) {
    Connection& c = connections_[static_cast<std::size_t>(connection)];
    const int reader = c.ends[0] == from.pid ? 1 : 0;
    if (c.broken) return;
    push(c.lanes[static_cast<std::size_t>(reader)][static_cast<std::size_t>(kind)],
         std::move(event));
  }

  // One event, chosen at random. False: nothing can happen.
  bool happen() {
    if (busy_.empty()) return false;
    const std::size_t place = random_.below(busy_.size());
    const auto index = static_cast<std::size_t>(busy_[place]);
    Process& process = *processes_[static_cast<std::size_t>(lanes_[index].to)];
    if (!process.alive || !readable(lanes_[index])) {
      lanes_[index].queue.clear();
    } else if (process.frozen || !passes(lanes_[index], process) ||
               random_.uniform() < lanes_[index].slow * patience_) {
      return true;
    }
    Event event;
    if (!lanes_[index].queue.empty()) {
      event = std::move(lanes_[index].queue.front());
      lanes_[index].queue.pop_front();
    }
    if (lanes_[index].queue.empty()) {
      lanes_[index].listed = false;
      busy_[place] = busy_.back();
      busy_.pop_back();
    }
    if (!event) return true;
    event();
    if (process.alive) on_event(process);
    return true;
  }

  // --- connections ---

  int connect(Process& from, Process& to) {
    const int number = static_cast<int>(connections_.size());
    Connection connection;
    connection.ends = {from.pid, to.pid};
    for (int reader = 0; reader < 2; ++reader) {
      const Process& source = reader == 0 ? to : from;
      for (int kind = 0; kind < 2; ++kind) {
        lanes_.push_back({number,
                          reader,
                          connection.ends[static_cast<std::size_t>(reader)],
                          source.host,
                          random_slowness(),
                          {},
                          false});
        connection.lanes[static_cast<std::size_t>(reader)][static_cast<std::size_t>(kind)] =
            static_cast<int>(lanes_.size()) - 1;
      }
    }
    connections_.push_back(connection);
    by_process_[from.pid].push_back(number);
    by_process_[to.pid].push_back(number);
    return number;
  }
  bool reachable(const Process& a, const Process& b) const {
    return !cut_.contains({a.host, b.host}) && !cut_.contains({b.host, a.host});
  }
  // Each side loses what it has not read of the other's last bytes, and hears of it later.
  void break_connection(int number) {
    Connection& c = connections_[static_cast<std::size_t>(number)];
    if (c.broken) return;
    c.broken = true;
    for (std::size_t reader = 0; reader < 2; ++reader) {
      for (const int lane : c.lanes[reader]) {
        auto& queue = lanes_[static_cast<std::size_t>(lane)].queue;
        if (!queue.empty()) queue.resize(random_.below(queue.size() + 1));
      }
      if (!c.open[reader]) continue;
      const Pid pid = c.ends[reader];
      fact(
          pid,
          [this, number, pid] {
            if (close_end(number, pid)) on_lost(*processes_[static_cast<std::size_t>(pid)], number);
          },
          random_slowness());
    }
  }
  // This side reads no more of it. False: it was closed before.
  bool close_end(int number, Pid pid) {
    Connection& c = connections_[static_cast<std::size_t>(number)];
    const std::size_t end = c.ends[0] == pid ? 0 : 1;
    return std::exchange(c.open[end], false);
  }
  Process* peer_of(int number, Pid pid) const {
    const Connection& c = connections_[static_cast<std::size_t>(number)];
    return processes_[static_cast<std::size_t>(c.ends[c.ends[0] == pid ? 1 : 0])].get();
  }
  void end_process(Process& process) {
    process.alive = false;
    for (const int number : by_process_[process.pid]) {
      close_end(number, process.pid);
      break_connection(number);
    }
  }
  // A side is frozen or cut off.
  bool stalls(int number) const {
    const Connection& c = connections_[static_cast<std::size_t>(number)];
    const Process& a = *processes_[static_cast<std::size_t>(c.ends[0])];
    const Process& b = *processes_[static_cast<std::size_t>(c.ends[1])];
    return a.frozen || b.frozen || !reachable(a, b);
  }
  std::vector<int> whole_connections() const {
    std::vector<int> numbers;
    for (std::size_t i = 0; i < connections_.size(); ++i) {
      if (!connections_[i].broken) numbers.push_back(static_cast<int>(i));
    }
    return numbers;
  }

  double random_slowness() {
    constexpr double kSlow[] = {0.5, 0.9, 0.98};
    return random_.uniform() < slowness_ ? kSlow[random_.below(3)] : 0;
  }

  Random random_;
  double slowness_ = 0;
  double patience_ = 1;  // 0: nothing is slow any more
  std::vector<std::unique_ptr<Process>> processes_;
  std::set<std::pair<int, int>> cut_;  // from host, to host

 private:
  void push(int lane, Event event) {
    Lane& l = lanes_[static_cast<std::size_t>(lane)];
    l.queue.push_back(std::move(event));
    if (!std::exchange(l.listed, true)) busy_.push_back(lane);
  }
  bool readable(const Lane& lane) const {
    return lane.connection == kNone || connections_[static_cast<std::size_t>(lane.connection)]
                                           .open[static_cast<std::size_t>(lane.end)];
  }
  bool passes(const Lane& lane, const Process& reader) const {
    return lane.connection == kNone || !cut_.contains({lane.from_host, reader.host});
  }

  std::deque<Lane> lanes_;
  std::vector<int> busy_;
  std::vector<Connection> connections_;
  std::map<Pid, std::vector<int>> by_process_;
};

}  // namespace rubato::member::hosts
