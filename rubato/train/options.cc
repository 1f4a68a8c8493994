#include "rubato/train/options.h"

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <fmt/format.h>

#include "rubato/wire/launch.h"

namespace rubato::train {

Options parse_options(int argc, char** argv, const Options& defaults) {
  const auto told = elastic::options_from_environment(defaults);
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
