// Reads the environment of a worker's process. Only this file and cmd/ read the environment.
// Launchers and the live cluster tell programs through it what they need (docs/elastic.md).
#pragma once

#include <string>

namespace rubato::member {

// Empty if it is not set.
[[nodiscard]] std::string environment_variable(const char* name);

}  // namespace rubato::member
