// What is new in a JSON text that is mostly the text before: a policy's state after a decision, of
// which thousands of waiting jobs are the same as after the last.
//
// Texts are cut into pieces, one for each element down to the second level; the new text is a list
// of runs of old pieces and of literal text. Exact: apply_delta() gives the very bytes. Linear in
// the length of the texts.
//
// Pure.
#pragma once

#include <string>
#include <string_view>

#include "rubato/base/json.h"
#include "rubato/base/result.h"

namespace rubato {

// Both JSON without spaces. A list of [first, count] and of texts.
[[nodiscard]] Json delta_of(std::string_view before, std::string_view after);

[[nodiscard]] Result<std::string> apply_delta(std::string_view before, const Json& delta);

}  // namespace rubato
