// What a start adds to the journal: the first rows of a new one, settings and a policy that are
// new, and what rows that were lost make necessary.
#pragma once

#include <string>

#include "rubato/daemon/core_options.h"
#include "rubato/daemon/transaction.h"

namespace rubato::daemon {

// `repaired`: rows of the journal could not be read and were dropped. The cluster of `options`
// becomes that of the journal. The answer is one sentence on what was made up for, or empty; the
// error is one sentence on why this journal cannot be continued like this.
[[nodiscard]] Result<std::string> begin_or_continue(Transaction& tx, CoreOptions& options,
                                                    WallTime wall, bool repaired);

}  // namespace rubato::daemon
