#include "rubato/train/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <fmt/format.h>

#include "rubato/base/text.h"
#include "rubato/member/environment.h"
#include "rubato/wire/launch.h"

namespace rubato::train {
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
  if (mode != "" && mode != "fixed" && mode != "adaptive")
    return refused(kMode, mode, "fixed or adaptive");
  if (!mode.empty()) options.adaptive = mode == "adaptive";
  if (auto read = read_size("RUBATO_BATCH_MIN", options.batch); !read) return read.error();
  if (auto read = read_size("RUBATO_BATCH_MAX", options.largest_batch); !read) return read.error();
  if (auto read = read_rule(options.learning_rate_rule); !read) return read.error();
  return options;
}

Options parse_options(int argc, char** argv, const Options& defaults) {
  const auto told = options_from_environment(defaults);
  if (!told) {
    fmt::print(stderr, "{}: {}\n", argv[0], told.error().message);
    std::exit(wire::kRefused);
  }
  Options options = *told;
  CLI::App app("Trains, alone or as one of the workers of `rubato run --workers MIN:MAX -- ...`.");
  app.option_defaults()->always_capture_default();
  app.add_option("--steps", options.steps, "stop after this number of steps; 0 = no limit");
  app.add_option("--epochs", options.epochs, "stop after this number of epochs; 0 = no limit");
  app.add_option("--batch", options.batch, "samples a step, over all workers");
  app.add_option("--virtual-workers", options.virtual_workers,
                 "parts the batch is computed in, whatever the number of workers");
  app.add_flag("--adaptive", options.adaptive,
               "let batch and learning rate follow gradient noise and speed");
  app.add_option("--largest-batch", options.largest_batch, "adaptive: 0 = 16 times the batch");
  app.add_option("--largest-per-worker", options.largest_per_worker,
                 "adaptive: samples of one pass; 0 = the batch");
  app.add_flag("--measure-noise", options.measure_noise, "measure gradient noise in any mode");
  app.add_option("--checkpoint", options.checkpoint,
                 "directory to save to and resume from; a job of the live cluster has one");
  app.add_option("--checkpoint-steps", options.checkpoint_steps, "save every so many steps");
  app.add_option("--checkpoint-seconds", options.checkpoint_seconds, "save every so many seconds");
  app.add_option("--digest-steps", options.digest_steps, "compare replicas every so many steps");
  app.add_option("--seed", options.seed, "of the data order and of randomness in the model");
  app.add_option("--device", options.device, "cpu, cuda or cuda:N");
  app.add_option("--bucket-bytes", options.bucket_bytes, "gradients are reduced in such pieces");
  app.add_option("--build", options.build, "workers of one job must agree on it");
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp& help) {
    std::exit(app.exit(help));
  } catch (const CLI::ParseError& error) {
    fmt::print(stderr, "{}: {}; see --help\n", argv[0], error.what());
    std::exit(wire::kRefused);
  }
  return options;
}

}  // namespace rubato::train
