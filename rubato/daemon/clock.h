// Keeps the loop's time and the wall clock together. The loop's time belongs to the daemon and
// never runs backwards. Deadlines are times of the wall clock.
#pragma once

#include "rubato/daemon/transaction.h"

namespace rubato::daemon {

// If the wall clock has moved against the loop's time, stores by how much and computes all
// deadlines again. `just_started`: a jump forward is the time during which no daemon ran.
void set_clock(Transaction& tx, WallTime wall, bool just_started);

// Stores the loop's time if the last row is older than `unsaid`. Without this, a restart would go
// back to the time of that row.
void keep_time(Transaction& tx, Duration unsaid);

}  // namespace rubato::daemon
