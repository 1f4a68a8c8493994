// The workers of a run that spans hosts: the master's side of its shares.
//
// A share is started on each host by a remote shell (ssh), which is told by standard input where
// the master listens and what the share's secret is. From then on shares and workers speak with the
// master over TCP, encrypted with keys that only they have (wire/job_key.h). RosterMaster has the
// rules: who is gone, and when a round ends. LiveRun decides how many workers there are.
//
// A host that is silent may come back. If it does not, and it is legal, its workers are excluded
// (roster_master.h).
//
// The roster is kept in memory: when the master dies, nobody can take the job over yet. Its shares
// then end after some minutes.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rubato/launch/console.h"
#include "rubato/launch/roster_master.h"
#include "rubato/launch/share_messages.h"
#include "rubato/launch/worker_host.h"
#include "rubato/wire/frame_server.h"

namespace rubato::launch {

struct HostPlace {
  std::string name;  // as the remote shell knows it
  int workers = 1;   // at most
  friend bool operator==(const HostPlace&, const HostPlace&) = default;
};
// "a:4,b:2": at most 4 workers on a, and 2 on b. Without a number: 1. An IPv6 address is in
// brackets.
[[nodiscard]] Result<std::vector<HostPlace>> parse_hosts(std::string_view text);

struct HostsSpec {
  std::vector<HostPlace> hosts;
  // A program and its first arguments. The host and the words of a command follow.
  std::vector<std::string> remote_shell{"ssh", "-o", "BatchMode=yes"};
  std::string program = "rubato";  // on each host
  std::string address{};           // of the master, for its hosts; empty: what leads to them
};
// A remote shell may give the words to a shell, so they must mean the same with and without one.
[[nodiscard]] Result<void> check_remote_program(const std::string& program);

class RosterInMemory : public RosterStore {
 public:
  [[nodiscard]] RosterVersion newest() const override { return newest_; }
  [[nodiscard]] bool create(std::int64_t number, const Roster& roster) override;

 private:
  RosterVersion newest_;
};

class Shares : public WorkerHost {
 public:
  struct Hooks {
    // The first hello of a worker. False: it is refused.
    std::function<bool(const wire::Hello&)> greeted;
    std::function<void(Uid, const wire::FromWorker&)> heard;
    std::function<void(const std::string&)> say;  // to people
  };

  Shares(wire::Poller& poller, HostsSpec spec, std::string job, Events events, Hooks hooks);
  // Ends the shares.
  ~Shares() override;

  // Starts the shares. Workers start when a share has answered.
  void open();

  void start(const WorkerStart& start) override;
  void signal(Uid uid, int signal) override;
  void turn() override;
  [[nodiscard]] bool hurries() const override { return false; }
  void collect_all() override {}

  // Of a Welcome only the peers are used: the rest is in the roster.
  void send(Uid uid, const wire::FromLauncher& message);
  // Which workers should train.
  void plan(const std::vector<Uid>& workers);
  // All workers of the round are killed now.
  void give_up();
  // True once, if the round ends because nobody has the state.
  [[nodiscard]] bool lost();
  // Says what has to be said now.
  void act();
  // Of these nothing can be expected now: their host is silent, or they have none yet.
  [[nodiscard]] std::vector<Uid> excused() const;
  // While the run ends, nobody waits for a silent host.
  void set_ending(bool ending) { ending_ = ending; }
  [[nodiscard]] std::string host_of(Uid uid) const;

 private:
  using Clock = std::chrono::steady_clock;

  struct RemoteShell {
    Process process;
    LineCutter out, err;
    bool ended = false;
    std::string last_line;
  };
  struct ShareOf {
    HostPlace place;
    std::string secret;
    std::string identity;
    RemoteShell shell;
    int connection = -1;
    bool ever = false;  // it has answered at least once
    Clock::time_point heard;
    Clock::time_point unlinked_since;
    bool silent = false;  // for so long that its workers may be excluded
  };
  struct Worker {
    WorkerStart start;
    ShareName share;
    int connection = -1;
    Clock::time_point heard;
    bool greeted = false;
    bool stop = false;
    int signal = 0;  // the last one
    std::vector<wire::Peer> peers;
    std::int64_t confirmed = 0;  // number of the last report or notice
    bool unconfirmed = false;    // a confirmation is due
  };

  [[nodiscard]] Result<void> listen();
  void start_share(ShareOf& share);
  void watch_shell(const std::string& name);
  void read_shell(const std::string& name, bool is_err);
  void shell_ended(const std::string& name);
  [[nodiscard]] std::optional<wire::LinkKey> find_key(std::string_view identity) const;

  void message(int key, const Json& json);
  void greet(int key, const Json& json);
  void greet_share(int key, ShareOf& share, const Json& json);
  void greet_worker(int key, Uid uid, const Json& json);
  void dropped(int key);
  void heard_share(ShareOf& share, int key, const FromShare& message);
  void heard_status(ShareOf& share, int key, const ShareStatus& status);
  void heard_worker(Uid uid, int key, const wire::FromWorker& message);
  void finished(Uid uid, ProcessEnd end);

  void start_pending();
  [[nodiscard]] bool begin_round(int round);
  [[nodiscard]] ShareOf* free_share();
  void perform(const RosterMaster::SayToWorker& action);
  void perform(const RosterMaster::SayToShare& action);
  void perform(const RosterMaster::CancelShare&) {}
  void tell_share(const ShareOf& share, const ToShare& message);
  void beat();
  void look_for_silence(Clock::time_point now);
  void exclude();
  void give_up_hosts();
  void fail_without_hosts();

  wire::Poller& poller_;
  HostsSpec spec_;
  std::string job_;
  std::string secret_;
  Events events_;
  Hooks hooks_;
  RosterInMemory store_;
  RosterMaster core_;
  wire::JobKey key_;  // of the present round
  std::map<ShareName, ShareOf> shares_;
  std::vector<ShareName> order_;  // as they were named
  std::map<Uid, Worker> workers_;
  std::vector<WorkerStart> pending_;  // no host yet
  std::map<int, Uid> worker_speakers_;
  std::map<int, ShareName> share_speakers_;
  wire::FrameServer server_;
  std::string port_;
  int round_ = 0;  // of the run
  bool told_lost_ = false;
  bool ending_ = false;
  Clock::time_point beat_at_;
};

}  // namespace rubato::launch
