// Takes any bytes as a curve file. The result must be an error, or curves that have a speed at
// every count that they call measured.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "rubato/base/check.h"
#include "rubato/sim/curves.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace rubato::fuzz;
  const auto curves = parse_curves({reinterpret_cast<const char*>(data), size}, "input");
  if (!curves) return 0;
  for (const auto& [batch, curve] : *curves) {
    CHECK(batch >= 1 && !curve->measured().empty());
    for (const int gpus : curve->measured()) CHECK(curve->on(GpuType(), gpus) > 0);
  }
  return 0;
}
