// A worker's connections to its launcher and to its peers.
//
// Links says hello to the launcher, sends it heartbeats and reports, and receives its plans. It
// connects to every peer.
//
// Each pair of workers has two connections, so that the news of a death never waits behind a
// gradient. One is for control messages (JSON) and stays here. The other one is for data and is
// handed to the code that moves gradients. Of two workers, the one that was welcomed later
// connects.
//
// If all workers of a job are on one machine, the end of a peer's process is a fact that the kernel
// reports through a process descriptor (pidfd). Such connections break only if a process ends.
//
// In a job that spans hosts (docs/many-hosts.md) the master alone says who is gone. Every
// connection between hosts is encrypted with the key of the round. Peers send each other beats, and
// whoever hears nothing for long closes the connection. The side that connected connects again,
// until the peer is gone. A newer connection replaces an older one. The same holds for the
// connection with the master. Two workers of one host use a unix socket in a directory of their
// user instead, without encryption: whoever could read these bytes could also read the memory of
// the workers.
//
// Belongs to the thread of its Poller.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "rubato/member/record.h"
#include "rubato/wire/frames.h"
#include "rubato/wire/job_key.h"
#include "rubato/wire/launch.h"
#include "rubato/wire/poller.h"

namespace rubato::member {

// What a launcher tells a worker through its environment.
struct Place {
  // Address, or "file:PATH" of a file that has it; empty: the worker was started by hand and trains
  // alone.
  std::string launcher;
  Uid uid = 1;
  std::string token;
  bool niced = false;  // runs at a low priority until it is a member
  // Only on the live cluster: how often the job has been started, and where its checkpoints are.
  std::int64_t start = 0;
  std::string checkpoint{};
  // Only in a job that spans hosts: the key of the round, and the numeric address of this host for
  // its peers. Without an address, it is the one that leads to the master.
  std::optional<wire::JobKey> key{};
  std::string address{};
  // A directory of this user alone, for connections inside the host; empty: there is none.
  std::string directory{};
  [[nodiscard]] bool spans_hosts() const { return key.has_value(); }
};
// RUBATO_LAUNCHER, RUBATO_WORKER, RUBATO_TOKEN, RUBATO_NICED, RUBATO_START, RUBATO_CHECKPOINT,
// RUBATO_KEY (a file), RUBATO_ADDRESS.
[[nodiscard]] Result<Place> place_from_environment();

// What must be equal in all workers of a job.
struct Identity {
  std::string build;
  Json schema;
};

class Links {
 public:
  struct Hooks {
    std::function<void(const wire::Welcome&)> welcome;
    std::function<void(const MembershipPlan&)> plan;
    std::function<void(const wire::RosterWord&)> roster;  // instead of both, across hosts
    // What to say to the master on this connection, across hosts.
    std::function<wire::WorkerHello(std::int64_t connection)> standing;
    std::function<void()> stop;
    std::function<void(double share)> throttle;
    std::function<void()> orphaned;  // the launcher is gone
    // Why a worker that connects does not fit the job, in one sentence; empty if it fits.
    std::function<std::string(const Identity& theirs)> difference;
    // Control messages can be sent. Across hosts also whenever a connection was made again.
    std::function<void(Uid)> connected;
    std::function<void(Uid, const Json&)> message;
    // A new data connection of this recovery. kFresh: the other worker is waiting to become a
    // member.
    std::function<void(Uid, std::int64_t recovery, wire::Link)> data;
    std::function<void(Uid)> lost;
    std::function<void(Uid)> dead;  // only on one machine
    std::function<void(const std::string&)> refused;
  };
  static constexpr std::int64_t kFresh = -1;

  Links(wire::Poller& poller, Place place, Identity identity, Hooks hooks);
  Links(const Links&) = delete;
  Links& operator=(const Links&) = delete;
  ~Links();

  // Listens and says hello to the launcher. Without a launcher, it welcomes itself.
  [[nodiscard]] Result<void> start();
  // Sends heartbeats, closes silent connections and makes broken ones again, each when it is due.
  // `applied` is the last step that was applied.
  void tick(std::chrono::steady_clock::time_point now, Step applied);

  // Across hosts: tells the master how this worker stands, if that has changed.
  void say_standing();

  // Connects to all peers of the welcome. dialled() is true when each has answered or ended.
  void dial(const std::vector<wire::Peer>& peers);
  // This peer is gone. Nothing more is heard from it.
  void forget(Uid uid);
  [[nodiscard]] bool dialled() const;

  // Tells all peers, also those that come later, that this worker has the state or will start the
  // job.
  void holds_state();
  // Whether a living peer has said so.
  [[nodiscard]] bool somebody_holds_state() const;

  void send(Uid peer, const Json& message);
  void broadcast(const Json& message);
  [[nodiscard]] std::vector<Uid> peers() const;
  [[nodiscard]] std::vector<Uid> linked_peers() const;  // to which messages can be sent now
  // Whether this worker makes the connections to this peer, because it came later.
  [[nodiscard]] bool dials(Uid peer) const;
  // Across hosts: the numeric address of a host.
  [[nodiscard]] std::string own_host() const;
  [[nodiscard]] std::string host_of(Uid peer) const;  // empty: not known
  // A data connection to this peer and what must be sent on it first. Closed if the peer is
  // unknown.
  struct Dialled {
    wire::Link link;
    std::string greeting;
  };
  [[nodiscard]] Dialled dial_data(Uid peer, std::int64_t recovery);

  void report(const Json& content) { tell_surely({wire::Report{content, next_number()}}); }
  void notice(const std::string& kind, const Json& content) {
    tell_surely({wire::Notice{kind, content, next_number()}});
  }
  [[nodiscard]] bool launched() const { return launcher_.open(); }
  // Waits until all messages to the launcher are sent; across hosts, until they have arrived.
  void flush_launcher();

 private:
  using Clock = std::chrono::steady_clock;

  struct Peer {
    std::string address;
    int pid = 0;
    bool dialled = false;   // by us
    bool answered = false;  // at any time
    bool linked = false;    // it has answered on this connection
    bool holds_state = false;
    wire::FrameStream control;
    wire::Fd process;
    bool local_failed = false;  // by the network from now on
    // As the side that connects counts its connections.
    std::int64_t newest = 0;
    std::int64_t newest_data = 0;
    Clock::time_point heard;
    Clock::time_point redial_at;
  };
  // A connection whose first message, which names the sender, has not arrived yet.
  struct Stranger {
    wire::Link link;
    std::string bytes;
    std::int64_t number = 0;
    bool local = false;  // it is on this host and belongs to this user
  };

  [[nodiscard]] bool spans() const { return place_.spans_hosts(); }
  [[nodiscard]] Result<void> listen();
  [[nodiscard]] Result<void> dial_launcher();
  void lost_launcher();
  void tell(const wire::FromWorker& message);
  // Across hosts, what was on its way when a connection broke is sent again.
  void tell_surely(const wire::FromWorker& message);
  [[nodiscard]] std::int64_t next_number() { return spans() ? ++told_ : 0; }
  void arrived(std::int64_t number);
  void await_confirmation();
  void hear_launcher();
  void hear_launcher(const wire::FromLauncher& message);
  void keep_launcher(Clock::time_point now);
  void keep_peers(Clock::time_point now);
  void listen_locally();
  [[nodiscard]] Result<wire::Link> connect(const Peer& peer) const;
  [[nodiscard]] std::optional<wire::Link> connect_locally(const Peer& peer) const;
  void dial(Uid uid);
  void accept_all();
  void accept_local();
  void take_stranger(wire::Link link, bool local);
  void drop_oldest_stranger();
  void hear_stranger(int fd);
  void introduced(wire::Link link, bool local, const Json& hello);
  void replace_control(Uid uid, wire::Link link, const Json& hello);
  void watch(Uid uid);
  void hear(Uid uid);
  void met(Uid uid, const Json& hello);
  void lost_control(Uid uid);
  void ended(Uid uid);
  [[nodiscard]] Json introduction(Uid to, const char* channel, std::int64_t recovery);

  wire::Poller& poller_;
  Place place_;
  Identity identity_;
  Hooks hooks_;
  wire::Fd listener_;
  wire::Fd local_listener_;
  std::string local_path_;
  std::string address_;
  bool holds_state_ = false;
  wire::FrameStream launcher_;
  std::map<Uid, Peer> peers_;
  std::set<Uid> gone_;
  std::map<int, Stranger> strangers_;
  std::int64_t strangers_seen_ = 0;
  Clock::time_point last_beat_;
  Clock::time_point last_peer_beat_;

  // Across hosts.
  std::int64_t connections_ = 0;                    // made by this worker, to anybody
  std::optional<wire::WorkerHello> said_standing_;  // on this connection with the master
  Clock::time_point master_heard_;
  Clock::time_point master_redial_at_;
  std::int64_t told_ = 0;  // reports and notices so far
  std::deque<std::pair<std::int64_t, Json>> unconfirmed_;
};

}  // namespace rubato::member
