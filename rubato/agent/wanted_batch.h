// The batches that the owner of a job of the live cluster asked for in its file (docs/live.md), as
// its workers find them in their environment.
#pragma once

#include <string>

namespace rubato::agent {

struct WantedBatch {
  bool adaptive = false;
  int least = 0;     // the batch that the learning rate was tuned for; 0: what the program says
  int most = 0;      // 0: what the program says
  std::string rule;  // how the learning rate follows; empty: what the program says
};
// RUBATO_BATCH_MODE, RUBATO_BATCH_MIN, RUBATO_BATCH_MAX, RUBATO_LEARNING_RATE. What makes no sense
// is as if it were not there: the daemon has checked what it wrote.
[[nodiscard]] WantedBatch batch_from_environment();

}  // namespace rubato::agent
