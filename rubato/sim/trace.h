// A trace: jobs as described by a file or the generator.
// docs/traces.md describes the formats.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rubato/base/result.h"
#include "rubato/core/job.h"
#include "rubato/model/search.h"
#include "rubato/sim/batch_schedule.h"

namespace rubato::sim {

// The search for hyper-parameters that a job is a trial of (model/search.h).
struct TraceSearch {
  std::string name;
  SearchRule rule;
  double share = 0.1;  // length of the first stage, as a share of the trial's work
  bool wait = true;    // at the end of a stage, until it is certain whether it goes on
  friend bool operator==(const TraceSearch&, const TraceSearch&) = default;
};
// "NAME:trials=8:share=0.1:keep-one-in=2:wait=false"; the last two may be left out.
[[nodiscard]] Result<TraceSearch> parse_trace_search(std::string_view text);
[[nodiscard]] std::string to_text(const TraceSearch& search);

struct TraceJob {
  std::string name;
  std::string user;
  std::string model;  // "" = unknown
  double submit_s = 0;
  int gpus = 1;                                     // what the job asks for, or ran on
  std::optional<double> duration_s;                 // at `gpus`
  std::optional<double> steps;                      // iterations, if the trace has them
  int batch = 0;                                    // global batch size; 0 = unknown
  BatchChanges batch_changes = BatchChanges::none;  // simulated only if that is asked for
  std::optional<double> deadline_s;                 // absolute, on the clock of submit_s
  double weight = 1;
  std::optional<int> min_gpus, max_gpus;
  std::vector<int> allowed_gpus;  // ascending; empty = not restricted
  std::optional<double> restart_s;
  std::optional<Utility> utility;
  bool opportunistic = false;
  std::optional<TraceSearch> search;
  std::optional<double> skew;  // the share of the largest tensor (core/job.h)
};

enum class TraceFormat {
  rubato_csv,
  rubato_json,
  microsoft,
  philly,
  tiresias,
  elasticflow,
  pollux,
  gavel,
  shockwave,
  helios,
  acme,
  sacct,
  sacct_json
};

// Rows of a log in the same state. `why` is empty for rows that became jobs. The other rows were
// dropped.
struct TraceRows {
  std::string state;
  std::string why;
  std::size_t rows = 0;
};

struct Trace {
  std::string name;  // of the file, without folders
  TraceFormat format = TraceFormat::rubato_csv;
  std::vector<TraceJob> jobs;  // by submit_s, then in the order of the file
  std::vector<std::string> warnings;
  // Of a log of real jobs, the most frequent first; empty for other formats.
  std::vector<TraceRows> rows = {};
};

// "rubato-csv", "microsoft", ...; the list is in trace_format_names().
[[nodiscard]] Result<TraceFormat> parse_trace_format(std::string_view name);
[[nodiscard]] std::vector<std::string> trace_format_names();

// Reads a plain or gzip file and detects the format, unless it is given. Every error is one
// sentence with file and line.
[[nodiscard]] Result<Trace> read_trace(const std::string& path, std::optional<TraceFormat> format);

// The same for text in memory (called by the fuzzers).
[[nodiscard]] Result<Trace> parse_trace(std::string_view text, const std::string& source,
                                        std::optional<TraceFormat> format);

// Writes Rubato's own CSV. parse_trace reads it back to the same jobs.
[[nodiscard]] std::string to_csv(const Trace& trace);
[[nodiscard]] std::string to_json_text(const Trace& trace);

}  // namespace rubato::sim
