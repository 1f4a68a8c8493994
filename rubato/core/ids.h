// The identifiers of the domain.
#pragma once

#include <cstdint>

#include "rubato/base/id.h"

namespace rubato::core {

using JobId = Id<struct JobTag>;    // in order of submission
using NodeId = Id<struct NodeTag>;  // in order of the cluster description
using GpuType = Id<struct TypeTag, std::uint8_t>;

// Types are numbered from 0, so they index vectors.
[[nodiscard]] constexpr GpuType type_at(std::size_t index) {
  return GpuType(static_cast<GpuType::rep>(index));
}

// Every allocation of a job has a generation. A message with an older generation is stale.
using Generation = Id<struct GenerationTag>;

// Counts the events folded into a state: a Decision names the one it was made from.
using Sequence = Id<struct SequenceTag, std::uint64_t>;

}  // namespace rubato::core
