// Random bytes of the kernel as text: for tokens, ids and nonces, which nobody must guess.
#pragma once

#include <cstddef>
#include <string>

namespace rubato::wire {

// Two lower-case digits for each byte. `bytes` is at most 256, for which the kernel never gives
// fewer than asked.
[[nodiscard]] std::string random_hex(std::size_t bytes);

}  // namespace rubato::wire
