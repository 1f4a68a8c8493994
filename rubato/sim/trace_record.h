// What a cluster has recorded about a job that ran on it: the logs of Helios and Acme, and Slurm's
// accounting. Such a log also has rows that a simulation cannot use. drop() says which, and why.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "rubato/base/result.h"
#include "rubato/sim/trace.h"

namespace rubato::sim {

// An error without its place, because the caller knows file and line; nullopt = no error.
using TraceProblem = std::optional<std::string>;

struct TraceRecord {
  std::string state;                        // as the log says it, without what follows a blank
  std::optional<double> start_s, end_s;     // on the clock of submit_s
  std::optional<double> elapsed_s;          // how long it ran, without suspensions
  std::optional<double> stated_s;           // a duration of the log that may mean something else
  std::optional<int> allocated, asked_for;  // GPUs
  bool step = false;                        // a step of a job, which has its own row
  bool part = false;  // a part of a heterogeneous job; all parts have the same name
};

// Why the row is no job of the trace; nullopt: it is one. `why` continues "12 rows ".
[[nodiscard]] std::optional<std::string> drop(const TraceRecord& record);

// GPUs and duration of a row that is not dropped.
void take_record(const TraceRecord& record, TraceJob& job);

// Whether the log states another duration than that from the start to the end.
[[nodiscard]] bool states_otherwise(const TraceRecord& record);

// "2017-10-09 07:01:55" or "2017-10-09T07:01:55.5+08:00", or seconds since 1970. A time without an
// offset is taken as UTC. nullopt if the text is no such time.
[[nodiscard]] std::optional<double> parse_timestamp(std::string_view text);

// "1-02:03:04", "02:03:04", or seconds. nullopt if the text is no such time.
[[nodiscard]] std::optional<double> parse_elapsed(std::string_view text);

// The GPUs in Slurm's list of resources: "cpu=8,gres/gpu=4,gres/gpu:v100=4" has 4. Without a total,
// the types are added.
[[nodiscard]] Result<double> gpus_of_tres(std::string_view text);

}  // namespace rubato::sim
