// A run in a terminal (`rubato run`). It prints the output of the workers, notices and progress,
// and a summary at the end. Requests come over the run's socket (run_control.h).
#pragma once

#include <cstdio>
#include <memory>
#include <string>

#include "rubato/launch/console.h"
#include "rubato/launch/launcher.h"

namespace rubato::launch {

struct TerminalOptions {
  RunSpec spec;
  std::string directory;  // of the socket
  std::string log;        // file for JSON lines; empty: none
  bool json = false;      // prints only the summary, as JSON, to standard output
  bool quiet = false;     // no progress and no notices
};

class TerminalRun : private LauncherFace {
 public:
  // Listens and opens the log. Starts no worker.
  [[nodiscard]] static Result<std::unique_ptr<TerminalRun>> open(TerminalOptions options);
  ~TerminalRun() override;

  // Runs until the job is over. Returns the exit code of the run.
  [[nodiscard]] int run();

 private:
  struct Progress {
    Json report = Json::object();  // the newest
    std::int64_t step = 0;
    std::int64_t reported =
        0;  // the last step, in the round that began with this many fresh starts
    int fresh_starts = 0;
    bool shown = true;
  };

  TerminalRun(TerminalOptions options, RunSocket socket, std::FILE* log);

  void output(Uid uid, bool is_err, std::string_view line) override;
  void say(const std::string& text) override;
  void log(const std::string& event, const Json& fields) override;
  void heard(Uid uid, const wire::FromWorker& message) override;
  void asked(int connection, const Json& message) override;
  void turn() override;
  [[nodiscard]] bool hurries() const override { return console_.unwritten(); }

  void handle_report(Uid uid, const Json& content);
  [[nodiscard]] Json answer(const Json& request);
  [[nodiscard]] Result<Json> resize(const Json& request);
  [[nodiscard]] Result<Json> kill_one(const Json& request);
  [[nodiscard]] Json info() const;

  void show_notice(Uid uid, const wire::Notice& notice);
  void show_progress();
  [[nodiscard]] std::string progress_text() const;
  void print_summary(const Outcome& outcome);

  TerminalOptions options_;
  std::FILE* log_;
  Progress progress_;
  Console console_;
  Time progress_due_;
  Launcher launcher_;  // last member: it uses the members above
};

}  // namespace rubato::launch
