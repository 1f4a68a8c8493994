// One field of one job: its text checked and stored. CSV cells and JSON values take the same way,
// so a value that is refused in one is refused in the other, in the same words.
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
  job_type,  // "ResNet-18 (batch size 128)": Gavel's model and batch size in one
  slo,       // Gavel: deadline as a multiple of the duration; not above 0 = none
  mode,      // Shockwave: how the batch size adapts
  unused,
};

// A job while its fields arrive; some make sense only together.
struct TraceDraft {
  TraceJob job;
  std::optional<double> slo;
  bool adapts_batch = false;
};

// What is wrong, without the place: the caller knows file and line. nullopt = nothing.
using TraceProblem = std::optional<std::string>;

// `column` is the field's name in the file at hand.
[[nodiscard]] TraceProblem set_trace_field(TraceField field, std::string_view column,
                                           std::string_view text, TraceDraft& draft);

// What only the whole job shows: a deadline before the submission, limits that exclude its own
// GPU count.
[[nodiscard]] TraceProblem finish_trace_job(TraceDraft& draft);

}  // namespace rubato::sim
