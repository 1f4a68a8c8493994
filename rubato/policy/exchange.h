// Traders change places while all together gain: the last part of a division over several GPU
// types.
//
// Places of the same number of GPUs are the nodes of a small graph: one for each type, and one for
// those who wait. An edge is the best gain, or the least loss, of a trader that goes from one to
// the other; an idle place goes anywhere for nothing. Along a cycle of positive gain, everybody
// goes one place on.
#pragma once

#include <vector>

#include "rubato/policy/market.h"

namespace rubato::policy {

void exchange(const Market& market, std::vector<Trader>& traders, std::vector<int>& room);

}  // namespace rubato::policy
