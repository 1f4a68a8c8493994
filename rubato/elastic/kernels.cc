#include "rubato/elastic/kernels.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "rubato/base/check.h"

// g++ vectorises these loops at -O3 only; clang does at -O2.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3")
#endif

namespace rubato::elastic {
namespace {

enum class Action { copy, add, look };

// One block: the action, the squares in their lanes, and whether an exponent is all ones, which is
// what infinities and NaNs have in common.
template <Action action>
double pass_block(float* __restrict into, const float* __restrict from, std::size_t count,
                  std::uint32_t& not_finite) {
  constexpr std::uint32_t kExponent = 0x7F800000U;
  std::array<double, kLanes> lanes{};
  std::array<std::uint32_t, kLanes> seen{};
  const auto element = [&](std::size_t i, std::size_t lane) {
    const float value = from[i];
    if constexpr (action == Action::copy) into[i] = value;
    if constexpr (action == Action::add) into[i] += value;
    lanes[lane] += static_cast<double>(value) * static_cast<double>(value);
    seen[lane] |= (std::bit_cast<std::uint32_t>(value) & kExponent) == kExponent ? ~0U : 0U;
  };
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) element(i + lane, lane);
  }
  for (std::size_t lane = 0; i < count; ++i, ++lane) element(i, lane);
  for (const std::uint32_t lane : seen) not_finite |= lane;
  for (std::size_t half = kLanes / 2; half > 0; half /= 2) {
    for (std::size_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  }
  return lanes[0];
}

template <Action action>
Measured pass(float* into, std::span<const float> from) {
  Measured measured;
  std::uint32_t not_finite = 0;
  for (std::size_t at = 0; at < from.size(); at += kBlock) {
    float* const target = action == Action::look ? nullptr : into + at;
    measured.sqr_norm += pass_block<action>(target, from.data() + at,
                                            std::min(kBlock, from.size() - at), not_finite);
  }
  measured.finite = not_finite == 0;
  return measured;
}

// Both halves of the product, because the upper bits of a word reach the upper half only: with the
// lower half alone a flipped sign would move one known bit, and a second flip could undo it.
std::uint64_t mixed(std::uint64_t state, std::uint64_t word) {
  const __uint128_t product = static_cast<__uint128_t>(state ^ word) * 0x9E3779B97F4A7C15ULL;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64U);
}

std::uint64_t word_at(const std::byte* place, std::size_t bytes = sizeof(std::uint64_t)) {
  std::uint64_t word = 0;
  std::memcpy(&word, place, bytes);
  return word;
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
  constexpr std::size_t kWords = 8;  // chains side by side, so that no multiplication waits
  std::array<std::uint64_t, kWords> chains;
  for (std::size_t i = 0; i < kWords; ++i) chains[i] = mixed(seed, i + 1);
  const std::byte* place = bytes.data();
  std::size_t left = bytes.size();
  for (; left >= kWords * sizeof(std::uint64_t); left -= kWords * sizeof(std::uint64_t)) {
    for (std::uint64_t& chain : chains) {
      chain = mixed(chain, word_at(place));
      place += sizeof(std::uint64_t);
    }
  }
  std::uint64_t state = mixed(seed, bytes.size());
  for (const std::uint64_t chain : chains) state = mixed(state, chain);
  for (; left >= sizeof(std::uint64_t); left -= sizeof(std::uint64_t)) {
    state = mixed(state, word_at(place));
    place += sizeof(std::uint64_t);
  }
  if (left > 0) state = mixed(state, word_at(place, left));
  return mixed(state, 0x2545F4914F6CDD1DULL);
}

}  // namespace rubato::elastic
