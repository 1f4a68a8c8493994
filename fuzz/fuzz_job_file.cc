// Takes any bytes as a job file, JSON or YAML. The result must be an error, or a job that is
// written and read back unchanged.
#include <cstddef>
#include <cstdint>

#include "rubato/base/check.h"
#include "rubato/base/unicode.h"
#include "rubato/jobfile/job_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace rubato::fuzz;
  const auto job = parse_job_file({reinterpret_cast<const char*>(data), size}, "input");
  if (!job) {
    CHECK(for_terminal(job.error().message) == job.error().message);
    return 0;
  }
  const Json json = to_json(*job);
  const auto again = read_job(json, "again");
  CHECK(again.ok() && to_json(*again) == json);
  return 0;
}
