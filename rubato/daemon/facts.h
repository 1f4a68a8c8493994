// What the engine reports, as rows: jobs that run, release GPUs, end or fail, and nodes that come
// and go. A fact that is out of date, or was reported before, changes nothing.
#pragma once

#include "rubato/daemon/reports.h"
#include "rubato/daemon/transaction.h"

namespace rubato::daemon {

void take_fact(Transaction& tx, const Reports& reports, Event fact);

// Jobs whose pause after a failure is over may start again.
void end_pauses(Transaction& tx);

// Shows the loop the node in the state that follows from what the operator wants of it and what
// the engine says of it. The operator's word counts while the node is there at all.
void set_node(Transaction& tx, NodeId node);

}  // namespace rubato::daemon
