// The guard in front of nlohmann::json: size, depth and duplicate keys are refused with a sentence,
// because the library itself recurses without limit and keeps the last of two equal keys.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "rubato/base/namespaces.h"
#include "rubato/base/result.h"

namespace rubato::base {

using Json = nlohmann::ordered_json;

struct JsonLimits {
  std::size_t bytes = std::size_t{256} << 20U;
  int depth = 64;
};

// `source` names the input in the error sentence ("spec.json").
[[nodiscard]] Result<Json> parse_json(std::string_view text, const std::string& source,
                                      JsonLimits limits = {});

// The one spelling of a value: keys sorted by their bytes, no spaces, and of all spellings of a
// double the shortest that reads back to the bit. Refuses what JSON cannot say (numbers that are
// not finite, text that is not UTF-8) and what the guard would not let back in.
[[nodiscard]] Result<std::string> canonical_json(const Json& value, JsonLimits limits = {});

}  // namespace rubato::base
