#include "rubato/agent/wanted_batch.h"

#include <cstdlib>
#include <limits>

#include "rubato/base/text.h"

namespace rubato::agent {
namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

int number(const char* name) {
  const auto value = parse_integer(variable(name));
  const bool sound = value && *value > 0 && *value <= std::numeric_limits<int>::max();
  return sound ? static_cast<int>(*value) : 0;
}

}  // namespace

WantedBatch batch_from_environment() {
  WantedBatch wanted;
  wanted.adaptive = variable("RUBATO_BATCH_MODE") == "adaptive";
  if (!wanted.adaptive) return wanted;
  wanted.least = number("RUBATO_BATCH_MIN");
  wanted.most = number("RUBATO_BATCH_MAX");
  wanted.rule = variable("RUBATO_LEARNING_RATE");
  return wanted;
}

}  // namespace rubato::agent
