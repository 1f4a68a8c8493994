// Takes any bytes as the name of a share. If it is one, it must be spelled as we spell it.
#include <cstddef>
#include <cstdint>
#include <string>

#include "rubato/base/check.h"
#include "rubato/engine/share_table.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace rubato::fuzz;
  const std::string name(reinterpret_cast<const char*>(data), size);
  const auto share = rubato::engine::parse_share_name("j1", name);
  if (share) CHECK(share->gpus != 0 && rubato::engine::name_of("j1", *share) == name);
  return 0;
}
