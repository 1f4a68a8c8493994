// Starting processes and taking leave of them.
//
// A worker leads a process group of its own: Ctrl-C in the terminal reaches the launcher only, and
// what a worker forked (readers of data, which inherit its sockets) goes when it goes. It does not
// die with its launcher. Processes may be started by one thread at a time. Others may run
// meanwhile: between fork and exec a child calls only what is safe there.
//
// A job of another user: its master as a whole is started as that user (start_detached with a
// RunAs), not each worker by a master with more rights. So every file that a job's machinery opens
// (log, checkpoints, secrets) is opened with the rights of the user, and no link that the user
// plants leads anywhere the user could not go. Agents and masters are started in one way; an agent
// is its daemon's own user.
#pragma once

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
  wire::Fd ended;  // readable once the process has ended
  wire::Fd out;    // its standard output and standard error; both non-blocking
  wire::Fd err;
};

struct SpawnOptions {
  bool niced = false;         // starts at a lower priority, which it should undo itself
  std::string directory{};    // where it starts; empty: where we are
  bool close_others = false;  // it gets no descriptor beyond the standard ones
};
// The program is looked up in our PATH; that it cannot be executed is an error here, not an exit
// code. `shortage` says whether the machine had no process, descriptor or memory left for it: then
// the program is not to blame.
[[nodiscard]] Result<Process> spawn(const std::vector<std::string>& command,
                                    const Environment& environment,
                                    const SpawnOptions& options = {}, bool* shortage = nullptr);

// Collects a child that has ended, after killing what is left of its group; nullopt if it lives.
[[nodiscard]] std::optional<ProcessEnd> reap(const Process& process);

// To the process alone, except for SIGKILL, which goes to its whole group: programs fork readers of
// data that do not expect the polite signals, and treat the death of one as an error.
void send_signal(const Process& process, int signal);

// A user of this machine, with the groups it would have if it logged in.
struct RunAs {
  std::string name;
  uid_t uid = 0;
  gid_t gid = 0;
  std::vector<gid_t> groups;
  std::string home;
  std::string shell;
};
[[nodiscard]] Result<RunAs> look_up_user(const std::string& name);
// PATH, HOME, USER, LOGNAME and SHELL: nothing of ours.
[[nodiscard]] Environment clean_environment(const RunAs& user);
[[nodiscard]] Environment own_environment();

// As whom a job of this user is to be run by us; nullopt: as we are, which is also what no name
// means. Root may become anybody; whoever is not root runs jobs of their own alone.
[[nodiscard]] Result<std::optional<RunAs>> run_as(const std::string& user);

// The program that is running now, also if its file was moved, deleted or replaced since.
inline constexpr const char* kRunningProgram = "/proc/self/exe";

struct Detached {
  std::vector<std::string> command;
  Environment environment;
  // Root alone may name another. It gets the groups, the ids, the usual umask and no way to more
  // rights (PR_SET_NO_NEW_PRIVS), for itself and all that it starts.
  std::optional<RunAs> user{};
  // Where it starts, with its own rights; the first that it can enter. Empty: where we are.
  std::vector<std::string> directories{};
  std::string output{};  // file that standard output and error are appended to; empty: nowhere
  std::string image{};   // the file to execute; empty: the command's first word
  int cgroup = -1;       // the entrance of a cgroup that it should be in (cgroup.h), if it can
};
// A child that leads a session of its own and so survives us; no descriptor of ours reaches it. Its
// output file is opened with its own rights. Answers its pid; to be collected.
[[nodiscard]] Result<int> start_detached(const Detached& detached);
// To be called when it has ended. Does nothing if it was not started by this process.
void collect_child(int pid);
// Kills it if it lives, and waits for its end.
void end_child(int pid);

// Whether a process started by us could raise its priority again.
[[nodiscard]] bool may_undo_nice();

// Those with a device file of NVIDIA's driver.
[[nodiscard]] int gpus_of_this_machine();

// A TCP port that nobody listens on at this moment.
[[nodiscard]] Result<int> free_port();

}  // namespace rubato::launch
