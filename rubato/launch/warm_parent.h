// A Python that has imported torch already, and forks workers from itself, so that they need
// not import it again (python/rubato/warm.py).
//
// A forked worker is an orphan at once, so it becomes our child (orphans.h): it is collected,
// signalled and killed like one that we have started. The parent has one thread when it forks.
// Workers that start before it is ready are started as usual.
//
// For the thread that starts processes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "rubato/launch/process.h"

namespace rubato::launch {

class WarmParent {
 public:
  WarmParent() = default;
  ~WarmParent();
  WarmParent(const WarmParent&) = delete;
  WarmParent& operator=(const WarmParent&) = delete;

  // Whether the command is a Python and a file with a program.
  [[nodiscard]] static bool can_fork(const std::vector<std::string>& command);

  // The first call starts the parent, for workers with this command and environment.
  void begin(const std::vector<std::string>& command, const Environment& environment, bool niced);
  // nullopt: start the worker as usual, because the parent is not ready or has gone.
  [[nodiscard]] std::optional<Process> fork_worker(const std::vector<std::string>& command,
                                                   const Environment& environment,
                                                   const SpawnOptions& options);
  [[nodiscard]] int pid() const { return process_ ? process_->pid : 0; }

 private:
  [[nodiscard]] bool is_ready();
  [[nodiscard]] bool ask(const std::string& request, int out, int err) const;
  [[nodiscard]] std::string answer(int patience_ms);
  void end();

  bool begun_ = false;
  bool ready_ = false;
  std::optional<Process> process_;
  wire::Fd socket_;
};

}  // namespace rubato::launch
