// Starts and collects processes.
//
// A worker leads its own process group. So Ctrl-C in the terminal reaches only the launcher, and
// processes that a worker forked (data loaders, which inherit its sockets) are killed with it. A
// worker does not die with its launcher. Only one thread at a time may start processes. Other
// threads may run, because between fork and exec a child makes only calls that are safe there.
//
// For a job of another user, the whole master is started as that user (start_detached with a
// RunAs), not each worker by a master with more rights. So every file of a job (log, checkpoints,
// secrets) is opened with the rights of the user. A link that the user makes leads to nothing that
// the user could not open. Agents and masters are started in the same way. An agent runs as the
// daemon's user.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

#include "rubato/launch/process_end.h"
#include "rubato/wire/socket.h"

namespace rubato::launch {

using Environment = std::vector<std::string>;  // "NAME=value"

void set(Environment& environment, const std::string& name, const std::string& value);
void set_default(Environment& environment, const std::string& name, const std::string& value);

struct Process {
  int pid = 0;
  wire::Fd ended;  // readable when the process has ended
  wire::Fd out;    // its standard output and standard error; both non-blocking
  wire::Fd err;
};

// A user of this machine, with the groups of a login.
struct RunAs {
  std::string name;
  uid_t uid = 0;
  gid_t gid = 0;
  std::vector<gid_t> groups;
  std::string home;
  std::string shell;
};

struct SpawnOptions {
  bool niced = false;         // starts at a lower priority, which it should raise itself
  std::string directory{};    // where it starts; empty: in our directory
  bool close_others = false;  // it inherits only the standard descriptors
  bool dies_with_us = false;  // it is killed when this thread ends
  std::string input{};        // its standard input, of at most 4096 bytes
  // Only root may name another user. As for Detached, it never gets more rights.
  std::optional<RunAs> user{};
};
// The program is looked up in our PATH. If it cannot be executed, that is an error here, not an
// exit code. `shortage` says whether the machine had no process, descriptor or memory left: then
// the program is not to blame.
[[nodiscard]] Result<Process> spawn(const std::vector<std::string>& command,
                                    const Environment& environment,
                                    const SpawnOptions& options = {}, bool* shortage = nullptr);

// As spawn, for a process that somebody else makes for us. `make` gets the write ends of its
// output, and returns the pid of our new child, or 0.
[[nodiscard]] Result<Process> adopt(const std::function<int(int out, int err)>& make);

// Collects a child that has ended, after killing the rest of its group. nullopt if it lives.
[[nodiscard]] std::optional<ProcessEnd> reap(const Process& process);

// Sends a signal to the process alone, but SIGKILL to its whole group. Programs fork data loaders
// that do not expect SIGTERM, and treat the death of one as an error.
void send_signal(const Process& process, int signal);

[[nodiscard]] Result<RunAs> look_up_user(const std::string& name);
// PATH, HOME, USER, LOGNAME and SHELL. Nothing of our own environment.
[[nodiscard]] Environment clean_environment(const RunAs& user);
[[nodiscard]] Environment own_environment();

// The user as whom we run a job of `user`. nullopt: our own user, also if the name is empty. Root
// may run jobs of all users. Other users run only their own jobs.
[[nodiscard]] Result<std::optional<RunAs>> run_as(const std::string& user);

// The program that is running now, even if its file was moved, deleted or replaced since.
inline constexpr const char* kRunningProgram = "/proc/self/exe";

struct Detached {
  std::vector<std::string> command;
  Environment environment;
  // Only root may name another user. The process gets the user's groups and ids, the usual umask,
  // and can never get more rights (PR_SET_NO_NEW_PRIVS). The same holds for everything that it
  // starts.
  std::optional<RunAs> user{};
  // Where it starts, with its own rights: the first directory that it can enter. Empty: in our
  // directory.
  std::vector<std::string> directories{};
  std::string output{};  // standard output and error are appended to this file; empty: dropped
  std::string image{};   // the file to execute; empty: the command's first word
  int cgroup = -1;       // descriptor of cgroup.procs of its cgroup (node/cgroup.h), if it has one
};
// Starts a child in its own session, so that it survives us. It inherits no descriptors. Its output
// file is opened with its own rights. Returns its pid. The caller must collect it.
[[nodiscard]] Result<int> start_detached(const Detached& detached);
// Call it when the child has ended. Does nothing if this process did not start it.
void collect_child(int pid);
// Kills it if it lives, and waits until it has ended.
void end_child(int pid);

// Whether a process started by us could raise its priority again.
[[nodiscard]] bool may_undo_nice();

// GPUs that have a device file of NVIDIA's driver.
[[nodiscard]] int gpus_of_this_machine();

// A TCP port on which nobody listens at this moment.
[[nodiscard]] Result<int> free_port();

}  // namespace rubato::launch
