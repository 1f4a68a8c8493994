// Units that must not be mixed up.
#pragma once

#include <compare>
#include <cstdint>
#include <limits>

#include "rubato/base/namespaces.h"
#include "rubato/base/time.h"

namespace rubato::base {

// GPU-time, exact: GPUs x microseconds as an integer, so that limits are reached at one
// well-defined instant whatever the number of additions on the way.
class GpuTime {
 public:
  constexpr GpuTime() = default;
  // Sums and products stop at the largest number, 290,000 GPU-years, instead of overflowing.
  static constexpr GpuTime of(int gpus, Duration held) {
    std::int64_t product = 0;
    const bool over = __builtin_mul_overflow(std::int64_t{gpus}, held.count(), &product);
    return GpuTime(over ? kMost : product);
  }
  static constexpr GpuTime micros(std::int64_t gpu_micros) { return GpuTime(gpu_micros); }
  static GpuTime from_gpu_seconds(double s) { return GpuTime(from_seconds(s).count()); }

  [[nodiscard]] constexpr double gpu_seconds() const { return static_cast<double>(micros_) / 1e6; }
  [[nodiscard]] constexpr std::int64_t gpu_micros() const { return micros_; }

  // How long `gpus` GPUs must be held to gather this much, rounded up so that it is surely reached.
  [[nodiscard]] constexpr Duration held_by(int gpus) const {
    return Duration(micros_ / gpus + (micros_ % gpus > 0 ? 1 : 0));
  }

  friend constexpr auto operator<=>(GpuTime, GpuTime) = default;
  friend constexpr GpuTime operator+(GpuTime a, GpuTime b) {
    std::int64_t sum = 0;
    const bool over = __builtin_add_overflow(a.micros_, b.micros_, &sum);
    return GpuTime(over ? kMost : sum);
  }
  friend constexpr GpuTime operator-(GpuTime a, GpuTime b) {
    return GpuTime(a.micros_ - b.micros_);
  }
  constexpr GpuTime& operator+=(GpuTime other) { return *this = *this + other; }

 private:
  static constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

  constexpr explicit GpuTime(std::int64_t micros) : micros_(micros) {}
  std::int64_t micros_ = 0;
};

// Work is counted in the job's own unit (seconds at the requested size, iterations, samples);
// a WorkRate is that unit per second.
using Work = double;
using WorkRate = double;

}  // namespace rubato::base
