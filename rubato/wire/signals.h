// Signals as something to read.
//
// A signal that is sent to the process goes to any of its threads that does not block it. Libraries
// may have started threads before main() began (OpenBLAS does, and whoever solves linear programs
// loads it), and those block nothing: without further care the signal would end the process there.
#pragma once

#include <vector>

#include "rubato/wire/socket.h"

namespace rubato::wire {

// A signalfd of these, whichever thread gets them: the caller's thread blocks them, and so does,
// from the first one on, every other that gets one. What the caller starts by exec is not affected
// but for the mask.
[[nodiscard]] Fd take_signals(const std::vector<int>& signals);

}  // namespace rubato::wire
