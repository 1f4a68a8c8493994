// The result of a what-if (docs/what-if.md) for people: a text, and the data of the report page.
//
// Pure functions of the JSON. As in render.h, an answer may contain anything.
#pragma once

#include <string>

#include "rubato/base/json.h"
#include "rubato/base/result.h"
#include "rubato/client/render.h"

namespace rubato::client::render {

[[nodiscard]] std::string what_if(const Json& result, const Look& look);

// For the page of `rubato simulate --html`: what really happened is the first run. An error if the
// result is not one of a what-if.
[[nodiscard]] Result<Json> what_if_report(const Json& result, const std::string& tool);

}  // namespace rubato::client::render
