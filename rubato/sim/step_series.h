// A step function of time, stored as averages over at most `buckets` equal intervals. When time
// passes the last one, pairs are merged. So memory is fixed, and the end need not be known.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

#include "rubato/base/time.h"

namespace rubato::sim {

template <std::size_t Values>
class StepSeries {
 public:
  using Row = std::array<double, Values>;

  explicit StepSeries(std::size_t buckets) : most_(buckets) {}

  // The values from `from` to `to`. Calls must be in order of time.
  void add(Time from, Time to, const Row& values) {
    while (to > kStart + width_ * static_cast<Duration::rep>(most_)) merge_pairs();
    while (from < to) {
      const auto bucket = static_cast<std::size_t>((from - kStart) / width_);
      if (bucket >= sums_.size()) sums_.resize(bucket + 1, Row{});
      const Time end = std::min(to, kStart + width_ * static_cast<Duration::rep>(bucket + 1));
      for (std::size_t v = 0; v < Values; ++v) sums_[bucket][v] += values[v] * seconds(end - from);
      from = end;
    }
    end_ = std::max(end_, to);
  }

  [[nodiscard]] std::size_t size() const { return sums_.size(); }
  [[nodiscard]] double start_s(std::size_t bucket) const {
    return seconds(width_) * static_cast<double>(bucket);
  }
  [[nodiscard]] double end_s() const { return seconds(end_); }
  [[nodiscard]] double mean(std::size_t bucket, std::size_t value) const {
    const double length = std::min(seconds(width_), end_s() - start_s(bucket));
    return length > 0 ? sums_[bucket][value] / length : 0;
  }

 private:
  void merge_pairs() {
    for (std::size_t i = 0; i < sums_.size(); i += 2) {
      Row sum = sums_[i];
      for (std::size_t v = 0; i + 1 < sums_.size() && v < Values; ++v) sum[v] += sums_[i + 1][v];
      sums_[i / 2] = sum;
    }
    sums_.resize((sums_.size() + 1) / 2);
    width_ *= 2;
  }

  std::size_t most_;
  Duration width_{1'000'000};
  Time end_ = kStart;
  std::vector<Row> sums_;
};

}  // namespace rubato::sim
