// The decision of the adaptive mode: the batch size of a job on its present GPUs, and the learning
// rate that follows from it (the agent of Pollux, Qiao et al., OSDI'21, section 4.1).
//
// Measured steps are averaged by (nodes, GPUs, m, s). The means are fitted to a StepTime
// (model/fit.h). With the gradient noise, this gives the goodput (model/goodput.h). The choice is:
//
//   nothing measured yet      the smallest batch that fills the GPUs, at least M0
//   on other GPUs than before the batch of the highest goodput: the change costs its step anyway
//   else                      the same, but only for a gain of more than 5%
//
// A choice makes a new fit if a kind of step was measured that the last fit did not know, or if 30
// more steps were measured. A mean covers about its last 300 steps, because the speed of a machine
// changes with its neighbours.
//
// Deviations from Pollux: it fits every 30 seconds. Ours fits by steps, because a decision must
// depend on the measurements and not on a clock. Its agent uses preconditioned gradients for Adam.
// Here the caller gives plain norms.
//
// The first step after any change (workers, batch, data) fills caches and waits for others. The
// caller must not report it.
//
// Pure and deterministic. A value for one thread. The leader holds it. It moves to the next leader,
// and into checkpoints, as JSON.
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
  double learning_rate_factor = 1;  // factor on the learning rate that was tuned for M0
  double goodput = 0;               // predicted, samples per second; 0 before the first fit
  std::string reason;               // one line with the numbers, for the log and the page
};

class Tuner {
 public:
  explicit Tuner(const TunerLimits& limits);

  // Adds one step. False if it is impossible (a clock that jumped); it is then ignored.
  bool measured(const StepMeasurement& step);
  // batch_ratio is M/M0 of the step. `gradients` is that of the last of `steps` steps. Older
  // knowledge fades by all of them.
  void noise(const MicroGradients& gradients, double batch_ratio, int steps = 1);
  void noise(const SuccessiveGradients& gradients, double batch_ratio, int steps = 1);

  // The batch for the next steps on `place`. Until now they ran with `current` on `current_gpus`.
  // An error if the limits allow no batch on so many GPUs.
  [[nodiscard]] Result<Choice> choose(const Footprint& place, const Batch& current,
                                      int current_gpus);

  // The fit that the last choice was based on.
  [[nodiscard]] const std::optional<StepTime>& step_time() const { return fit_; }
  [[nodiscard]] GradientNoise noise() const;
  // The mean of the steps that were measured there. nullopt if there are none.
  [[nodiscard]] std::optional<StepMeasurement> mean(const Footprint& place,
                                                    const Batch& batch) const;

  // Everything that was learned. Not the limits, because their owner may have changed them since.
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
  // The fields of NoiseAverage (model/gradient_noise.h), public so that they can be written and
  // read back without changing a bit. A test checks that both give the same results.
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
  bool new_key_ = false;  // whether one was added since the last fit
  int new_steps_ = 0;
};

}  // namespace rubato::elastic
