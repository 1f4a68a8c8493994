#include "rubato/elastic/straggler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>

namespace rubato::elastic {
namespace {

constexpr std::uint32_t kWindowBits = (1U << StragglerWatch::kWindow) - 1;

bool measured(const LeafTime& time) { return std::isfinite(time.seconds) && time.seconds > 0; }

// The median of a sorted list without its element `left_out`.
double median_without(const std::vector<LeafTime>& sorted, std::size_t left_out) {
  const auto other = [&](std::size_t k) { return sorted[k < left_out ? k : k + 1].seconds; };
  const std::size_t others = sorted.size() - 1;
  return (other((others - 1) / 2) + other(others / 2)) / 2;
}

}  // namespace

std::vector<Straggler> StragglerWatch::add(std::int64_t step, std::span<const LeafTime> times) {
  if (last_step_ == step) return {};
  if (last_step_ && step < *last_step_) workers_.clear();
  last_step_ = step;

  std::map<std::int64_t, History> present;
  std::vector<LeafTime> sorted;
  for (const auto& time : times) {
    const auto known = workers_.find(time.uid);
    present[time.uid] = known == workers_.end() ? History() : known->second;
    if (measured(time)) sorted.push_back(time);
  }
  workers_ = std::move(present);
  if (sorted.size() < 2) return {};
  std::sort(sorted.begin(), sorted.end(), [](const LeafTime& a, const LeafTime& b) {
    return a.seconds != b.seconds ? a.seconds < b.seconds : a.uid < b.uid;
  });

  const double factor = sorted.size() == 2 ? kFactorOfTwo : kFactor;
  std::vector<Straggler> found;
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    const auto& [uid, seconds] = sorted[i];
    const double median = median_without(sorted, i);
    History& history = workers_[uid];
    history.slow = ((history.slow << 1U) | (seconds > factor * median ? 1U : 0U)) & kWindowBits;
    history.steps = std::min(history.steps + 1, kWindow);
    const int slow_steps = std::popcount(history.slow);
    if (history.reported && slow_steps <= kRecovered) history.reported = false;
    if (history.reported || history.steps < kWindow || slow_steps < kSlowSteps) continue;
    history.reported = true;
    found.push_back({uid, seconds, median, slow_steps});
  }
  return found;
}

bool StragglerWatch::is_straggler(std::int64_t uid) const {
  const auto worker = workers_.find(uid);
  return worker != workers_.end() && worker->second.reported;
}

}  // namespace rubato::elastic
