// What the owner of a training program chooses; no torch here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "rubato/base/result.h"
#include "rubato/model/learning_rate.h"

namespace rubato::train {

struct Options {
  std::uint64_t seed = 1;
  std::int64_t steps = 0;   // the end of the job, whichever comes first; 0 = not by steps
  std::int64_t epochs = 0;  // 0 = not by epochs
  // Samples a step. In adaptive mode M0, which the learning rate was tuned for.
  int batch = 32;

  // Accuracy-consistent mode: the batch is computed by so many virtual workers, whatever the
  // number of real ones.
  int virtual_workers = 8;

  // Adaptive mode: batch and learning rate follow the gradient noise and the measured speed.
  bool adaptive = false;
  int largest_batch = 0;       // 0 = 16 times the batch
  int largest_per_worker = 0;  // of one pass; 0 = the batch
  LearningRateRule learning_rate_rule = LearningRateRule::adascale;
  bool measure_noise = false;  // always on in adaptive mode

  std::string checkpoint{};           // directory; empty = RUBATO_CHECKPOINT, if that is set
  std::int64_t checkpoint_steps = 0;  // every so many, 0 = not by steps
  double checkpoint_seconds = 60;     // and after so much time, 0 = not by time
  std::int64_t digest_steps = 100;    // compare replicas this often; 0 = never

  std::string device = "cpu";
  std::size_t bucket_bytes = std::size_t{8} << 20U;
  std::string build = "rubato 1";  // workers of one job must agree
};

// What a job's file says of its batch, as the live cluster passes it on (docs/live.md):
// RUBATO_BATCH_MODE, RUBATO_BATCH_MIN, RUBATO_BATCH_MAX and RUBATO_LEARNING_RATE, on top of
// `defaults`. For programs that read their options by themselves.
[[nodiscard]] Result<Options> options_from_environment(const Options& defaults);

// Reads --steps, --epochs, --batch, --virtual-workers, --adaptive, --largest-batch,
// --largest-per-worker, --checkpoint, --checkpoint-steps, --checkpoint-seconds, --seed, --device,
// --measure-noise, --digest-steps, each as --name VALUE, on top of the environment and of
// `defaults`. Ends the program with 2 and one sentence for anything else, with 0 after --help.
[[nodiscard]] Options parse_options(int argc, char** argv, const Options& defaults);

}  // namespace rubato::train
