// The processes of this machine: their parents and their environments.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "rubato/launch/master_messages.h"

namespace rubato::launch {

struct ProcessEntry {
  ProcessName name;
  int parent = 0;
  bool ended = false;  // and has not been collected
};

// A file of /proc/PID. Empty if the process is gone or we may not look at it. nullopt if there were
// no descriptors or memory to look.
[[nodiscard]] std::optional<std::string> proc_file(int pid, const char* name);

// nullopt if some could not be looked at, because there were no descriptors or memory. A process
// that lives during the whole call is in the list.
[[nodiscard]] std::optional<std::vector<ProcessEntry>> all_processes();

// The variables that it was started with, "NAME=value". Empty if it is gone or we may not look at
// it. nullopt if there were no descriptors or memory to look.
[[nodiscard]] std::optional<std::vector<std::string>> environment_of_process(int pid);

// The processes of the table that `root` has started, and their descendants, without `root`.
[[nodiscard]] std::vector<ProcessName> below(int root, const std::vector<ProcessEntry>& table);

// Whether a process of that name lives. One that has ended and was not collected does not live. One
// that cannot be looked at now counts as living, so that what it holds is not given away.
[[nodiscard]] bool lives(const ProcessName& process);
// This process.
[[nodiscard]] ProcessName own_name();

}  // namespace rubato::launch
