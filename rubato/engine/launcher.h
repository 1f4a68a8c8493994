// The launcher of one job on this machine: the thin shell around LaunchState that owns processes,
// sockets, the clock and the terminal. It decides nothing.
//
// One thread, which must be the only one (see process.h). Its death does not end the workers: they
// go on training and finish alone.
#pragma once

#include <chrono>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "rubato/engine/console.h"
#include "rubato/engine/launch_state.h"
#include "rubato/engine/process.h"
#include "rubato/engine/run_control.h"
#include "rubato/wire/frames.h"
#include "rubato/wire/poller.h"

namespace rubato {

struct LauncherOptions {
  LaunchLimits limits;
  bool live = true;  // false: an unmodified program, started again at every change
  std::string name;
  std::vector<std::string> command;
  Environment environment;  // the workers' own is made from it
  std::string directory;    // of the socket
  std::string log;          // a file for JSON lines; empty: none
  bool json = false;        // the summary as JSON on standard output, with nothing else there
  bool quiet = false;       // no progress and no notices
};

class Launcher {
 public:
  // Listens and opens its log; starts nothing.
  [[nodiscard]] static Result<std::unique_ptr<Launcher>> open(LauncherOptions options);
  ~Launcher();

  // Until the job is over; the exit code for the whole run.
  [[nodiscard]] int run();

 private:
  struct WorkerProcess {
    Process process;
    LineCutter out, err;
    int connection = -1;  // 0 and more: its key
  };
  struct Connection {
    wire::FrameStream stream;
    Uid worker = 0;  // 0: has not said Hello
  };
  struct Progress {
    Json report = Json::object();  // the newest
    std::int64_t step = 0;
    double reported = 0;  // the last step, in the round that began with this many fresh starts
    int fresh_starts = 0;
    bool shown = true;
  };

  Launcher(LauncherOptions options, RunSocket socket, std::FILE* log);

  [[nodiscard]] Time now() const;
  void watch_signals();
  void accept_all();
  void read_connection(int key);
  void drop_connection(int key);
  void handle(int key, const Json& message);
  void greet(int key, const Json& message);
  void handle_report(Uid uid, const Json& content);
  void handle_worker(Uid uid, const wire::FromWorker& message);
  [[nodiscard]] Json answer(const Json& request);
  [[nodiscard]] Result<Json> resize(const Json& request);
  [[nodiscard]] Result<Json> kill_one(const Json& request);
  [[nodiscard]] Json info() const;

  void carry_out();
  void carry_out(const StartWorker& start);
  void carry_out(const SignalWorker& signal);
  void carry_out(const SendToWorker& send);
  void carry_out(const Tell& tell);
  [[nodiscard]] Environment environment_of(const StartWorker& start, bool niced);
  void read_output(Uid uid, bool is_err, bool to_the_end);
  void collect(Uid uid);
  void collect_all();

  void say(const std::string& text);
  void show_notice(Uid uid, const wire::Notice& notice);
  void show_progress();
  [[nodiscard]] std::string progress_text() const;
  void log(const std::string& event, const Json& fields);
  void print_summary();

  LauncherOptions options_;
  RunSocket socket_;
  std::FILE* log_;
  std::string token_;
  bool may_nice_;
  wire::Poller poller_;
  wire::Fd signals_;
  std::unique_ptr<LaunchState> state_;
  std::map<Uid, WorkerProcess> workers_;
  std::map<int, Connection> connections_;
  int next_connection_ = 0;
  int port_ = 0;
  int port_of_round_ = 0;
  Progress progress_;
  Console console_;
  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  Time progress_due_;
};

}  // namespace rubato
