// What a policy that trades GPUs says of one job: why it has what it has.
#pragma once

#include <cstddef>
#include <string>

#include "rubato/core/ids.h"

namespace rubato::policy {

struct Quote {
  JobId job;
  GpuType type;           // the GPUs it has, or would bid for
  int gpus = 0;           // that it has by the last decision
  double price = 0;       // of a GPU of that type: job-seconds saved a second by one more
  double bid = 0;         // for each GPU of its next step; 0: it wants no more
  std::size_t ahead = 0;  // jobs that bid more for GPUs and have not got them either
  bool promised = false;  // its GPUs are those of its plan, or more
  bool turn = false;      // it had waited so long that it got a turn
};

// In a few sentences; says nothing of who the others are.
[[nodiscard]] std::string words(const Quote& quote);

}  // namespace rubato::policy
