// The checksums in checkpoints. They detect accidental damage, not attacks.
//
// Both functions take the bytes in pieces. The result is the same as for all bytes in one piece.
// Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace rubato::elastic {

using Pieces = std::vector<std::span<const std::byte>>;

// XXH3 with 64 bits, for format version 2.
[[nodiscard]] std::uint64_t checksum(const Pieces& pieces);

// The checksum of format version 1, which can still be read. Also the digest of a job in a
// directory's lock file. Four lanes take every fourth word each. Each step of a lane can be undone,
// so a change within one word always changes the checksum.
[[nodiscard]] std::uint64_t checksum_v1(const Pieces& pieces);

}  // namespace rubato::elastic
