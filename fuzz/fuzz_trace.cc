// Takes any bytes as a trace. The result must be an error, or a trace that our own formats carry
// without loss and that makes a workload. The first byte chooses the format.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "rubato/base/check.h"
#include "rubato/sim/trace.h"
#include "rubato/sim/workload.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace rubato::fuzz;
  if (size == 0) return 0;
  const std::size_t formats = trace_format_names().size();
  const std::size_t choice = data[0] % (formats + 1);
  std::optional<TraceFormat> format;
  if (choice < formats) format = static_cast<TraceFormat>(choice);
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);

  const auto trace = parse_trace(text, "input", format);
  if (!trace) {
    CHECK(trace.error().message.substr(0, 5) == "input");
    return 0;
  }
  const auto csv = to_csv(*trace);
  const auto from_csv = parse_trace(csv, "input", TraceFormat::rubato_csv);
  CHECK(from_csv.ok() && to_csv(*from_csv) == csv);
  const auto json = to_json_text(*trace);
  const auto from_json = parse_trace(json, "input", TraceFormat::rubato_json);
  CHECK(from_json.ok() && to_json_text(*from_json) == json);

  const auto workload = make_workload(*trace, {.assign_curves = choice % 2 == 0});
  CHECK(workload.ok() && workload->jobs.size() == trace->jobs.size());
  for (const auto& job : workload->jobs) {
    CHECK(job.submit >= kStart && job.work >= 0);
    CHECK(job.spec->limits.legal(job.spec->requested));
    CHECK(job.speed->on(GpuType(), job.spec->requested) > 0);
  }
  return 0;
}
