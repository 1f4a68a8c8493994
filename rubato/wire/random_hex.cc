#include "rubato/wire/random_hex.h"

#include <array>
#include <fmt/format.h>
#include <iterator>
#include <sys/random.h>

#include "rubato/base/check.h"

namespace rubato::wire {

std::string random_hex(std::size_t bytes) {
  std::array<unsigned char, 256> random{};
  CHECK(bytes <= random.size());
  CHECK(getrandom(random.data(), bytes, 0) == static_cast<ssize_t>(bytes));
  std::string text;
  text.reserve(2 * bytes);
  for (std::size_t i = 0; i < bytes; ++i)
    fmt::format_to(std::back_inserter(text), "{:02x}", random[i]);
  return text;
}

}  // namespace rubato::wire
