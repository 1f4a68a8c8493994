// The rules for names of jobs and of profiles.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "rubato/base/namespaces.h"

namespace rubato::jobfile {

inline constexpr std::size_t kLongestName = 100;  // bytes

// Whether it has only visible characters, no blank and no slash, and is not too long.
[[nodiscard]] bool has_name_characters(std::string_view name);
// Whether it has digits only. Where people name a job, a number is an id.
[[nodiscard]] bool is_number(std::string_view name);

// A valid name for a job that has none, made from the name of its program.
[[nodiscard]] std::string name_after(std::string_view program);

}  // namespace rubato::jobfile
