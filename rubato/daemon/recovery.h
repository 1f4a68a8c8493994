// The rows that a start adds to the journal: the first rows of a new journal, a change of settings
// or policy, and what follows from rows that were lost.
#pragma once

#include <string>

#include "rubato/daemon/core_options.h"
#include "rubato/daemon/transaction.h"

namespace rubato::daemon {

// `repaired`: rows of the journal could not be read and were dropped. The cluster of `options`
// becomes that of the journal. The result is one sentence about what was added, or empty. The error
// is one sentence about why this journal cannot be continued with these options.
[[nodiscard]] Result<std::string> begin_or_continue(Transaction& tx, CoreOptions& options,
                                                    WallTime wall, bool repaired);

}  // namespace rubato::daemon
