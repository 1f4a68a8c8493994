// The processes of this machine: who started whom, and with which environment.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "rubato/launch/master_messages.h"

namespace rubato::launch {

struct ProcessEntry {
  ProcessName name;
  int parent = 0;
  bool ended = false;  // and waits to be collected
};

// A file of /proc/PID. Empty if the process is gone or not ours to look at; nullopt if it could not
// be looked at, for want of descriptors or memory.
[[nodiscard]] std::optional<std::string> proc_file(int pid, const char* name);

// nullopt if some could not be looked at, for want of descriptors or memory. A process that lives
// all the while is in it.
[[nodiscard]] std::optional<std::vector<ProcessEntry>> all_processes();

// The variables it was started with, "NAME=value"; empty if it is gone or not ours to look at;
// nullopt if it could not be looked at.
[[nodiscard]] std::optional<std::vector<std::string>> environment_of_process(int pid);

// Those of the table that `root` has started, and what these have, without itself.
[[nodiscard]] std::vector<ProcessName> below(int root, const std::vector<ProcessEntry>& table);

// Whether a process of that name lives; one that has ended and waits to be collected does not. One
// that cannot be looked at now is taken for living, so that nothing it holds is given away.
[[nodiscard]] bool lives(const ProcessName& process);
// This process.
[[nodiscard]] ProcessName own_name();

}  // namespace rubato::launch
