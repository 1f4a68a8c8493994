// What an engine is told to do. Idempotent on the generation: an older one is ignored.
#pragma once

#include <variant>

#include "rubato/core/allocation.h"
#include "rubato/core/ids.h"

namespace rubato {

struct Start {
  JobId job;
  Generation generation;
  Allocation gpus;
};
// From now on exactly these GPUs; those no longer named are to be released.
struct Resize {
  JobId job;
  Generation generation;
  Allocation gpus;
};
struct Stop {
  JobId job;
  Generation generation;
};

using Command = std::variant<Start, Resize, Stop>;

}  // namespace rubato
