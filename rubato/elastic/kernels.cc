#include "rubato/elastic/kernels.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <xxhash.h>

#include "rubato/base/check.h"

// g++ vectorises these loops only at -O3; clang does at -O2.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3")
#endif

namespace rubato::elastic {
namespace {

enum class Action { copy, add, look };

// Adds the squares of one block to their lanes.
template <class Number>
Number sum_of_squares(const float* from, std::size_t count) {
  std::array<Number, kLanes> lanes{};
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      lanes[lane] += static_cast<Number>(from[i + lane]) * static_cast<Number>(from[i + lane]);
    }
  }
  for (std::size_t lane = 0; i < count; ++i, ++lane) {
    lanes[lane] += static_cast<Number>(from[i]) * static_cast<Number>(from[i]);
  }
  for (std::size_t half = kLanes / 2; half > 0; half /= 2) {
    for (std::size_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  }
  return lanes[0];
}

// Whether any exponent is all ones. Infinities and NaNs have this in common.
bool all_finite(const float* from, std::size_t count) {
  constexpr std::uint32_t kExponent = 0x7F800000U;
  std::uint32_t seen = 0;
  for (std::size_t i = 0; i < count; ++i) {
    seen |= (std::bit_cast<std::uint32_t>(from[i]) & kExponent) == kExponent ? ~0U : 0U;
  }
  return seen == 0;
}

// A float is exact enough for one block, unless the squares are too large or too small for it. The
// sum of squares is finite only if all elements are.
void measure_block(const float* from, std::size_t count, Measured& measured) {
  constexpr float kSmallest = 1e-25F;
  constexpr float kLargest = 1e30F;
  const auto sum = sum_of_squares<float>(from, count);
  if (sum >= kSmallest && sum <= kLargest) {
    measured.sqr_norm += static_cast<double>(sum);
  } else {
    measured.finite = measured.finite && all_finite(from, count);
    measured.sqr_norm += sum_of_squares<double>(from, count);
  }
}

// Handles one block while it is in the first-level cache.
template <Action action>
void pass_block(float* __restrict into, const float* __restrict from, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    if constexpr (action == Action::copy) into[i] = from[i];
    if constexpr (action == Action::add) into[i] += from[i];
  }
}

template <Action action>
Measured pass(float* into, std::span<const float> from) {
  Measured measured;
  for (std::size_t at = 0; at < from.size(); at += kBlock) {
    const float* const source = from.data() + at;
    const std::size_t count = std::min(kBlock, from.size() - at);
    measure_block(source, count, measured);
    if constexpr (action != Action::look) pass_block<action>(into + at, source, count);
  }
  return measured;
}

}  // namespace

void copy(std::span<float> into, std::span<const float> from) {
  CHECK(into.size() == from.size());
  if (!from.empty()) std::memcpy(into.data(), from.data(), from.size_bytes());
}

void add(std::span<float> into, std::span<const float> from) {
  CHECK(into.size() == from.size());
  float* __restrict target = into.data();
  const float* __restrict source = from.data();
  const std::size_t count = from.size();
  for (std::size_t i = 0; i < count; ++i) target[i] += source[i];
}

void scale(std::span<float> into, std::span<const float> from, float factor) {
  CHECK(into.size() == from.size());
  float* __restrict target = into.data();
  const float* __restrict source = from.data();
  const std::size_t count = from.size();
  for (std::size_t i = 0; i < count; ++i) target[i] = source[i] * factor;
}

Measured copy_measured(std::span<float> into, std::span<const float> from) {
  CHECK(into.size() == from.size());
  return pass<Action::copy>(into.data(), from);
}

Measured add_measured(std::span<float> into, std::span<const float> from) {
  CHECK(into.size() == from.size());
  return pass<Action::add>(into.data(), from);
}

Measured measure(std::span<const float> from) { return pass<Action::look>(nullptr, from); }

std::uint64_t hash(std::span<const std::byte> bytes, std::uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

}  // namespace rubato::elastic
