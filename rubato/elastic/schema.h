// The parts of a replica as JSON. With it, workers check that they train the same model before they
// add up each other's gradients:
//
//   {"optimizer": "adam", "bucket_floats": 1048576,
//    "parameters": [{"name": "0.weight", "shape": [64, 2], "dtype": "float32", "trained": true}],
//    "buffers": [{"name": "1.running_mean", "shape": [64], "dtype": "float32"}]}
//
// Pure. The schema of the other side came over the network. Any JSON can be compared, and none is
// trusted.
#pragma once

#include <optional>
#include <string>

#include "rubato/base/json.h"

namespace rubato::elastic {

// One sentence that names the first difference. nullopt if there is none.
[[nodiscard]] std::optional<std::string> difference(const Json& ours, const Json& theirs);

}  // namespace rubato::elastic
