// Random bytes of the kernel as text, for tokens, ids and nonces that nobody must guess.
#pragma once

#include <cstddef>
#include <string>

namespace rubato::wire {

// Two lower-case hexadecimal digits per byte. `bytes` is at most 256. The kernel never returns
// fewer bytes than asked for up to that size.
[[nodiscard]] std::string random_hex(std::size_t bytes);

}  // namespace rubato::wire
