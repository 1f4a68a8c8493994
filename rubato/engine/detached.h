// Starting agents, which outlive the daemon that starts them.
//
// Each leads a session of its own, with nothing of ours but a file for its words. Unlike
// start_detached() of process.h this is safe in a process with other threads, and knows no users.
#pragma once

#include <string>
#include <vector>

#include "rubato/engine/managed.h"

namespace rubato {

// `words`: appended to, for standard output and standard error; made 0600 if it is not there.
[[nodiscard]] Result<ProcessName> spawn_detached(const std::vector<std::string>& command,
                                                 const std::string& words);

// To be called when it has ended, in case it was started by this process.
void collect(const ProcessName& process);

}  // namespace rubato
