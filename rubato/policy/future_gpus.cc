#include "rubato/policy/future_gpus.h"

#include <algorithm>

#include "rubato/base/check.h"

namespace rubato::policy {

void FutureGpus::Block::measure() {
  const auto [low, high] =
      std::minmax_element(steps.begin(), steps.begin() + static_cast<std::ptrdiff_t>(size),
                          [](const Step& a, const Step& b) { return a.free < b.free; });
  least = low->free + shift;
  most = high->free + shift;
  from = steps[0].from;
}

std::size_t FutureGpus::Block::step_at(Time when) const {
  const auto end = steps.begin() + static_cast<std::ptrdiff_t>(size);
  const auto after = std::upper_bound(steps.begin(), end, when,
                                      [](Time t, const Step& step) { return t < step.from; });
  return after == steps.begin() ? 0 : static_cast<std::size_t>(after - steps.begin()) - 1;
}

std::size_t FutureGpus::block_at(Time when) const {
  const auto after = std::upper_bound(blocks_.begin(), blocks_.end(), when,
                                      [](Time t, const Block& block) { return t < block.from; });
  return after == blocks_.begin() ? 0 : static_cast<std::size_t>(after - blocks_.begin()) - 1;
}

void FutureGpus::reset(Time from, int gpus) {
  blocks_.resize(1);
  Block& block = blocks_.front();
  block.shift = 0;
  block.size = 1;
  block.steps[0] = {from, gpus};
  block.measure();
}

int FutureGpus::at(Time when) const {
  const Block& block = blocks_[block_at(when)];
  return block.steps[block.step_at(when)].free + block.shift;
}

Time FutureGpus::first_below(Time from, int gpus) const {
  std::size_t b = block_at(from);
  std::size_t s = blocks_[b].step_at(from);
  for (; b < blocks_.size(); ++b, s = 0) {
    const Block& block = blocks_[b];
    if (block.least >= gpus) continue;
    for (; s < block.size; ++s) {
      if (block.steps[s].free + block.shift < gpus) return std::max(from, block.steps[s].from);
    }
  }
  return kNever;
}

Time FutureGpus::first_with(Time from, int gpus) const {
  std::size_t b = block_at(from);
  std::size_t s = blocks_[b].step_at(from);
  for (; b < blocks_.size(); ++b, s = 0) {
    const Block& block = blocks_[b];
    if (block.most < gpus) continue;
    for (; s < block.size; ++s) {
      if (block.steps[s].free + block.shift >= gpus) return std::max(from, block.steps[s].from);
    }
  }
  return kNever;
}

int FutureGpus::least(Time from, Time until) const {
  std::size_t b = block_at(from);
  std::size_t s = blocks_[b].step_at(from);
  int least = blocks_[b].steps[s].free + blocks_[b].shift;
  for (; b < blocks_.size() && blocks_[b].from < until; ++b, s = 0) {
    const Block& block = blocks_[b];
    if (block.least >= least) continue;
    for (; s < block.size && block.steps[s].from < until; ++s)
      least = std::min(least, block.steps[s].free + block.shift);
  }
  return least;
}

void FutureGpus::cut(Time when) {
  std::size_t b = block_at(when);
  if (when <= blocks_.front().from) return;
  std::size_t s = blocks_[b].step_at(when);
  if (blocks_[b].steps[s].from == when) return;
  if (blocks_[b].size == kBlock) {
    constexpr std::size_t kHalf = kBlock / 2;
    Block upper;
    upper.shift = blocks_[b].shift;
    upper.size = kBlock - kHalf;
    std::copy(blocks_[b].steps.begin() + kHalf, blocks_[b].steps.end(), upper.steps.begin());
    upper.measure();
    blocks_[b].size = kHalf;
    blocks_[b].measure();
    blocks_.insert(blocks_.begin() + static_cast<std::ptrdiff_t>(b) + 1, upper);
    if (s >= kHalf) {
      ++b;
      s -= kHalf;
    }
  }
  Block& block = blocks_[b];
  const auto place = block.steps.begin() + static_cast<std::ptrdiff_t>(s) + 1;
  std::copy_backward(place, block.steps.begin() + static_cast<std::ptrdiff_t>(block.size),
                     block.steps.begin() + static_cast<std::ptrdiff_t>(block.size) + 1);
  *place = {when, block.steps[s].free};
  ++block.size;
}

void FutureGpus::add(Time from, Time until, int gpus) {
  CHECK(!blocks_.empty());
  from = std::max(from, blocks_.front().from);
  if (until <= from || gpus == 0) return;
  cut(from);
  if (until != kNever) cut(until);
  for (std::size_t b = block_at(from); b < blocks_.size(); ++b) {
    Block& block = blocks_[b];
    if (block.from >= until) return;
    const bool whole = block.from >= from &&
                       (b + 1 < blocks_.size() ? blocks_[b + 1].from <= until : until == kNever);
    if (whole) {
      block.shift += gpus;
      block.least += gpus;
      block.most += gpus;
      continue;
    }
    for (std::size_t s = block.step_at(std::max(from, block.from)); s < block.size; ++s) {
      if (block.steps[s].from >= until) break;
      block.steps[s].free += gpus;
    }
    block.measure();
  }
}

}  // namespace rubato::policy
