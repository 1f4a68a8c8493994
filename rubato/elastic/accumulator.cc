#include "rubato/elastic/accumulator.h"

#include <algorithm>
#include <new>
#include <utility>

#include "rubato/base/check.h"

namespace rubato::elastic {
namespace {

constexpr std::size_t kTile = 4 * kBlock;
constexpr std::size_t kSlotAlignment = 64;

}  // namespace

void Accumulator::FreeAligned::operator()(float* floats) const {
  ::operator delete (floats, std::align_val_t{kSlotAlignment});
}

std::span<float> Accumulator::slot(int index) {
  CHECK(index >= 0);
  const auto place = static_cast<std::size_t>(index);
  if (slots_.size() <= place) slots_.resize(place + 1);
  if (!slots_[place]) {
    slots_[place].reset(static_cast<float*>(
        ::operator new (layout_.total * sizeof(float), std::align_val_t{kSlotAlignment})));
  }
  return {slots_[place].get(), layout_.total};
}

void Accumulator::begin(const LeafStep& step, bool measure, std::function<void(int)> bucket_ready) {
  for (int i = 0; i <= std::max(step.slot, step.merge_from); ++i) (void)slot(i);
  running_ = true;
  step_ = step;
  measure_ = measure;
  bucket_ready_ = std::move(bucket_ready);
  const std::size_t parameters = layout_.parameters.size();
  arrived_.assign(parameters, false);
  sqr_norms_.assign(parameters, 0);
  missing_.assign(layout_.buckets.size(), 0);
  for (const int bucket : layout_.bucket_of) ++missing_[static_cast<std::size_t>(bucket)];
  next_bucket_ = 0;
  finite_ = true;
}

void Accumulator::add(int parameter, std::span<const float> gradient, float weight) {
  CHECK(running_ && !arrived(parameter));
  const Piece& piece = layout_.parameters[static_cast<std::size_t>(parameter)];
  CHECK(gradient.size() == piece.count);
  deposit(piece.offset, gradient, weight, parameter);
  count_arrival(parameter);
}

Measured Accumulator::finish(std::span<const float> tail) {
  CHECK(running_ && tail.size() == layout_.buckets.back().count);
  add_absent();
  deposit(layout_.buckets.back().offset, tail, 1, -1);
  running_ = false;
  if (bucket_ready_) bucket_ready_(layout_.tail());
  Measured measured;
  for (const double norm : sqr_norms_) measured.sqr_norm += norm;
  measured.finite = finite_;
  return measured;
}

// `parameter` < 0 means the tail, which is never measured.
void Accumulator::deposit(std::size_t offset, std::span<const float> values, float weight,
                          int parameter) {
  for (std::size_t at = 0; at < values.size(); at += kTile) {
    const std::size_t count = std::min(kTile, values.size() - at);
    deposit_tile(offset + at, values.subspan(at, count), weight, parameter);
  }
}

// Copies or adds, then merges.
void Accumulator::deposit_tile(std::size_t offset, std::span<const float> values, float weight,
                               int parameter) {
  const auto part = [&](int index) {
    return std::span(slots_[static_cast<std::size_t>(index)].get() + offset, values.size());
  };
  const std::span<float> into = part(step_.slot);
  const bool measured = measure_ && parameter >= 0;
  if (step_.fresh && !measured) {
    scale(into, values, weight);
  } else {
    if (weight != 1) {
      weighted_.resize(kTile);
      const std::span<float> weighted = std::span(weighted_).first(values.size());
      scale(weighted, values, weight);
      values = weighted;
    }
    add_tile(into, values, measured ? parameter : -1);
  }
  for (int n = step_.merge_from; n > step_.merge_to; --n) elastic::add(part(n - 1), part(n));
}

void Accumulator::add_tile(std::span<float> into, std::span<const float> values, int measured) {
  if (measured < 0) return elastic::add(into, values);
  const Measured about = step_.fresh ? copy_measured(into, values) : add_measured(into, values);
  sqr_norms_[static_cast<std::size_t>(measured)] += about.sqr_norm;
  finite_ = finite_ && about.finite;
}

void Accumulator::count_arrival(int parameter) {
  const auto place = static_cast<std::size_t>(parameter);
  arrived_[place] = true;
  --missing_[static_cast<std::size_t>(layout_.bucket_of[place])];
  if (!bucket_ready_) return;
  while (next_bucket_ < layout_.tail() && missing_[static_cast<std::size_t>(next_bucket_)] == 0) {
    bucket_ready_(next_bucket_++);
  }
}

// Zeros are added like any gradient. In another process the same leaf may have a slot of its own,
// whose zeros are added. So -0.0 + 0.0 becomes 0.0 in both processes or in none.
void Accumulator::add_absent() {
  static const std::vector<float> zeros(kTile);
  for (std::size_t i = layout_.parameters.size(); i-- > 0;) {  // the order of the buckets
    if (arrived_[i]) continue;
    const Piece& piece = layout_.parameters[i];
    for (std::size_t at = 0; at < piece.count; at += kTile) {
      deposit_tile(piece.offset + at, std::span(zeros).first(std::min(kTile, piece.count - at)), 1,
                   static_cast<int>(i));
    }
    count_arrival(static_cast<int>(i));
  }
}

}  // namespace rubato::elastic
