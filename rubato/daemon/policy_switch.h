// Chooses the policy by its text, and switches it while jobs run.
#pragma once

#include <string>

#include "rubato/daemon/core_options.h"
#include "rubato/daemon/transaction.h"

namespace rubato::daemon {

// The policy that `text` names, or why it cannot be used on this cluster.
[[nodiscard]] Result<PolicyInForce> choose_policy(const std::string& text,
                                                  const CoreOptions& options);

// Stops nothing: jobs continue until the first decision of the new policy, which comes at once.
void switch_policy(Transaction& tx, const PolicyInForce& policy, const CoreOptions& options);

}  // namespace rubato::daemon
