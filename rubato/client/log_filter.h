// Filters the output of programs for a terminal. Line ends, tabs and colours pass. All other
// control sequences are escaped, because a job may print anything. Pure.
#pragma once

#include <string>
#include <string_view>

namespace rubato::client {

class LogFilter {
 public:
  // Characters may be cut anywhere between two calls.
  [[nodiscard]] std::string pass(std::string_view bytes);
  // The rest, which was incomplete so far.
  [[nodiscard]] std::string finish();

 private:
  std::string rest_;
};

}  // namespace rubato::client
