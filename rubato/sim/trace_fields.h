// Checks and stores one field of one job. CSV cells and JSON values use the same code, so a value
// that is refused in one format is refused in the other, with the same sentence.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "rubato/sim/trace.h"
#include "rubato/sim/trace_record.h"

namespace rubato::sim {

constexpr int kMostGpus = 10'000'000;  // of one job

enum class TraceField : std::uint8_t {
  name,
  user,
  model,
  submit,     // seconds
  timestamp,  // when it was submitted: "2017-10-09 07:01:55", or seconds since 1970
  gpus,
  duration,
  steps,
  batch,
  deadline,
  weight,
  min_gpus,
  max_gpus,
  allowed_gpus,  // "1/2/4"
  restart,
  utility,    // "VALUE/DECAY/TARGET"
  search,     // "NAME:trials=N:share=S"
  job_class,  // "guaranteed" or "opportunistic"
  skew,       // the share of the largest tensor
  job_type,   // "ResNet-18 (batch size 128)": Gavel's model and batch size in one
  slo,        // Gavel: deadline as a multiple of the duration; <= 0 means none
  mode,       // Shockwave: how the batch size adapts
  // Of a log of real jobs (trace_record.h):
  slurm_id,         // "12", "12_3", "12+0", "12.batch"
  state,            // "CANCELLED by 1000"
  started,          // a timestamp, or that there is none
  ended,            // the same
  elapsed,          // seconds, or "1-02:03:04"
  stated_duration,  // seconds
  recorded_gpus,    // 0 is allowed
  allocated,        // "cpu=8,gres/gpu=4,gres/gpu:v100=4"
  asked_for,        // the same
  unused,
};

// A job while its fields are read. Some fields can be checked only together.
struct TraceDraft {
  TraceJob job;
  std::optional<double> slo;
  TraceRecord record;
};

// `column` is the field's name in this file.
[[nodiscard]] TraceProblem set_trace_field(TraceField field, std::string_view column,
                                           std::string_view text, TraceDraft& draft);

// Checks that need the whole job: a deadline before the submission, limits that exclude its own GPU
// count.
[[nodiscard]] TraceProblem finish_trace_job(TraceDraft& draft);

}  // namespace rubato::sim
