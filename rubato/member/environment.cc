#include "rubato/member/environment.h"

#include <cstdlib>

namespace rubato::member {

std::string environment_variable(const char* name) {
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe)
  return value == nullptr ? "" : value;
}

}  // namespace rubato::member
