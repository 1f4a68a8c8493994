// How the loop's time and the wall clock are kept together. The loop's time is the daemon's own and
// never runs backwards; deadlines are moments of the wall clock.
#pragma once

#include "rubato/daemon/transaction.h"

namespace rubato::daemon {

// If the wall clock has moved against the loop's time, stores by how much and derives deadlines
// anew. `just_started`: a jump ahead is the time for which no daemon ran.
void set_clock(Transaction& tx, WallTime wall, bool just_started);

// Stores how far the loop's time has come if no row has said so for longer than `unsaid`:
// otherwise a restart would take that time back.
void keep_time(Transaction& tx, Duration unsaid);

}  // namespace rubato::daemon
