// The options of a training program, read from its command line. This header does not include
// torch.
#pragma once

#include "rubato/elastic/options.h"

namespace rubato::train {

using elastic::Options;

// Reads --steps, --epochs, --batch, --virtual-workers, --adaptive, --largest-batch,
// --largest-per-worker, --checkpoint, --checkpoint-steps, --checkpoint-seconds, --seed, --device,
// --measure-noise and --digest-steps, each as --name VALUE. They override the environment, and the
// environment overrides `defaults`. Anything else ends the program with exit code 2 and one
// sentence; --help ends it with 0.
[[nodiscard]] Options parse_options(int argc, char** argv, const Options& defaults);

}  // namespace rubato::train
