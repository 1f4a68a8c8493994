// What a scheduler can know about a job that changes its batch size by itself while it trains.
//
// It knows which batch sizes the job may use, how fast each is, how many epochs the job has in all,
// and which batch sizes it has used so far. It does not know when the next change comes. rate() is
// the present speed: whoever asks for no more only reacts to changes. seconds_left() predicts, as
// Shockwave does (Zheng et al., NSDI'23; read in its published code):
//
//   posterior(b) = epochs / batch sizes + epochs so far with b, with the present one
//   rest(b)      = epochs x posterior(b) / sum of all posteriors - epochs so far with b, not below
//   0 seconds left = epochs left x mean of the seconds of an epoch with b, weighted by rest(b)
//
// (The published code rounds the sum of the rests up to whole epochs and scales by it. Here the
// mean is exact, and a part of an epoch counts as a part.)
//
// Work is in steps with the first batch: a step with twice the batch does two.
//
// Pure and immutable: a change of the batch makes a new one.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "rubato/core/speed.h"

namespace rubato::model {

// The speed with one batch size.
struct BatchSpeed {
  std::shared_ptr<const SpeedModel> steps;  // of this batch
  double factor = 1;                        // the batch relative to the first one

  [[nodiscard]] WorkRate rate(const Shape& shape) const { return factor * steps->rate(shape); }
  [[nodiscard]] WorkRate beside(const Shape& shape, const BatchSpeed& other) const {
    return factor * steps->beside(shape, *other.steps);
  }
  friend bool operator==(const BatchSpeed&, const BatchSpeed&) = default;
};

class BatchForecast final : public SpeedModel {
 public:
  struct Mode {
    BatchSpeed speed;
    double epochs_before = 0;  // with this batch, before the last change
  };

  // `now` is the present mode. `epoch`: the work of one.
  BatchForecast(std::vector<Mode> modes, std::size_t now, Work work, Work epoch);

  [[nodiscard]] WorkRate rate(const Shape& shape) const override {
    return modes_[now_].speed.rate(shape);
  }
  [[nodiscard]] WorkRate beside(const Shape& shape, const SpeedModel& other) const override;
  [[nodiscard]] double seconds_left(const Shape& shape, Work left) const override;
  [[nodiscard]] std::span<const int> measured() const override {
    return modes_[now_].speed.steps->measured();
  }

  // How long the work so far has taken on such GPUs.
  [[nodiscard]] double seconds_done(const Shape& shape, Work left) const;

 private:
  // Epochs so far with this mode.
  [[nodiscard]] double epochs_with(std::size_t mode, Work left) const;

  std::vector<Mode> modes_;
  std::size_t now_;
  Work work_;
  Work epoch_;
  double before_ = 0;  // epochs of all modes before the last change
};

}  // namespace rubato::model
