// Names by a pattern, as a shell writes it: '*' is any text, also none, '?' one character. Nothing
// else is special. Takes at most as many steps as the product of both lengths, whatever the
// pattern.
#pragma once

#include <string_view>

#include "rubato/base/namespaces.h"

namespace rubato::base {

[[nodiscard]] bool matches_glob(std::string_view pattern, std::string_view text);

}  // namespace rubato::base
