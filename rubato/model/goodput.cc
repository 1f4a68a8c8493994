#include "rubato/model/goodput.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

#include "rubato/base/check.h"

namespace rubato::model {
namespace {

constexpr int kCandidates = 50;

// The ceiling of a positive quotient that fits an int. A value only slightly above an integer
// counts as that integer. Uses a conversion, because std::ceil is a function call on baseline
// x86-64.
int round_up(double x) {
  x -= 1e-8;
  const int whole = static_cast<int>(x);
  return x > whole ? whole + 1 : whole;
}

// Splits global batches over a number of GPUs. Multiplies instead of dividing, because this is the
// inner loop of the choice.
class Splitter {
 public:
  Splitter(const BatchLimits& limits, int gpus)
      : limits_(limits),
        gpus_(gpus),
        per_gpu_(1.0 / gpus),
        per_full_pass_(1.0 / limits.per_gpu_max) {
    CHECK(gpus >= 1 && limits.initial >= 1 && limits.largest >= 1 && limits.per_gpu_min >= 1 &&
          limits.per_gpu_max >= limits.per_gpu_min);
  }

  [[nodiscard]] std::optional<Batch> split(double size) const {
    const double local = size * per_gpu_;
    int passes = std::max(round_up(local * per_full_pass_), 1);
    if (passes > 1 && !limits_.accumulate) return {};
    const bool above_initial = size > limits_.initial + 1e-8;
    if (gpus_ == 1 && above_initial && limits_.accumulate) passes = std::max(passes, 2);
    int per_gpu = round_up(passes == 1 ? local : local / passes);
    const std::int64_t micro_batches = static_cast<std::int64_t>(gpus_) * passes;
    if (micro_batches * per_gpu > limits_.largest)
      per_gpu = static_cast<int>(limits_.largest / micro_batches);
    if (per_gpu < limits_.per_gpu_min || per_gpu > limits_.per_gpu_max) return {};
    return Batch{per_gpu, passes - 1};
  }

 private:
  const BatchLimits& limits_;
  int gpus_;
  double per_gpu_;
  double per_full_pass_;
};

// Goodput = samples / (discount x seconds of a step), EFF = 1 / discount.
struct Candidate {
  Batch batch;
  double samples = 0;
  double discount = 1;
  double grad = 0;  // seconds of one pass
};

class Candidates {
 public:
  Candidates(const Goodput& goodput, int gpus)
      : time_(goodput.time),
        limits_(goodput.limits),
        gpus_(gpus),
        discount_per_sample_(goodput.noise.signal() / goodput.limits.initial) {
    const Splitter splitter(limits_, gpus);
    const double smallest = std::max(1.0 * limits_.initial, 1.0 * limits_.per_gpu_min * gpus);
    if (smallest > limits_.largest) return;
    const double ratio = std::pow(limits_.largest / smallest, 1.0 / (kCandidates - 1));
    double size = smallest;
    for (int i = 0; i < kCandidates; ++i, size *= ratio) {
      const auto batch = splitter.split(i < kCandidates - 1 ? size : limits_.largest);
      if (batch) add(*batch);
    }
  }

  [[nodiscard]] std::span<const Candidate> all() const { return {list_.data(), count_}; }

 private:
  void add(const Batch& batch) {
    if (count_ > 0 && list_[count_ - 1].batch == batch) return;
    const double samples = batch.global(gpus_);
    const double above_initial = samples - limits_.initial;
    // A batch that was cut to the largest one may be below the initial batch.
    if (above_initial < 0) return;
    list_[count_++] = {batch, samples, 1 + discount_per_sample_ * above_initial,
                       time_.grad(batch.per_gpu)};
  }

  const StepTime& time_;
  const BatchLimits& limits_;
  int gpus_;
  double discount_per_sample_;
  std::array<Candidate, kCandidates> list_;
  std::size_t count_ = 0;
};

// Goodput at one placement, and an upper bound that needs no powers: a norm such as T_optim is
// above each of its tangent planes, here the one at a chosen candidate.
class AtPlace {
 public:
  AtPlace(const StepTime& time, double sync) : time_(time), sync_(sync) {}

  [[nodiscard]] double goodput(const Candidate& c) const {
    return goodput(c, time_.optim(c.grad, sync_));
  }

  void touch(const Candidate& c) {
    const double optim = time_.optim(c.grad, sync_);
    constexpr double kRoundingRoom = 1 - 1e-12;
    by_grad_ = kRoundingRoom * std::pow(c.grad / optim, time_.overlap - 1);
    by_sync_ = kRoundingRoom * std::pow(sync_ / optim, time_.overlap - 1);
  }
  [[nodiscard]] double goodput_at_most(const Candidate& c) const {
    return goodput(c, by_grad_ * c.grad + by_sync_ * sync_);
  }

 private:
  static double goodput(const Candidate& c, double optim) {
    return c.samples / (c.discount * (c.batch.accumulation * c.grad + optim));
  }

  const StepTime& time_;
  double sync_;
  double by_grad_ = 0;
  double by_sync_ = 0;
};

}  // namespace

std::optional<Batch> spread_batch(const BatchLimits& limits, int gpus, double batch) {
  return Splitter(limits, gpus).split(batch);
}

double Goodput::efficiency(double batch) const {
  return 1 / (1 + noise.signal() * std::max(batch / limits.initial - 1, 0.0));
}

std::optional<TunedBatch> Goodput::best(const Footprint& place) const {
  const Candidates candidates(*this, place.gpus);
  const auto all = candidates.all();
  if (all.empty()) return {};
  // First a few, evenly spaced: the best of them rules out most of the others.
  constexpr std::size_t kStride = 8;
  AtPlace here(time, time.sync(place));
  std::size_t pivot = 0;
  double reached = 0;
  for (std::size_t i = std::min(kStride / 2, all.size() - 1); i < all.size(); i += kStride) {
    const double goodput = here.goodput(all[i]);
    if (goodput <= reached) continue;
    reached = goodput;
    pivot = i;
  }
  here.touch(all[pivot]);
  TunedBatch best;
  for (const auto& candidate : all) {
    if (here.goodput_at_most(candidate) < std::max(reached, best.goodput)) continue;
    const double goodput = here.goodput(candidate);
    if (goodput > best.goodput) best = {candidate.batch, goodput};
  }
  return best;
}

std::optional<TunedBatch> Goodput::fixed(const Footprint& place, int batch) const {
  const auto spread = spread_batch(limits, place.gpus, batch);
  if (!spread) return {};
  return TunedBatch{*spread, at(place, *spread)};
}

GoodputTable::GoodputTable(const Goodput& goodput, int most_gpus, std::optional<int> fixed_batch)
    : goodput_(goodput),
      fixed_batch_(fixed_batch),
      known_(2 * (static_cast<std::size_t>(most_gpus) + 1), -1) {}

double GoodputTable::at(const Footprint& place) {
  const auto slot = 2 * static_cast<std::size_t>(place.gpus) + (place.nodes > 1 ? 1 : 0);
  CHECK(place.gpus >= 1 && slot < known_.size());
  double& known = known_[slot];
  if (known < 0) {
    const auto tuned = fixed_batch_ ? goodput_.fixed(place, *fixed_batch_) : goodput_.best(place);
    known = tuned ? tuned->goodput : 0;
  }
  return known;
}

double GoodputTable::speedup(const Footprint& place, const Footprint& reference) {
  const double base = at(reference);
  return base == 0 ? 0 : at(place) / base;
}

}  // namespace rubato::model
