// Signals that are read from a descriptor.
//
// A signal to the process goes to any thread that does not block it. Libraries may have started
// threads before main() (OpenBLAS does, and it is loaded to solve linear programs), and those block
// nothing. Without further care the signal would end the process there.
#pragma once

#include <vector>

#include "rubato/wire/socket.h"

namespace rubato::wire {

// A signalfd for these signals, for all threads. The caller's thread blocks them. Any other thread
// blocks a signal after it has received it once. Programs that the caller starts by exec are not
// affected, except for the mask.
[[nodiscard]] Fd take_signals(const std::vector<int>& signals);

}  // namespace rubato::wire
