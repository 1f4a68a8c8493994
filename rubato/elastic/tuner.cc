#include "rubato/elastic/tuner.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <fmt/format.h>
#include <limits>
#include <utility>
#include <vector>

#include "rubato/base/check.h"
#include "rubato/base/json_reader.h"
#include "rubato/model/fit.h"

namespace rubato::elastic {
namespace {

constexpr int kStepsBetweenFits = 30;
constexpr int kStepsRemembered = 300;
constexpr double kNoiseSmoothing = 0.999;  // per M0 samples
// The smallest time that model/fit.h accepts.
constexpr double kShortest = 1e-6;
constexpr double kLongest = 1e7;

bool plausible(double seconds) { return seconds >= kShortest && seconds <= kLongest; }

// "812", "3.14": for readers, not for parsers.
std::string number(double value) {
  if (std::isinf(value)) return "infinite";
  return value >= 100 ? fmt::format("{:.0f}", value) : fmt::format("{:.3g}", value);
}

std::string workers(int gpus) { return gpus == 1 ? "1 worker" : fmt::format("{} workers", gpus); }

constexpr std::array<std::pair<const char*, double StepTime::*>, 7> kStepTimeFields{{
    {"grad_fixed", &StepTime::grad_fixed},
    {"grad_per_sample", &StepTime::grad_per_sample},
    {"node_sync", &StepTime::node_sync},
    {"node_sync_per_gpu", &StepTime::node_sync_per_gpu},
    {"network_sync", &StepTime::network_sync},
    {"network_sync_per_gpu", &StepTime::network_sync_per_gpu},
    {"overlap", &StepTime::overlap},
}};

// State in a checkpoint of a newer version may have more fields.
constexpr auto kIgnored = JsonFields::Unknown::ignored;

}  // namespace

Tuner::Tuner(const TunerLimits& limits) : limits_(limits) {
  const auto& l = limits.limits;
  CHECK(l.initial >= 1 && l.largest >= l.initial && l.per_gpu_min >= 1 &&
        l.per_gpu_max >= l.per_gpu_min);
}

bool Tuner::measured(const StepMeasurement& step) {
  CHECK(step.place.nodes >= 1 && step.place.gpus >= step.place.nodes && step.batch.per_gpu >= 1 &&
        step.batch.accumulation >= 0);
  if (!plausible(step.step_seconds) || !plausible(step.grad_seconds)) return false;
  Mean& mean =
      means_[{step.place.nodes, step.place.gpus, step.batch.per_gpu, step.batch.accumulation}];
  if (mean.count == 0) new_key_ = true;
  ++new_steps_;
  mean.count = std::min(mean.count + 1, kStepsRemembered);
  mean.step_seconds += (step.step_seconds - mean.step_seconds) / mean.count;
  mean.grad_seconds += (step.grad_seconds - mean.grad_seconds) / mean.count;
  return true;
}

void Tuner::Noise::add(const GradientNoise& estimate, double batch_ratio) {
  if (!std::isfinite(estimate.sqr) || !std::isfinite(estimate.var)) return;
  const double keep = std::pow(kNoiseSmoothing, batch_ratio);
  sqr = keep * sqr + (1 - keep) * estimate.sqr;
  var = keep * var + (1 - keep) * estimate.var;
  weight = keep * weight + (1 - keep);
}

void Tuner::noise(const MicroGradients& gradients, double batch_ratio, int steps) {
  if (noise_.differenced) noise_ = {};
  noise_.add(noise_of(gradients, batch_ratio), steps * batch_ratio);
}

void Tuner::noise(const SuccessiveGradients& gradients, double batch_ratio, int steps) {
  noise_.differenced = true;
  noise_.add(noise_of(gradients, batch_ratio), std::max(2, steps) * batch_ratio);
}

GradientNoise Tuner::noise() const {
  if (noise_.weight == 0) return {};
  return {std::max(noise_.sqr / noise_.weight, 0.0), std::max(noise_.var / noise_.weight, 0.0)};
}

std::optional<StepMeasurement> Tuner::mean(const Footprint& place, const Batch& batch) const {
  const auto found = means_.find({place.nodes, place.gpus, batch.per_gpu, batch.accumulation});
  if (found == means_.end()) return std::nullopt;
  return StepMeasurement{place, batch, found->second.step_seconds, found->second.grad_seconds};
}

void Tuner::refit() {
  if (!new_key_ && new_steps_ < kStepsBetweenFits) return;
  std::vector<StepMeasurement> measurements;
  for (const auto& [key, mean] : means_) {
    const StepMeasurement measurement{{key.nodes, key.gpus},
                                      {key.per_gpu, key.accumulation},
                                      mean.step_seconds,
                                      mean.grad_seconds};
    // A single pass may be measured longer than its share of the step, but its mean rarely is.
    if (plausible(measurement.optim_seconds())) measurements.push_back(measurement);
  }
  if (measurements.empty()) return;
  const auto fit = fit_step_time(measurements);
  CHECK(fit.ok());  // because every measurement was checked
  fit_ = *fit;
  new_key_ = false;
  new_steps_ = 0;
}

bool Tuner::allowed(const Batch& batch, int gpus) const {
  const auto& limits = limits_.limits;
  const double global = batch.global(gpus);
  return batch.per_gpu >= limits.per_gpu_min && batch.per_gpu <= limits.per_gpu_max &&
         global >= limits.initial && global <= limits.largest &&
         (batch.accumulation == 0 || limits.accumulate);
}

Choice Tuner::chosen(const Batch& batch, int gpus, double goodput) const {
  const double ratio = batch.global(gpus) / limits_.limits.initial;
  return {batch, learning_rate_factor(limits_.rule, noise(), ratio), goodput, {}};
}

Result<Choice> Tuner::choose(const Footprint& place, const Batch& current, int current_gpus) {
  refit();
  const auto& limits = limits_.limits;
  const double before = current.global(current_gpus);
  const auto from_to = [&](const Batch& to) {
    const double after = to.global(place.gpus);
    const std::string change = before == after
                                   ? fmt::format("M {}", number(after))
                                   : fmt::format("M {} -> {}", number(before), number(after));
    return fmt::format("{} on {}", change, workers(place.gpus));
  };

  const Goodput model{fit_.value_or(StepTime()), noise(), limits};
  const auto best = fit_ ? model.best(place) : std::nullopt;
  if (!best) {
    const double smallest = std::max<double>(limits.initial, 1.0 * limits.per_gpu_min * place.gpus);
    const auto spread = spread_batch(limits, place.gpus, smallest);
    if (!spread) {
      return Error{fmt::format(
          "no batch is allowed on {}: {} to {} samples, {} to {} on each worker, {} accumulation; "
          "give the job fewer or more workers, or wider limits",
          workers(place.gpus), limits.initial, limits.largest, limits.per_gpu_min,
          limits.per_gpu_max, limits.accumulate ? "with" : "without")};
    }
    const double goodput = fit_ ? model.at(place, *spread) : 0;
    Choice choice = chosen(*spread, place.gpus, goodput);
    choice.reason = fmt::format("{}: {}", from_to(*spread),
                                fit_ ? "the only batch within the limits" : "no step measured yet");
    return choice;
  }

  const std::string scale = number(model.noise.scale(limits.initial));
  const bool same_gpus = current_gpus == place.gpus;
  if (!same_gpus || !allowed(current, place.gpus)) {
    Choice choice = chosen(best->batch, place.gpus, best->goodput);
    choice.reason =
        fmt::format("{}, {}: goodput {} samples/s, noise scale {}", from_to(best->batch),
                    same_gpus ? "the batch so far is outside the limits"
                              : fmt::format("after {}", workers(current_gpus)),
                    number(best->goodput), scale);
    return choice;
  }

  const double now = model.at(place, current);
  if (worth_switching(now, best->goodput)) {
    Choice choice = chosen(best->batch, place.gpus, best->goodput);
    choice.reason = fmt::format("{}: goodput {} -> {} samples/s, noise scale {}",
                                from_to(best->batch), number(now), number(best->goodput), scale);
    return choice;
  }
  Choice choice = chosen(current, place.gpus, now);
  const double gain = std::max(best->goodput / now - 1, 0.0);
  choice.reason = best->batch == current
                      ? fmt::format("kept {}: the best, goodput {} samples/s, noise scale {}",
                                    number(before), number(now), scale)
                      : fmt::format("kept {}: best candidate {} gains {:.2g}% < {:.2g}%",
                                    number(before), number(best->batch.global(place.gpus)),
                                    100 * gain, 100 * (kGainWorthSwitching - 1));
  return choice;
}

Json Tuner::to_json() const {
  Json steps = Json::array();
  for (const auto& [key, mean] : means_) {
    steps.push_back({{"nodes", key.nodes},
                     {"gpus", key.gpus},
                     {"per_gpu", key.per_gpu},
                     {"accumulation", key.accumulation},
                     {"step_seconds", mean.step_seconds},
                     {"grad_seconds", mean.grad_seconds},
                     {"count", mean.count}});
  }
  Json fit;
  if (fit_)
    for (const auto& [name, member] : kStepTimeFields) fit[name] = (*fit_).*member;
  return {{"steps", std::move(steps)},
          {"noise",
           {{"sqr", noise_.sqr},
            {"var", noise_.var},
            {"weight", noise_.weight},
            {"differenced", noise_.differenced}}},
          {"fit", std::move(fit)},
          {"new_key", new_key_},
          {"new_steps", new_steps_}};
}

Result<Tuner> Tuner::from_json(const TunerLimits& limits, const Json& json) {
  constexpr double kAny = std::numeric_limits<double>::max();
  Tuner tuner(limits);
  JsonTrouble trouble;
  JsonFields fields(JsonValue(json, trouble), kIgnored);
  tuner.new_key_ = fields["new_key"].boolean();
  tuner.new_steps_ = fields["new_steps"].whole<int>(0);
  fields["steps"].each([&](const JsonValue& entry) {
    JsonFields step(entry, kIgnored);
    const Key key{step["nodes"].whole<int>(1), step["gpus"].whole<int>(1),
                  step["per_gpu"].whole<int>(1), step["accumulation"].whole<int>(0)};
    const Mean mean{step["step_seconds"].number(kShortest, kLongest),
                    step["grad_seconds"].number(kShortest, kLongest), step["count"].whole<int>(1)};
    if (entry.must_be(key.gpus >= key.nodes, "a step with at least one GPU on each node"))
      tuner.means_[key] = mean;
  });
  {
    JsonFields noise(fields["noise"], kIgnored);
    tuner.noise_ = {noise["sqr"].number(), noise["var"].number(), noise["weight"].number(0, 1),
                    noise["differenced"].boolean()};
  }
  const JsonValue fit = fields["fit"];
  if (fit.ok() && !fit.json().is_null()) {
    JsonFields parameters(fit, kIgnored);
    StepTime time;
    for (const auto& [name, member] : kStepTimeFields)
      time.*member = parameters[name].number(0, kAny);
    fit.must_be(time.overlap >= 1 && time.grad(1) > 0, "the fit of a step");
    tuner.fit_ = time;
  }
  if (!trouble.ok()) return trouble.error("state of the batch tuner");
  return tuner;
}

}  // namespace rubato::elastic
