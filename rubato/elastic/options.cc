#include "rubato/elastic/options.h"

#include <fmt/format.h>

#include "rubato/base/text.h"
#include "rubato/member/environment.h"

namespace rubato::elastic {
namespace {

using member::environment_variable;

Error refused(const char* name, const std::string& value, std::string_view must) {
  return {fmt::format("{} is {}; it must be {}", name, base::quoted(value), must)};
}

// `size` is unchanged if the variable is not set.
Result<void> read_size(const char* name, int& size) {
  const std::string value = environment_variable(name);
  if (value.empty()) return {};
  constexpr long long kMost = 1'000'000'000;
  const auto number = parse_integer(value);
  if (!number || *number < 1 || *number > kMost)
    return refused(name, value, fmt::format("a whole number from 1 to {}", kMost));
  size = static_cast<int>(*number);
  return {};
}

Result<void> read_rule(LearningRateRule& rule) {
  constexpr const char* kName = "RUBATO_LEARNING_RATE";
  const std::string value = environment_variable(kName);
  if (value == "sqrt") {
    rule = LearningRateRule::sqrt;
  } else if (value == "linear") {
    rule = LearningRateRule::linear;
  } else if (value == "adascale") {
    // Which of the two it is depends on the optimizer. The program knows that.
    if (rule != LearningRateRule::adascale_adam) rule = LearningRateRule::adascale;
  } else if (!value.empty()) {
    return refused(kName, value, "adascale, sqrt or linear");
  }
  return {};
}

}  // namespace

Result<Options> options_from_environment(const Options& defaults) {
  Options options = defaults;
  constexpr const char* kMode = "RUBATO_BATCH_MODE";
  const std::string mode = environment_variable(kMode);
  if (!mode.empty() && mode != "fixed" && mode != "adaptive")
    return refused(kMode, mode, "fixed or adaptive");
  if (!mode.empty()) options.adaptive = mode == "adaptive";
  if (auto read = read_size("RUBATO_BATCH_MIN", options.batch); !read) return read.error();
  if (auto read = read_size("RUBATO_BATCH_MAX", options.largest_batch); !read) return read.error();
  if (auto read = read_rule(options.learning_rate_rule); !read) return read.error();
  return options;
}

}  // namespace rubato::elastic
