// A worker's connections to its launcher and to its peers.
//
// Links says hello to the launcher, sends it heartbeats and reports, and receives its plans. It
// connects to every peer and watches the peer's process. The kernel reports the end of any process
// of this machine through a process descriptor (pidfd), so the launcher is not needed for that.
//
// Each pair of workers has two connections, so that the news of a death never waits behind a
// gradient. One is for control messages (JSON) and stays here. The other one is for data and is
// handed to the code that moves gradients. Of two workers, the one that was welcomed later
// connects.
//
// All workers of a job must be on one machine. There the end of a process is a fact. Across
// machines, the workers would have to agree on it.
//
// Belongs to the thread of its Poller.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "rubato/member/record.h"
#include "rubato/wire/frames.h"
#include "rubato/wire/launch.h"
#include "rubato/wire/poller.h"

namespace rubato::member {

// What a launcher tells a worker through its environment.
struct Place {
  std::string launcher;  // address; empty: the worker was started by hand and trains alone
  Uid uid = 1;
  std::string token;
  bool niced = false;  // runs at a low priority until it is a member
  // Only on the live cluster: how often the job has been started, and where its checkpoints are.
  std::int64_t start = 0;
  std::string checkpoint{};
};
// RUBATO_LAUNCHER, RUBATO_WORKER, RUBATO_TOKEN, RUBATO_NICED, RUBATO_START, RUBATO_CHECKPOINT.
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
    std::function<void()> stop;
    std::function<void()> orphaned;  // the launcher is gone
    // Why a worker that connects does not fit the job, in one sentence; empty if it fits.
    std::function<std::string(const Identity& theirs)> difference;
    std::function<void(Uid)> connected;  // control messages can be sent
    std::function<void(Uid, const Json&)> message;
    // A new data connection of this recovery. kFresh: the other worker is waiting to become a
    // member.
    std::function<void(Uid, std::int64_t recovery, wire::Link)> data;
    std::function<void(Uid)> lost;
    std::function<void(Uid)> dead;
    std::function<void(const std::string&)> refused;
  };
  static constexpr std::int64_t kFresh = -1;

  Links(wire::Poller& poller, Place place, Identity identity, Hooks hooks);

  // Listens and says hello to the launcher. Without a launcher, it welcomes itself.
  [[nodiscard]] Result<void> start();
  // Sends a heartbeat if one is due. `applied` is the last step that was applied.
  void tick(std::chrono::steady_clock::time_point now, Step applied);

  // Connects to all peers of the welcome. dialled() is true when each has answered or ended.
  void dial(const std::vector<wire::Peer>& peers);
  [[nodiscard]] bool dialled() const;

  // Tells all peers, also those that come later, that this worker has the state or will start the
  // job.
  void holds_state();
  // Whether a living peer has said so.
  [[nodiscard]] bool somebody_holds_state() const;

  void send(Uid peer, const Json& message);
  void broadcast(const Json& message);
  [[nodiscard]] std::vector<Uid> peers() const;
  // Whether this worker makes the connections to this peer, because it came later.
  [[nodiscard]] bool dials(Uid peer) const;
  // A data connection to this peer and what must be sent on it first. Closed if the peer is
  // unknown.
  struct Dialled {
    wire::Link link;
    std::string greeting;
  };
  [[nodiscard]] Dialled dial_data(Uid peer, std::int64_t recovery);

  void report(const Json& content) { tell({wire::Report{content}}); }
  void notice(const std::string& kind, const Json& content) { tell({wire::Notice{kind, content}}); }
  [[nodiscard]] bool launched() const { return launcher_.open(); }
  // Waits until all messages to the launcher are sent.
  void flush_launcher();

 private:
  struct Peer {
    std::string address;
    int pid = 0;
    bool dialled = false;  // by us
    bool answered = false;
    bool holds_state = false;
    wire::FrameStream control;
    wire::Fd process;
  };
  // A connection whose first message, which names the sender, has not arrived yet.
  struct Stranger {
    wire::Link link;
    std::string bytes;
  };

  void tell(const wire::FromWorker& message);
  void hear_launcher();
  void accept_all();
  void hear_stranger(int fd);
  void introduced(wire::Link link, const Json& hello);
  void watch(Uid uid);
  void hear(Uid uid);
  void met(Uid uid, const Json& hello);
  void ended(Uid uid);
  [[nodiscard]] Json introduction(const char* channel, std::int64_t recovery) const;

  wire::Poller& poller_;
  Place place_;
  Identity identity_;
  Hooks hooks_;
  wire::Fd listener_;
  std::string address_;
  bool holds_state_ = false;
  wire::FrameStream launcher_;
  std::map<Uid, Peer> peers_;
  std::map<int, Stranger> strangers_;
  std::chrono::steady_clock::time_point last_beat_;
};

}  // namespace rubato::member
