// Takes any bytes as a cluster. The result must be an error, or a cluster whose totals agree with
// its nodes.
#include <cstddef>
#include <cstdint>

#include "rubato/base/check.h"
#include "rubato/core/cluster.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace rubato::fuzz;
  const auto cluster = parse_cluster({reinterpret_cast<const char*>(data), size});
  if (!cluster) return 0;
  int gpus = 0;
  for (const auto& node : cluster->nodes()) gpus += node.gpus;
  CHECK(gpus >= 1 && gpus == cluster->installed() && gpus == cluster->usable());
  return 0;
}
