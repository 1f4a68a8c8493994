// The loops over gradients: they copy and add floats, and can measure them on the way.
//
// The bits that are written depend only on the inputs, because each element is copied or added by
// itself. The squared norm is summed in blocks of kBlock elements with kLanes lanes each. Sums are
// floats inside a block and doubles over the blocks, which is exact enough for gradient noise. The
// order depends only on the number of elements: not on alignment, and not on the instructions that
// the compiler chooses.
//
// Pure. The ranges must not overlap. Plain copies and additions run at the speed of memory.
// Measuring takes longer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace rubato::elastic {

constexpr std::size_t kBlock = 4096;
constexpr std::size_t kLanes = 16;
// The largest relative error of the norm by rounding: half a unit in the last of 24 binary places
// for each addition in a lane and for each addition of lanes. In practice the error is a hundredth
// of it.
constexpr double kNormError = (static_cast<double>(kBlock) / kLanes + 5) / (1 << 24);

struct Measured {
  double sqr_norm = 0;
  bool finite = true;  // no element is infinite or not a number
};

void copy(std::span<float> into, std::span<const float> from);
void add(std::span<float> into, std::span<const float> from);
// Copies each element, multiplied by the factor.
void scale(std::span<float> into, std::span<const float> from, float factor);

// The same, and measures `from`.
[[nodiscard]] Measured copy_measured(std::span<float> into, std::span<const float> from);
[[nodiscard]] Measured add_measured(std::span<float> into, std::span<const float> from);
[[nodiscard]] Measured measure(std::span<const float> from);

// XXH3 with 64 bits. It detects states that differ by accident, not by attack. To hash several
// pieces, use the hash of each piece as the seed of the next one.
[[nodiscard]] std::uint64_t hash(std::span<const std::byte> bytes, std::uint64_t seed);

}  // namespace rubato::elastic
