// Takes any bytes as a file, plain or gzip. The result must be an error, or a text within the
// limits.
#include <cstddef>
#include <cstdint>
#include <string>
#include <sys/mman.h>
#include <unistd.h>

#include "rubato/base/check.h"
#include "rubato/sim/text_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace rubato::fuzz;
  const int file = memfd_create("input", 0);
  CHECK(file >= 0);
  CHECK(write(file, data, size) == static_cast<ssize_t>(size));
  const TextLimits limits{.bytes = 1U << 20U, .line = 1U << 12U};
  const auto text = read_text_file("/proc/self/fd/" + std::to_string(file), limits);
  if (text.ok()) CHECK(text->size() <= limits.bytes);
  close(file);
  return 0;
}
