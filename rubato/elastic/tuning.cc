#include "rubato/elastic/tuning.h"

#include <algorithm>
#include <cmath>

namespace rubato::elastic {
namespace {

// Looking at every gradient of every step would cost too much, and the noise changes slowly.
constexpr int kStepsPerNoise = 4;

TunerLimits limits_of(const Options& options) {
  BatchLimits limits;
  limits.initial = options.batch;
  limits.largest = options.largest_batch > 0 ? options.largest_batch : 16 * options.batch;
  limits.per_gpu_max = options.largest_per_worker > 0 ? options.largest_per_worker : options.batch;
  return {limits, options.learning_rate_rule};
}

void shape(StepPlan& plan, int workers, const model::Batch& batch, double factor) {
  plan.passes = batch.accumulation + 1;
  plan.per_pass = batch.per_gpu;
  plan.leaves = workers * plan.passes;
  plan.learning_rate_factor = factor;
}

model::Batch batch_of(const StepPlan& plan) {
  return {std::max(1, plan.per_pass), plan.passes - 1};
}

std::int64_t full_batch(const StepPlan& plan) {
  return static_cast<std::int64_t>(plan.leaves) * plan.per_pass;
}

SuccessiveGradients compare(std::span<const float> before, std::span<const float> now) {
  SuccessiveGradients pair;
  for (std::size_t i = 0; i < now.size(); ++i) {
    const double x = before[i];
    const double y = now[i];
    pair.sqr_norm_before += x * x;
    pair.sqr_norm_now += y * y;
    pair.sqr_norm_mean += (x + y) * (x + y) / 4;
  }
  return pair;
}

}  // namespace

Tuning::Tuning(const Options& options)
    : adaptive_(options.adaptive),
      measure_noise_(options.measure_noise || options.adaptive),
      batch_(options.batch),
      limits_(limits_of(options)),
      tuner_(limits_) {}

void Tuning::shape_first(StepPlan& plan) const {
  const int most = limits_.limits.per_gpu_max;
  const int passes = (batch_ + most - 1) / most;
  shape(plan, 1, {(batch_ + passes - 1) / passes, passes - 1}, 1);
}

std::int64_t Tuning::choose(const StepPlan& plan, StepPlan& next, int workers, int next_workers,
                            const std::function<void(const Json&)>& notice) {
  const Result<Choice> choice = tuner_.choose({1, next_workers}, batch_of(plan), workers);
  if (!choice) {
    next = member::for_workers(next, next_workers);
    return plan.samples;
  }
  shape(next, next_workers, choice->batch, choice->learning_rate_factor);
  const auto samples = static_cast<std::int64_t>(choice->batch.global(next_workers));
  if (next.per_pass != plan.per_pass || next.leaves != plan.leaves) {
    notice({{"text", choice->reason},
            {"step", next.step},
            {"batch", samples},
            {"per_worker", choice->batch.per_gpu},
            {"accumulation", choice->batch.accumulation},
            {"factor", choice->learning_rate_factor}});
  }
  return samples;
}

bool Tuning::measures_noise(std::int64_t step) const {
  return measure_noise_ && step % kStepsPerNoise == 0;
}

void Tuning::learn(const Session::Completed& completed, std::span<const float> gradient,
                   int workers, const Times& times) {
  if (!measure_noise_) return;
  learn_noise(completed, gradient);
  const StepPlan& plan = completed.plan;
  const bool same_shape = plan.leaves == learned_.leaves && plan.samples == learned_.samples &&
                          workers == learned_workers_ && !fresh_members_;
  fresh_members_ = false;
  learned_ = plan;
  learned_workers_ = workers;
  if (!adaptive_ || !same_shape || plan.samples != full_batch(plan)) return;
  StepMeasurement measurement;
  measurement.place = {1, workers};
  measurement.batch = batch_of(plan);
  measurement.step_seconds = times.step_seconds;
  measurement.grad_seconds = times.compute_seconds / std::max(1, times.leaves);
  tuner_.measured(measurement);
}

// Uses the norms of the leaves. With a single leaf, it uses the gradients of two steps in a row.
void Tuning::learn_noise(const Session::Completed& completed, std::span<const float> gradient) {
  const StepPlan& plan = completed.plan;
  double norms = 0;
  int leaves = 0;
  for (const auto& [uid, word] : completed.words) {
    norms += word.leaf_sqr_norm;
    leaves += word.leaves;
  }
  if (!measures_noise(plan.step)) {
    if (leaves != 1 || !measures_noise(plan.step + 1)) return;
    before_.assign(gradient.begin(), gradient.end());
    before_step_ = plan.step;
    return;
  }
  const double ratio = static_cast<double>(plan.samples) / batch_;
  if (leaves > 1) {
    tuner_.noise(MicroGradients{leaves, norms / leaves, completed.sqr_norm}, ratio, kStepsPerNoise);
  } else if (before_step_ == plan.step - 1) {
    tuner_.noise(compare(before_, gradient), ratio, kStepsPerNoise);
  }
}

void Tuning::describe(const StepPlan& plan, int workers, Json& report) const {
  if (plan.adaptive) {
    const model::Batch batch = batch_of(plan);
    const auto mean = tuner_.mean({1, workers}, batch);
    report["per_gpu"] = batch.per_gpu;
    report["accumulation"] = batch.accumulation;
    report["tuning"] = {{"initial", limits_.limits.initial},
                        {"largest", limits_.limits.largest},
                        {"largest_per_gpu", limits_.limits.per_gpu_max},
                        {"step_seconds", mean ? mean->step_seconds : 0},
                        {"pass_seconds", mean ? mean->grad_seconds : 0}};
  }
  const double noise = tuner_.noise().scale(batch_);
  if (measure_noise_ && std::isfinite(noise)) report["noise"] = noise;
}

Json Tuning::to_json() const { return adaptive_ ? tuner_.to_json() : Json(); }

void Tuning::take(const Json& json) {
  if (!json.is_object()) return;
  auto tuner = Tuner::from_json(limits_, json);
  if (tuner) tuner_ = std::move(*tuner);
}

}  // namespace rubato::elastic
