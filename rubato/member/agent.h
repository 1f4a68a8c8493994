// The job's side of the protocol, without torch: a worker's links to its launcher and to its peers.
//
// It joins (says hello, connects to everybody), sends heartbeats, hears plans and reports, and
// watches its peers: the end of a peer's process is seen by a process descriptor, which the kernel
// signals for any process of this machine, so the launcher's life does not matter for it.
//
// Each pair of workers has a control connection (JSON messages, here) and a data connection (given
// away to whoever moves gradients), so that a death notice never waits behind a gradient. Of two
// workers the one that was welcomed later dials.
//
// Deviates from the protocol's idea of a rendezvous by majority: peers must be on one machine,
// where death is a fact and not an opinion. Belongs to one thread, that of its Poller.
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

// Where a worker stands; from the environment that its launcher made.
struct Place {
  std::string launcher;  // address; empty = nobody launched it: it trains alone
  Uid uid = 1;
  std::string token;
  bool niced = false;  // until it is a member
  // Of a job of the live cluster: how often it has been started, and where its checkpoints belong.
  std::int64_t start = 0;
  std::string checkpoint{};
};
// RUBATO_LAUNCHER, RUBATO_WORKER, RUBATO_TOKEN, RUBATO_NICED, RUBATO_START, RUBATO_CHECKPOINT.
[[nodiscard]] Result<Place> place_from_environment();

// Workers of different builds could disagree about everything else.
struct Identity {
  std::string build;
  Json schema;
};

class Agent {
 public:
  struct Hooks {
    std::function<void(const wire::Welcome&)> welcome;
    std::function<void(const Plan&)> plan;
    std::function<void()> stop;
    std::function<void()> orphaned;  // the launcher is gone
    // Why a worker that dials us does not fit the job, in one sentence; empty if it fits.
    std::function<std::string(const Identity& theirs)> difference;
    std::function<void(Uid)> connected;  // control messages can flow
    std::function<void(Uid, const Json&)> message;
    // A data connection made for this recovery (kFresh: by a worker that waits to be taken in).
    std::function<void(Uid, std::int64_t recovery, wire::Fd)> data;
    std::function<void(Uid)> lost;
    std::function<void(Uid)> dead;
    std::function<void(const std::string&)> refused;
  };
  static constexpr std::int64_t kFresh = -1;

  Agent(wire::Poller& poller, Place place, Identity identity, Hooks hooks);

  // Listens and says hello to the launcher. Alone, it welcomes itself.
  [[nodiscard]] Result<void> start();
  // Once in a while: heartbeats. The step is the last one applied.
  void tick(std::chrono::steady_clock::time_point now, Step applied);

  // To everybody in the welcome; dialled() is true when each has answered or ended.
  void dial(const std::vector<wire::Peer>& peers);
  [[nodiscard]] bool dialled() const;

  // Peers are told from now on that this worker holds (or, if it starts the job, will hold) the
  // state.
  void holds_state();
  // Living peers that said so.
  [[nodiscard]] bool somebody_holds_state() const;

  void send(Uid peer, const Json& message);
  void broadcast(const Json& message);
  [[nodiscard]] std::vector<Uid> peers() const;
  // A new data connection: for us to make if we came later.
  [[nodiscard]] bool dials(Uid peer) const;
  [[nodiscard]] wire::Fd dial_data(Uid peer, std::int64_t recovery);

  void report(const Json& content) { tell({wire::Report{content}}); }
  void notice(const std::string& kind, const Json& content) { tell({wire::Notice{kind, content}}); }
  [[nodiscard]] bool launched() const { return launcher_.open(); }
  // Waits until the launcher has all that was said.
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
  // A connection of which nothing is known yet: its first message says who it is.
  struct Stranger {
    wire::Fd fd;
    std::string bytes;
  };

  void tell(const wire::FromWorker& message);
  void hear_launcher();
  void accept_all();
  void hear_stranger(int fd);
  void introduced(wire::Fd fd, const Json& hello);
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
