// Where tests find what is beside them. Asked when they run: a path that is compiled in would make
// every clone compile all tests anew, whatever ccache remembers.
#pragma once

#include <filesystem>
#include <string>

#include "rubato/base/namespaces.h"

namespace rubato::base {

// That of the test which runs.
inline std::filesystem::path build_tree() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path();
}

inline std::string rubato_program() { return build_tree() / "rubato"; }

// Public traces and profiles, beside the project; tests that need them skip themselves where they
// are not.
inline std::string shared_data() { return build_tree() / "../../shared/data"; }

}  // namespace rubato::base
