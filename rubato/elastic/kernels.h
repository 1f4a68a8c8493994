// The loops over gradients: copying and adding floats, and looking at them while they pass by.
//
// The bits of what is written depend on the inputs alone: each element is copied or added by
// itself. The squared norm is added up in blocks of kBlock elements with kLanes lanes each (floats
// inside a block, doubles over them: the noise of gradients needs no more), an order that
// depends on the number of elements only: not on alignment, and not on the instructions that the
// compiler chooses.
//
// Pure; the ranges must not overlap. Plain copies and additions run at the speed of memory;
// measuring takes longer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace rubato::elastic {

constexpr std::size_t kBlock = 4096;
constexpr std::size_t kLanes = 16;
// The most, relative, by which rounding may move the norm: half a unit in the last of 24 binary
// places for each addition in a lane and for adding up the lanes. In practice a hundredth of it.
constexpr double kNormError = (static_cast<double>(kBlock) / kLanes + 5) / (1 << 24);

struct Measured {
  double sqr_norm = 0;
  bool finite = true;  // neither infinite nor not a number, every one of them
};

void copy(std::span<float> into, std::span<const float> from);
void add(std::span<float> into, std::span<const float> from);

// The same, and what `from` is like.
[[nodiscard]] Measured copy_measured(std::span<float> into, std::span<const float> from);
[[nodiscard]] Measured add_measured(std::span<float> into, std::span<const float> from);
[[nodiscard]] Measured measure(std::span<const float> from);

// XXH3 with 64 bits: tells apart states that differ by accident, not by attack. To hash several
// pieces, give each the hash of the one before as its seed.
[[nodiscard]] std::uint64_t hash(std::span<const std::byte> bytes, std::uint64_t seed);

}  // namespace rubato::elastic
