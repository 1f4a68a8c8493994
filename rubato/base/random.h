// Seeded random numbers with distributions of our own: the standard ones differ between
// libraries, and the same seed must give the same bytes everywhere.
#pragma once

#include <cmath>
#include <cstdint>

#include "rubato/base/namespaces.h"

namespace rubato::base {

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  // A generator of its own for part `stream`, so that adding a draw in one part shifts no other.
  [[nodiscard]] Random split(std::uint64_t stream) const {
    Random mixed(state_ ^ (stream * 0xD1342543DE82EF95ULL + 0x2545F4914F6CDD1DULL));
    return Random(mixed.next());
  }

  // SplitMix64 (Steele, Lea, Flood 2014).
  std::uint64_t next() {
    state_ += 0x9E3779B97F4A7C15ULL;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30U)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27U)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31U);
  }

  // Uniform in [0, 1).
  double uniform() { return static_cast<double>(next() >> 11U) * 0x1.0p-53; }
  double uniform(double low, double high) { return low + (high - low) * uniform(); }

  // Uniform in 0..bound-1; the bias of the multiply is below 2^-32 for the bounds in use.
  std::uint64_t below(std::uint64_t bound) {
    return static_cast<std::uint64_t>((static_cast<__uint128_t>(next()) * bound) >> 64U);
  }

  double log_uniform(double low, double high) {
    return low * std::exp(uniform() * std::log(high / low));
  }
  double exponential(double mean) { return -mean * std::log1p(-uniform()); }

 private:
  std::uint64_t state_;
};

}  // namespace rubato::base
