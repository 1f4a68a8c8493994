// Checks and stores one field of one job. CSV cells and JSON values use the same code, so a value
// that is refused in one format is refused in the other, with the same sentence.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "rubato/sim/trace.h"

namespace rubato::sim {

enum class TraceField : std::uint8_t {
  name,
  user,
  model,
  submit,     // seconds
  timestamp,  // "2017-10-09 07:01:55", UTC
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
  utility,   // "VALUE/DECAY/TARGET"
  job_type,  // "ResNet-18 (batch size 128)": Gavel's model and batch size in one
  slo,       // Gavel: deadline as a multiple of the duration; <= 0 means none
  mode,      // Shockwave: how the batch size adapts
  unused,
};

// A job while its fields are read. Some fields can be checked only together.
struct TraceDraft {
  TraceJob job;
  std::optional<double> slo;
  bool adapts_batch = false;
};

// An error without its place, because the caller knows file and line; nullopt = no error.
using TraceProblem = std::optional<std::string>;

// `column` is the field's name in this file.
[[nodiscard]] TraceProblem set_trace_field(TraceField field, std::string_view column,
                                           std::string_view text, TraceDraft& draft);

// Checks that need the whole job: a deadline before the submission, limits that exclude its own GPU
// count.
[[nodiscard]] TraceProblem finish_trace_job(TraceDraft& draft);

}  // namespace rubato::sim
