// The launcher of one job. LaunchState decides; this class owns sockets and the clock, and a
// WorkerHost the workers: on this machine, or on several hosts. A LauncherFace shows the run: a
// terminal (terminal_run.h), or the master that a node's agent manages (node/master.h).
//
// It has one thread, which must be the only one of the process (process.h). If the launcher dies,
// the workers continue to train and finish without it.
//
// A worker's slot is free when the worker and everything that it has started are gone.
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

#include "rubato/launch/launch_state.h"
#include "rubato/launch/live_run.h"
#include "rubato/launch/process.h"
#include "rubato/launch/roster_files.h"
#include "rubato/launch/run_control.h"
#include "rubato/launch/shares.h"
#include "rubato/launch/worker_host.h"
#include "rubato/wire/frame_server.h"
#include "rubato/wire/poller.h"

namespace rubato::launch {

struct ManagedShares {
  SharesLaunch launch;
  std::int64_t start = 0;                        // of the job
  std::string job;                               // in the identities of its processes
  std::shared_ptr<RosterFiles> roster;           // taken over already
  std::map<std::string, std::string> secrets{};  // NAME -> content
};

// What to launch. It does not depend on the face.
struct RunSpec {
  LaunchLimits limits;
  std::vector<Slot> slots;  // of a managed run
  bool live = true;         // false: an unmodified program, restarted at every change
  std::string name;
  std::string token;  // every worker shows it; empty: a random one is made
  std::vector<std::string> command;
  Environment environment;    // the workers' environment is derived from it
  std::string directory;      // where they start; empty: in our directory
  bool close_others = false;  // they inherit no descriptors except the standard ones
  bool warm = false;          // Python workers are forked from a parent (warm_parent.h)
  HostsSpec hosts{};          // without hosts: on this machine
  // Of a run whose workers are in shares that a cluster manager starts.
  std::optional<ManagedShares> shares{};
};

// Shows a run and answers requests about it. All functions are called on the launcher's thread.
class LauncherFace {
 public:
  virtual ~LauncherFace() = default;

  virtual void output(Uid uid, bool is_err, std::string_view line) = 0;
  virtual void say(const std::string& text) = 0;                       // to people
  virtual void log(const std::string& event, const Json& fields) = 0;  // to programs
  // The state has handled the message already.
  virtual void heard(Uid uid, const wire::FromWorker& message) = 0;
  // A message from a connection that is not a worker's.
  virtual void asked(int connection, const Json& message) = 0;
  virtual void hung_up(int /*connection*/) {}
  // A worker was started or collected.
  virtual void processes_changed() {}
  virtual void complete(Environment& /*environment*/, const StartWorker& /*start*/) const {}
  // Called in every turn of the loop, at least ten times a second.
  virtual void turn() = 0;
  // Whether something waits to be written, so that the next turn should come soon.
  [[nodiscard]] virtual bool hurries() const { return false; }
  // Whether turn() has nothing to do before something happens.
  [[nodiscard]] virtual bool quiet() const { return false; }
};

class Launcher {
 public:
  Launcher(RunSpec spec, RunSocket socket, LauncherFace& face);
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;
  ~Launcher();

  // Runs until the job is over.
  Outcome run();
  // A later launcher has taken the run over: run() has returned, and the job goes on elsewhere.
  [[nodiscard]] bool replaced() const { return shares_ != nullptr && shares_->replaced(); }

  // For the face. Valid from the first turn of run().
  [[nodiscard]] Time now() const;
  [[nodiscard]] LaunchState& state() { return *state_; }
  [[nodiscard]] const LaunchState& state() const { return *state_; }
  [[nodiscard]] const RunSpec& spec() const { return spec_; }
  // Counts processes that have ended as ended, even if the notice of their end has not been read
  // yet.
  void collect_all();
  [[nodiscard]] std::vector<WorkerRecord> workers() const;
  // For a managed run: the newest place, and how it was stopped. In shares, what was obeyed is in
  // the roster before anybody is told.
  [[nodiscard]] Result<void> place(const Place& place);
  void stop_managed(Generation generation, const std::string& why);
  // What an earlier launcher has obeyed.
  [[nodiscard]] std::optional<RosterRun> adopted_run() const;
  [[nodiscard]] std::vector<ShareView> shares() const;
  // The host of a worker, in a run that spans hosts.
  [[nodiscard]] std::string host_of(Uid uid) const { return shares_ ? shares_->host_of(uid) : ""; }
  void send(int connection, const Json& message);
  // Whether the other side has not read everything yet. False if the connection is gone.
  [[nodiscard]] bool unsent(int connection) const;
  void hang_up(int connection);
  // Serves connections but starts nothing more, so that the last messages are delivered.
  void serve(std::chrono::milliseconds longest);

 private:
  struct Worker {
    StartWorker start;
    ProcessName process;
    int connection = -1;  // its key; negative: none
  };

  void watch_signals();
  void keep_listening();
  void dropped(int key);
  void handle(int key, const Json& message);
  void greet(int key, const Json& message);

  void carry_out();
  void carry_out(const StartWorker& start);
  void carry_out(const SignalWorker& signal);
  void carry_out(const SendToWorker& send);
  void carry_out(const Tell& tell);
  [[nodiscard]] Environment environment_of(const StartWorker& start) const;
  [[nodiscard]] WorkerHost::Events host_events();
  void open_shares();
  void open_hosts(const std::function<void(const std::string&)>& say, Shares::Hooks hooks);
  void open_managed(const std::function<void(const std::string&)>& say, Shares::Hooks hooks);
  void set_shares(const std::vector<PlacedShare>& placed, const std::vector<ShareName>& ended);
  void begin();
  [[nodiscard]] std::chrono::milliseconds tick() const;
  void adopt();
  void keep_shares();
  [[nodiscard]] WorkerStart worker_start(const StartWorker& start) const;
  [[nodiscard]] RosterRun roster_run() const;
  [[nodiscard]] bool greeted(const wire::Hello& hello);
  void heard(Uid uid, const wire::FromWorker& message);
  void started(Uid uid, const ProcessName& process);
  void ending(Uid uid);
  void ended(Uid uid, ProcessEnd end);

  RunSpec spec_;
  RunSocket socket_;
  LauncherFace& face_;
  wire::Poller poller_;
  wire::Fd signals_;
  std::unique_ptr<LaunchState> state_;
  std::unique_ptr<WorkerHost> host_;
  Shares* shares_ = nullptr;    // the same, in a run that spans hosts
  LiveRun* live_ = nullptr;     // the state, if workers train live in such a run
  std::optional<Place> place_;  // the newest one, of a managed run in shares
  std::optional<Generation> stopped_;
  std::map<Uid, Worker> workers_;
  wire::FrameServer server_;
  std::map<int, Uid> speakers_;  // connections whose worker has sent a Hello
  Time listen_due_ = kStart;     // next check of the socket
  int port_ = 0;
  int port_of_round_ = 0;
  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
};

// "1 worker", "2 workers".
[[nodiscard]] std::string count_of(int number, const char* noun);
// The JSON text, also if a worker's message is not UTF-8.
[[nodiscard]] std::string line_of(const Json& json);

}  // namespace rubato::launch
