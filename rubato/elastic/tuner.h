// The adaptive mode's decision: which batch a job trains with where it runs now, and how its
// learning rate follows (the agent of Pollux, Qiao et al., OSDI'21, section 4.1).
//
// Steps as they are measured become means by (nodes, GPUs, m, s), the means become a StepTime
// (model/fit.h), and with the gradient noise that gives goodput (model/goodput.h):
//
//   nothing measured yet      the smallest batch that fills the GPUs, at least M0
//   on other GPUs than before the batch of the highest goodput: the change costs its step anyway
//   else                      the same, but only for a gain of more than 5%
//
// A fit is made when a choice is asked for and a kind of step was measured that the last one did
// not know, or 30 steps were. A mean follows its last 300 steps or so, because the speed of a
// machine changes with its neighbours.
//
// Deviates: Pollux fits every 30 seconds, ours by steps, because a decision must be a function of
// what was measured and not of a clock; and its agent takes preconditioned gradients for Adam,
// where the caller here gives plain norms.
//
// The first step after any change (workers, batch, data) warms caches and waits for others;
// the caller must not report it.
//
// Pure and deterministic; a value that belongs to one thread. It lives at the leader and moves
// to the next one, and into checkpoints, as JSON.
#pragma once

#include <compare>
#include <map>
#include <optional>
#include <string>

#include "rubato/base/json.h"
#include "rubato/base/result.h"
#include "rubato/model/goodput.h"
#include "rubato/model/gradient_noise.h"
#include "rubato/model/learning_rate.h"
#include "rubato/model/step_measurement.h"

namespace rubato::elastic {

struct TunerLimits {
  BatchLimits limits;
  LearningRateRule rule = LearningRateRule::adascale;
};

struct Choice {
  Batch batch;
  double learning_rate_factor = 1;  // on the learning rate tuned for M0
  double goodput = 0;               // predicted, samples per second; 0 before the first fit
  std::string reason;               // one line with the numbers, for the log and the page
};

class Tuner {
 public:
  explicit Tuner(const TunerLimits& limits);

  // One step. False if it cannot be (a clock that jumped); it is then ignored.
  bool measured(const StepMeasurement& step);
  // batch_ratio is M/M0 of the step.
  // Of the last of so many `steps`; what was known before fades by all of them.
  void noise(const MicroGradients& gradients, double batch_ratio, int steps = 1);
  void noise(const SuccessiveGradients& gradients, double batch_ratio, int steps = 1);

  // For the next steps on `place`; so far they ran with `current` on `current_gpus`. An error if
  // the limits allow no batch on so many GPUs.
  [[nodiscard]] Result<Choice> choose(const Footprint& place, const Batch& current,
                                      int current_gpus);

  // What the last choice was based on.
  [[nodiscard]] const std::optional<StepTime>& step_time() const { return fit_; }
  [[nodiscard]] GradientNoise noise() const;
  // The mean of the steps that were measured there; nullopt if none was.
  [[nodiscard]] std::optional<StepMeasurement> mean(const Footprint& place,
                                                    const Batch& batch) const;

  // All that was learned; the limits are the owner's and may have changed since.
  [[nodiscard]] Json to_json() const;
  [[nodiscard]] static Result<Tuner> from_json(const TunerLimits& limits, const Json& json);

 private:
  struct Key {
    int nodes = 1;
    int gpus = 1;
    int per_gpu = 1;
    int accumulation = 0;
    friend auto operator<=>(const Key&, const Key&) = default;
  };
  struct Mean {
    double step_seconds = 0;
    double grad_seconds = 0;
    int count = 0;
  };
  // What NoiseAverage is (model/gradient_noise.h), open so that it can be written and read back
  // without a changed bit; a test holds the two together.
  struct Noise {
    double sqr = 0;
    double var = 0;
    double weight = 0;
    bool differenced = false;
    void add(const GradientNoise& estimate, double batch_ratio);
  };

  void refit();
  [[nodiscard]] bool allowed(const Batch& batch, int gpus) const;
  [[nodiscard]] Choice chosen(const Batch& batch, int gpus, double goodput) const;

  TunerLimits limits_;
  std::map<Key, Mean> means_;
  Noise noise_;
  std::optional<StepTime> fit_;
  bool new_key_ = false;  // since the last fit
  int new_steps_ = 0;
};

}  // namespace rubato::elastic
