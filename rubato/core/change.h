// What carrying out a decision has changed: which GPUs a job should have from now on.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rubato/core/allocation.h"
#include "rubato/core/ids.h"

namespace rubato::core {

struct Change {
  enum class Kind : std::uint8_t { start, stop, resize, move };
  JobId job;
  Kind kind = Kind::start;
  Allocation target;
};

// What became of a decision, for those who keep it: the past is not decided again.
struct Carried {
  std::vector<Change> changes;
  std::string refused;  // why it was not carried out at all; or empty
};

}  // namespace rubato::core
