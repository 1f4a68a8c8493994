// Adaptive mode: what a job learns from its steps, and which batch it chooses for the next one.
//
// Every working member learns from the same words, so a new leader knows as much as the last one.
// Without `adaptive`, it only measures the gradient noise, if the options ask for it, and chooses
// nothing.
//
// This header does not need torch. It is used by the trainer's thread, and by the network's thread
// while the trainer waits in Session::next().
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "rubato/elastic/options.h"
#include "rubato/elastic/session.h"
#include "rubato/elastic/tuner.h"

namespace rubato::elastic {

class Tuning {
 public:
  explicit Tuning(const Options& options);

  // Before anything is measured: the batch of the options, in as few passes as memory allows.
  void shape_first(StepPlan& plan) const;
  // Chooses the batch of `next`, the step after `plan`, and returns its number of samples. If it
  // differs from the batch of `plan`, the reason goes to `notice`.
  [[nodiscard]] std::int64_t choose(const StepPlan& plan, StepPlan& next, int workers,
                                    int next_workers,
                                    const std::function<void(const Json&)>& notice);

  // Whether the norm of each leaf's gradient is needed in this step.
  [[nodiscard]] bool measures_noise(std::int64_t step) const;
  // How long this worker took for a step.
  struct Times {
    double step_seconds = 0;
    double compute_seconds = 0;
    int leaves = 0;
  };
  // `gradient` is the part of the result that holds gradients.
  void learn(const Session::Completed& completed, std::span<const float> gradient, int workers,
             const Times& times);
  // The step after a change of members is not measured.
  void members_changed() { fresh_members_ = true; }

  // The fields of a report on this step from which a scheduler can predict with the same model.
  void describe(const StepPlan& plan, int workers, Json& report) const;

  // Everything that was learned. Null if not adaptive.
  [[nodiscard]] Json to_json() const;
  // Takes what another worker or a checkpoint has. Ignores what cannot be read.
  void take(const Json& json);

 private:
  void learn_noise(const Session::Completed& completed, std::span<const float> gradient);

  bool adaptive_;
  bool measure_noise_;
  int batch_;
  TunerLimits limits_;
  Tuner tuner_;
  std::vector<float> before_;  // if there is one leaf: the gradient of the step `before_step_`
  std::int64_t before_step_ = 0;
  StepPlan learned_;  // the last step that was learned from
  int learned_workers_ = 0;
  bool fresh_members_ = true;
};

}  // namespace rubato::elastic
