// Takes any bytes as JSON. The result must be an error, or a value that is written and read back
// unchanged.
#include <cstddef>
#include <cstdint>

#include "rubato/base/check.h"
#include "rubato/base/json.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace rubato::fuzz;
  const auto value = parse_json({reinterpret_cast<const char*>(data), size}, "input");
  if (!value) return 0;
  const auto text = value->dump();
  const auto again = parse_json(text, "input");
  CHECK(again.ok() && again->dump() == text);
  return 0;
}
