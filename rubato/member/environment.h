// The environment of a worker's process: the one place besides cmd/ where it is read, because it is
// how a launcher and the live cluster speak to programs (docs/live.md).
#pragma once

#include <string>

namespace rubato::member {

// Empty if it is not set.
[[nodiscard]] std::string environment_variable(const char* name);

}  // namespace rubato::member
