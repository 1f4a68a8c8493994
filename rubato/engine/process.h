// Starting worker processes and taking leave of them.
//
// A worker leads a process group of its own: Ctrl-C in the terminal reaches the launcher only, and
// what a worker forked (readers of data, which inherit its sockets) goes when it goes. It does not
// die with its launcher. Belongs to one thread, and that process must have no other: a child runs
// between fork and exec.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "rubato/engine/process_end.h"
#include "rubato/wire/socket.h"

namespace rubato {

using Environment = std::vector<std::string>;  // "NAME=value"

void set(Environment& environment, const std::string& name, const std::string& value);
void set_default(Environment& environment, const std::string& name, const std::string& value);

struct Process {
  int pid = 0;
  wire::Fd ended;  // readable once the process has ended
  wire::Fd out;    // its standard output and standard error; both non-blocking
  wire::Fd err;
};

// The program is looked up in our PATH; that it cannot be executed is an error here, not an exit
// code. With `niced` it starts at a lower priority, which it should undo itself.
[[nodiscard]] Result<Process> spawn(const std::vector<std::string>& command,
                                    const Environment& environment, bool niced);

// Collects a child that has ended, after killing what is left of its group; nullopt if it lives.
[[nodiscard]] std::optional<ProcessEnd> reap(const Process& process);

// To the process alone, except for SIGKILL, which goes to its whole group: programs fork readers of
// data that do not expect the polite signals, and treat the death of one as an error.
void send_signal(const Process& process, int signal);

// Whether a process started by us could raise its priority again.
[[nodiscard]] bool may_undo_nice();

// A TCP port that nobody listens on at this moment.
[[nodiscard]] Result<int> free_port();

}  // namespace rubato
