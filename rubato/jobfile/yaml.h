// YAML as far as a job file needs it: one document of mappings, lists and words, read into JSON.
//
// The library hands over events and this file builds the value, because its own loader follows
// aliases: nine short lines become a billion values. Anchors, aliases and tags are refused
// altogether; size, depth and the number of values are limited; two equal keys are an error.
//
// Plain words are text: whether `010` or `1e-3` is a number is for the reader of a field to say,
// who knows whether it is a count or an argument to pass on as it stands.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "rubato/base/json.h"
#include "rubato/base/result.h"

namespace rubato::jobfile {

struct YamlLimits {
  std::size_t bytes = std::size_t{64} << 10U;
  int depth = 16;
  std::size_t values = 10'000;
};

// `source` names the input in the error sentence. Scalars are JSON strings, but for null.
[[nodiscard]] Result<Json> parse_yaml(std::string_view text, const std::string& source,
                                      YamlLimits limits = {});

}  // namespace rubato::jobfile
