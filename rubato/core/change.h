// What a decision has changed: which GPUs a job should have from now on.
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

// The result of a decision. It is stored with the decision, because recovery decides nothing again.
struct Carried {
  std::vector<Change> changes;
  std::string refused;  // why the decision was not carried out; empty if it was
};

}  // namespace rubato::core
