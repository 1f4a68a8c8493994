// Commands to an engine. They are idempotent: a command that is not newer than the last is ignored.
#pragma once

#include <optional>
#include <variant>

#include "rubato/core/allocation.h"
#include "rubato/core/batch.h"
#include "rubato/core/ids.h"

namespace rubato::core {

// Without a batch, the job trains with the one its owner chose.
struct Start {
  JobId job;
  Generation generation;
  Allocation gpus;
  std::optional<Batch> batch = std::nullopt;
};
// From now on the job has exactly these GPUs and this batch. It must release other GPUs. A change
// of only the batch does not restart the job.
struct Resize {
  JobId job;
  Generation generation;
  Allocation gpus;
  std::optional<Batch> batch = std::nullopt;
};
struct Stop {
  JobId job;
  Generation generation;
};

using Command = std::variant<Start, Resize, Stop>;

}  // namespace rubato::core
