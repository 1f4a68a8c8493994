#include "rubato/agent/environment.h"

#include <cstdlib>

namespace rubato::agent {

std::string environment_variable(const char* name) {
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe)
  return value == nullptr ? "" : value;
}

}  // namespace rubato::agent
