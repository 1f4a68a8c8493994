// The options of a training program.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "rubato/base/result.h"
#include "rubato/model/learning_rate.h"

namespace rubato::elastic {

struct Options {
  std::uint64_t seed = 1;
  std::int64_t steps = 0;   // the job ends after so many steps; 0 = no such limit
  std::int64_t epochs = 0;  // or after so many epochs, whichever comes first; 0 = no such limit
  // Samples per step. In adaptive mode this is M0, the batch that the learning rate was tuned for.
  int batch = 32;
  bool shuffle = true;     // each epoch has its own order of the samples
  bool drop_last = false;  // an epoch ends before a batch that would be smaller than the others

  // Accuracy-consistent mode: this number of virtual workers computes the batch, for any number of
  // real workers.
  int virtual_workers = 8;

  // Adaptive mode: batch and learning rate follow the gradient noise and the measured speed.
  bool adaptive = false;
  int largest_batch = 0;       // 0 = 16 times the batch
  int largest_per_worker = 0;  // in one pass; 0 = the batch
  LearningRateRule learning_rate_rule = LearningRateRule::adascale;
  bool measure_noise = false;  // always on in adaptive mode

  std::string checkpoint{};           // directory; empty = RUBATO_CHECKPOINT, if that is set
  std::int64_t checkpoint_steps = 0;  // write one every so many steps; 0 = not by steps
  double checkpoint_seconds = 60;     // and after this time; 0 = not by time
  std::int64_t digest_steps = 100;    // compare replicas this often; 0 = never

  // The model sums the gradients of all workers itself (Model::reduce): the same samples and batch,
  // but other bits for another number of workers.
  bool group = false;

  // The model may be given a gradient that is not finite, and decides what to do with it: a scaler
  // of losses skips the step. Otherwise such a gradient ends the job.
  bool may_overflow = false;

  bool warm_up = true;  // a joining worker computes something before others wait for it
  std::string device = "cpu";
  std::size_t bucket_bytes = std::size_t{8} << 20U;
  std::string build = "rubato 1";  // all workers of a job must have the same
};

// The batch settings of a job file, as the live cluster passes them to the program
// (docs/internals.md): RUBATO_BATCH_MODE, RUBATO_BATCH_MIN, RUBATO_BATCH_MAX and
// RUBATO_LEARNING_RATE. They override `defaults`. For programs that read their options themselves.
[[nodiscard]] Result<Options> options_from_environment(const Options& defaults);

}  // namespace rubato::elastic
