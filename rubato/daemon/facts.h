// Turns the engine's reports into rows: jobs that run, release GPUs, end or fail, and nodes that
// come and go. A fact that is out of date, or was reported before, changes nothing.
#pragma once

#include "rubato/daemon/reports.h"
#include "rubato/daemon/transaction.h"
#include "rubato/loop/engine.h"

namespace rubato::daemon {

void take_fact(Transaction& tx, const Reports& reports, const Fact& fact);

// Lets jobs try again to get more GPUs than a limit of their users allowed.
void end_quotas(Transaction& tx);
// The owner has said other limits: the old ones do not come back.
void forget_quota(Transaction& tx, JobId id);
// Releases jobs whose backoff after a failure is over.
void end_pauses(Transaction& tx);

// Tells the loop the state of a node, from the state that the operator wants and the state that the
// engine observes. The operator's wish counts as long as the engine can reach the node.
void set_node(Transaction& tx, NodeId node);
// The beginning of a row "node": which one.
[[nodiscard]] Json row_of_node(const DaemonState& state, NodeId node);

}  // namespace rubato::daemon
