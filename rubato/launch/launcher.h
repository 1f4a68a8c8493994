// The launcher of one job on this machine. A thin shell around LaunchState, which decides; this
// class owns processes, sockets and the clock. A LauncherFace shows the run: a terminal
// (terminal_run.h), or the master that a node agent manages (node/master.h).
//
// It has one thread, which must be the only one of the process (process.h). If the launcher dies,
// the workers go on training and finish alone.
//
// A worker has ended when all that it has started is gone, too (orphans.h); only then its slot is
// free. What is left when a worker ends is killed, unless its environment or its process group says
// that it belongs to another worker, which lives.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "rubato/launch/console.h"
#include "rubato/launch/launch_state.h"
#include "rubato/launch/orphans.h"
#include "rubato/launch/process.h"
#include "rubato/launch/run_control.h"
#include "rubato/wire/frame_server.h"
#include "rubato/wire/poller.h"

namespace rubato::launch {

// What to launch, whoever watches it.
struct RunSpec {
  LaunchLimits limits;
  std::vector<Slot> slots;  // of a managed run
  bool live = true;         // false: an unmodified program, started again at every change
  std::string name;
  std::string token;  // shown by every worker; empty: one is made up
  std::vector<std::string> command;
  Environment environment;    // the workers' own is made from it
  std::string directory;      // where they start; empty: where we are
  bool close_others = false;  // they get no descriptor of ours
};

// Shows a run, and answers requests about it. Everything is called on the launcher's thread.
class LauncherFace {
 public:
  virtual ~LauncherFace() = default;

  virtual void output(Uid uid, bool is_err, std::string_view line) = 0;
  virtual void say(const std::string& text) = 0;                       // to people
  virtual void log(const std::string& event, const Json& fields) = 0;  // to programs
  // The state has heard it already.
  virtual void heard(Uid uid, const wire::FromWorker& message) = 0;
  // From a connection that is no worker's.
  virtual void asked(int connection, const Json& message) = 0;
  virtual void hung_up(int /*connection*/) {}
  // A worker has been started or collected.
  virtual void processes_changed() {}
  virtual void complete(Environment& /*environment*/, const StartWorker& /*start*/) const {}
  // Once in every turn of the loop, at least ten times a second.
  virtual void turn() = 0;
  // Something waits to be written: the next turn should come soon.
  [[nodiscard]] virtual bool hurries() const { return false; }
};

class Launcher {
 public:
  Launcher(RunSpec plan, RunSocket socket, LauncherFace& face);
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;
  ~Launcher();

  // Until the job is over.
  Outcome run();

  // For the face, from the first turn of run() on.
  [[nodiscard]] Time now() const;
  [[nodiscard]] LaunchState& state() { return *state_; }
  [[nodiscard]] const LaunchState& state() const { return *state_; }
  [[nodiscard]] const RunSpec& plan() const { return plan_; }
  // A process that has ended counts as ended, even if its news is still waiting.
  void collect_all();
  [[nodiscard]] std::vector<WorkerRecord> workers() const;
  void send(int connection, const Json& message);
  // Whether the other side has not read all yet; false if it is gone.
  [[nodiscard]] bool unsent(int connection) const;
  void hang_up(int connection);
  // Serves connections but starts nothing more: for last words.
  void serve(std::chrono::milliseconds longest);

 private:
  struct WorkerProcess {
    Process process;
    Slot slot;
    std::string mark;  // the variable of its environment that no other worker's has
    long long start_time = 0;
    std::optional<ProcessEnd> end;  // itself; what it has started may live
    LineCutter out, err;
    int connection = -1;  // 0 and more: its key
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
  [[nodiscard]] Environment environment_of(const StartWorker& start, bool niced) const;
  void watch(Uid uid, const WorkerProcess& worker);
  void read_output(Uid uid, bool is_err, bool to_the_end);
  [[nodiscard]] bool take_leave(Uid uid, WorkerProcess& worker);
  void collect(Uid uid);
  void collect_ended();
  [[nodiscard]] bool nothing_is_left() const;
  [[nodiscard]] bool someone_lingers() const;

  RunSpec plan_;
  RunSocket socket_;
  LauncherFace& face_;
  bool may_nice_;
  wire::Poller poller_;
  wire::Fd signals_;
  std::unique_ptr<LaunchState> state_;
  Orphans orphans_;
  std::map<Uid, WorkerProcess> workers_;
  wire::FrameServer server_;
  std::map<int, Uid> speakers_;  // connections whose worker has said Hello
  Time listen_due_ = kStart;     // to be looked at
  int port_ = 0;
  int port_of_round_ = 0;
  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
};

// "1 worker", "2 workers".
[[nodiscard]] std::string count_of(int number, const char* noun);
// Any JSON text, also where a worker's message is not UTF-8.
[[nodiscard]] std::string line_of(const Json& json);

}  // namespace rubato::launch
