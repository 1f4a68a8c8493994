// The checksums in checkpoints: against accidents, not against malice.
//
// Both take pieces, and give for them what they give for all their bytes in one piece. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace rubato::elastic {

using Pieces = std::vector<std::span<const std::byte>>;

// XXH3 with 64 bits: format version 2.
[[nodiscard]] std::uint64_t checksum(const Pieces& pieces);

// Format version 1, which is still read, and the digest of a job in a directory's lock file. Four
// lanes take every fourth word each, by steps that can be undone, so a change within one word is
// always seen.
[[nodiscard]] std::uint64_t checksum_v1(const Pieces& pieces);

}  // namespace rubato::elastic
