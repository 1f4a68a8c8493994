#include "rubato/elastic/samples.h"

#include <algorithm>
#include <cmath>

#include "rubato/base/check.h"
#include "rubato/base/random.h"

namespace rubato::elastic {
namespace {

constexpr unsigned kRounds = 8;

// Separates the hashes of (round, half) within one epoch.
constexpr std::uint64_t kSpread = 0xA24BAED4963EE407ULL;
// Separates the marks from the permutations.
constexpr std::uint64_t kMarkSeed = 0x5361'6D70'6C65'4D6BULL;

std::uint64_t shifted(std::uint64_t value, std::uint64_t modulus, std::uint64_t key, unsigned round,
                      std::uint64_t other) {
  const std::uint64_t shift = Random(key ^ ((other * kRounds + round) * kSpread)).below(modulus);
  const std::uint64_t sum = value + shift;
  return sum >= modulus ? sum - modulus : sum;
}

}  // namespace

Positions leaf_positions(const Slice& step, int leaves, int leaf) {
  CHECK(leaves >= 1 && leaf >= 0 && leaf < leaves && step.samples >= 0);
  const std::int64_t size = step.samples / leaves;
  const std::int64_t larger = step.samples % leaves;
  const auto start = [&](std::int64_t v) { return step.cursor + v * size + std::min(v, larger); };
  return {start(leaf), start(leaf + std::int64_t{1})};
}

int existing_leaves(const Slice& step, int leaves) {
  CHECK(leaves >= 1);
  return static_cast<int>(std::min<std::int64_t>(leaves, step.samples));
}

std::uint64_t sample_mark(std::int64_t epoch, std::int64_t index) {
  const auto of_epoch = Random(kMarkSeed ^ static_cast<std::uint64_t>(epoch)).next();
  return Random(of_epoch ^ (static_cast<std::uint64_t>(index) * kSpread)).next();
}

SampleOrder::SampleOrder(std::int64_t samples, std::uint64_t seed, bool shuffled,
                         std::int64_t per_epoch)
    : samples_(samples),
      per_epoch_(per_epoch > 0 ? per_epoch : samples),
      seed_(seed),
      shuffled_(shuffled) {
  CHECK(samples >= 1 && samples <= (std::int64_t{1} << 50) && per_epoch_ <= samples);
  const auto count = static_cast<std::uint64_t>(samples);
  rows_ = static_cast<std::uint64_t>(std::ceil(std::sqrt(static_cast<double>(samples))));
  columns_ = (count + rows_ - 1) / rows_;
}

std::int64_t SampleOrder::index(std::int64_t epoch, std::int64_t position) const {
  CHECK(epoch >= 0 && position >= 0 && position < samples_);
  if (!shuffled_) return position;
  const std::uint64_t key = Random(seed_).split(static_cast<std::uint64_t>(epoch)).next();
  auto point = static_cast<std::uint64_t>(position);
  do {
    std::uint64_t row = point / columns_;
    std::uint64_t column = point % columns_;
    for (unsigned round = 0; round < kRounds; round += 2) {
      row = shifted(row, rows_, key, round, column);
      column = shifted(column, columns_, key, round + 1, row);
    }
    point = row * columns_ + column;
  } while (point >= static_cast<std::uint64_t>(samples_));
  return static_cast<std::int64_t>(point);
}

Slice SampleOrder::at(std::int64_t epoch, std::int64_t cursor, std::int64_t batch) const {
  CHECK(batch >= 1);
  return {epoch, cursor, std::min(batch, per_epoch_ - cursor)};
}

Slice SampleOrder::first(std::int64_t batch) const { return at(0, 0, batch); }

Slice SampleOrder::next(const Slice& step, std::int64_t batch) const {
  const std::int64_t cursor = step.cursor + step.samples;
  CHECK(cursor <= per_epoch_);
  return cursor == per_epoch_ ? at(step.epoch + 1, 0, batch) : at(step.epoch, cursor, batch);
}

std::uint64_t SampleOrder::epoch_mark(std::int64_t epoch) const {
  std::uint64_t sum = 0;
  for (std::int64_t i = 0; i < per_epoch_; ++i) {
    sum += sample_mark(epoch, per_epoch_ == samples_ ? i : index(epoch, i));
  }
  return sum;
}

}  // namespace rubato::elastic
