// Takes any bytes as a failures file. The result must be an error, or events in order on nodes that
// exist.
#include <cstddef>
#include <cstdint>

#include "rubato/base/check.h"
#include "rubato/sim/failures.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace rubato::fuzz;
  const Cluster cluster({{16, 8, GpuType(0)}}, {"gpu"});
  const auto events = parse_failures({reinterpret_cast<const char*>(data), size}, "input", cluster);
  if (!events) return 0;
  Time before = kStart;
  for (const auto& event : *events) {
    CHECK(event.at >= before && event.node < NodeId(16));
    before = event.at;
  }
  return 0;
}
