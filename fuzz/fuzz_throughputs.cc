// Takes any bytes as a throughput file. The result must be an error, or speeds that are finite,
// alone and in pairs.
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "rubato/base/check.h"
#include "rubato/sim/throughputs.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace rubato::fuzz;
  const Cluster cluster({{2, 4, GpuType(0)}}, {"v100"});
  const auto book =
      parse_throughputs({reinterpret_cast<const char*>(data), size}, "input", cluster);
  if (!book || book->speeds.empty()) return 0;
  const SpeedModel& first = *book->speeds.begin()->second;
  for (const auto& [profile, speed] : book->speeds) {
    for (const int gpus : {0, 1, 3, 4096}) {
      CHECK(std::isfinite(speed->on(GpuType(), gpus)) && speed->on(GpuType(), gpus) >= 0);
      CHECK(std::isfinite(speed->beside({GpuType(), gpus, 0, 0}, first)));
    }
  }
  return 0;
}
