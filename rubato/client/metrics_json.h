// The text format of Prometheus as JSON, for `rubato metrics --json`. Pure.
#pragma once

#include <string_view>

#include "rubato/base/json.h"

namespace rubato::client {

// {"metrics": [{"name", "labels": {...}, "value"}]}. Lines that are not samples are left out.
[[nodiscard]] Json metrics_json(std::string_view text);

}  // namespace rubato::client
