// Collects the jobs of a trace while its file is read, whatever the format, and makes the trace of
// them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "rubato/base/result.h"
#include "rubato/sim/trace.h"
#include "rubato/sim/trace_fields.h"

namespace rubato::sim {

// What distinguishes formats once their rows are read.
struct GatherOptions {
  TraceFormat format = TraceFormat::rubato_csv;
  bool numbered = false;  // jobs have no ids: the row number, from 0, is the id
  bool stamped = false;   // times are of a calendar: the earliest submission becomes 0
  bool logged = false;    // a log of real jobs (trace_record.h)
  bool json = false;      // errors name jobs[i] instead of a line
};

class Gathered {
 public:
  Gathered(const GatherOptions& options, std::string source);

  // A draft for the next row.
  [[nodiscard]] TraceDraft draft() const;
  // `place` is the line, or the index in a JSON array.
  [[nodiscard]] TraceProblem add(TraceDraft draft, std::size_t place);
  // One warning about columns or keys that nothing reads.
  void warn_ignored(std::vector<std::string> names, std::string_view what);
  [[nodiscard]] Result<Trace> finish() &&;

 private:
  [[nodiscard]] TraceProblem add_record(TraceDraft& draft, std::size_t place);
  [[nodiscard]] TraceProblem keep(TraceDraft& draft, std::size_t place);
  [[nodiscard]] TraceProblem merge(const TraceJob& part, TraceJob& whole) const;
  void count(const std::string& state, const std::string& why);
  [[nodiscard]] Error no_jobs() const;
  [[nodiscard]] TraceProblem repeated_id() const;
  void warn();

  GatherOptions options_;
  std::string source_;
  Trace trace_;
  std::vector<std::uint32_t> places_;
  std::unordered_map<std::string, std::size_t> wholes_;  // heterogeneous jobs: index by name
  std::size_t slo_without_duration_ = 0;
  std::size_t stated_otherwise_ = 0;
};

}  // namespace rubato::sim
