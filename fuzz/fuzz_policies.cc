// Takes any bytes as a list of policies. The result must be one line of error, or canonical names
// that read back as themselves.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "rubato/base/check.h"
#include "rubato/policy/all.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace rubato::fuzz;
  const auto chosen = parse_policies({reinterpret_cast<const char*>(data), size});
  if (!chosen) {
    const std::string& message = chosen.error().message;
    CHECK(!message.empty() && message.size() < 1000);
    CHECK(std::all_of(message.begin(), message.end(),
                      [](unsigned char c) { return c >= 0x20 && c < 0x7F; }));
    return 0;
  }
  for (const auto& policy : *chosen) {
    const auto again = parse_policies(policy.canonical);
    CHECK(again.ok() && again->size() == 1 && again->front().canonical == policy.canonical);
    const auto made = policy.make({[](const std::string&) -> Result<std::vector<double>> {
      return std::vector<double>{1, 10, 100};
    }});
    CHECK(made.ok() || !made.error().message.empty());
  }
  return 0;
}
