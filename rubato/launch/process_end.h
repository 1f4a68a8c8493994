// How a process ended. A plain value, so that decisions can be tested without processes.
#pragma once

#include <string>

namespace rubato::launch {

struct ProcessEnd {
  bool killed = false;  // by the signal `code`; otherwise it exited with `code`
  int code = 0;
  friend bool operator==(const ProcessEnd&, const ProcessEnd&) = default;
};

// For sentences: "exited with code 1", "was killed by signal 9 (Killed)".
[[nodiscard]] std::string to_text(const ProcessEnd& end);

}  // namespace rubato::launch
