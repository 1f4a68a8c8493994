#include "rubato/model/fit.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <fmt/format.h>
#include <limits>

#include "rubato/math/minimise.h"
#include "rubato/model/fit_objective.h"

namespace rubato::model {
namespace {

using namespace fit;

constexpr double kLeast = 1e-8;
constexpr double kMostOverlap = 10;
constexpr double kNetworkOverNode = 1.1;
constexpr double kShortest = 1e-6;
constexpr double kLongest = 1e7;

// Enough for four digits of every parameter that matters.
constexpr MinimiseOptions kTolerances{
    .iterations = 200, .gradient_tolerance = 1e-7, .value_tolerance = 1e-10};

struct Mean {
  double sum = 0;
  int count = 0;
  void add(double x) {
    sum += x;
    ++count;
  }
  [[nodiscard]] double value() const { return count == 0 ? 0 : sum / count; }
};

// The search range and the units. In these units the start is about 1 for each parameter, so the
// minimiser sees parameters of similar size, whether steps take milliseconds or minutes.
struct Region {
  Parameters start{};
  Parameters lower{};
  Parameters upper{};

  void fix(Parameter p, double value) { start[p] = lower[p] = upper[p] = value; }
};

Region region_for(std::span<const StepMeasurement> measurements) {
  Mean grad;
  Mean samples;
  Mean node_sync;
  Mean network_sync;
  bool one_batch = true;
  bool above_two = false;
  for (const auto& m : measurements) {
    grad.add(m.grad_seconds);
    samples.add(m.batch.per_gpu);
    one_batch = one_batch && m.batch.per_gpu == measurements.front().batch.per_gpu;
    above_two = above_two || m.place.gpus > 2;
    if (m.place.gpus == 1) continue;
    // At least the visible part of it; overlap hides the rest.
    const double sync = std::max(m.optim_seconds() - m.grad_seconds, 0.1 * m.grad_seconds);
    (m.place.nodes == 1 ? node_sync : network_sync).add(sync);
  }
  Region region;
  region.lower.fill(kLeast);
  region.lower[g] = 1;
  region.upper.fill(std::numeric_limits<double>::infinity());
  region.upper[g] = kMostOverlap;
  region.start[a_c] = grad.value() / 2;
  region.start[b_c] = grad.value() / 2 / samples.value();
  region.start[a_r] = node_sync.value();
  region.start[b_r] = node_sync.value() / 10;
  region.start[a_n] = network_sync.value();
  region.start[b_n] = network_sync.value() / 10;
  region.start[g] = 1.001;
  for (auto& start : region.start) start = std::max(start, kLeast);
  if (one_batch) region.fix(a_c, region.start[a_c]);
  if (node_sync.count == 0) region.fix(a_r, kLeast);
  if (node_sync.count == 0 || !above_two) region.fix(b_r, kLeast);
  if (network_sync.count == 0) region.fix(a_n, kLeast);
  if (network_sync.count == 0 || !above_two) region.fix(b_n, kLeast);
  return region;
}

Parameters times(std::span<const double> x, const Parameters& unit) {
  Parameters p{};
  for (std::size_t i = 0; i < kParameters; ++i) p[i] = x[i] * unit[i];
  return p;
}

Parameters over(const Parameters& p, const Parameters& unit) {
  Parameters x{};
  for (std::size_t i = 0; i < kParameters; ++i) x[i] = p[i] / unit[i];
  return x;
}

Parameters search(std::span<const StepMeasurement> measurements, const Region& region) {
  Parameters unit = region.start;
  unit[g] = 1;
  Objective objective(measurements);
  const auto in_units = [&](std::span<const double> x, std::span<double> gradient) {
    Parameters by_parameter{};
    const double value = objective(times(x, unit), by_parameter);
    const Parameters by_x = times(by_parameter, unit);
    std::copy(by_x.begin(), by_x.end(), gradient.begin());
    return value;
  };
  const Parameters lower = over(region.lower, unit);
  const Parameters upper = over(region.upper, unit);
  const Minimum found = minimise(in_units, over(region.start, unit), {lower, upper}, kTolerances);
  Parameters p = times(found.x, unit);
  // Back inside the bounds, which rounding in the units may have moved.
  for (std::size_t i = 0; i < kParameters; ++i)
    p[i] = std::clamp(p[i], region.lower[i], region.upper[i]);
  return p;
}

}  // namespace

Result<void> check_measurement(const StepMeasurement& m) {
  const auto refuse = [&](const char* why) {
    return Error{fmt::format(
        "step measurement on {} nodes, {} GPUs, batch {} x {}, step {} s, gradient {} s: {}",
        m.place.nodes, m.place.gpus, m.batch.per_gpu, m.batch.accumulation + 1LL, m.step_seconds,
        m.grad_seconds, why)};
  };
  const auto plausible = [](double s) { return s >= kShortest && s <= kLongest; };
  if (m.place.nodes < 1 || m.place.gpus < m.place.nodes) return refuse("no such placement");
  if (m.batch.per_gpu < 1 || m.batch.accumulation < 0) return refuse("no such batch");
  if (!plausible(m.step_seconds) || !plausible(m.grad_seconds))
    return refuse("times must lie between 1e-6 and 1e7 s");
  if (!plausible(m.optim_seconds()))
    return refuse("the step must be longer than its accumulating passes");
  return {};
}

Result<StepTime> fit_step_time(std::span<const StepMeasurement> measurements) {
  if (measurements.empty()) return Error{"no step was measured, so there is nothing to fit"};
  bool crossed = false;
  for (const auto& m : measurements) {
    if (auto ok = check_measurement(m); !ok) return ok.error();
    crossed = crossed || m.place.nodes > 1;
  }
  Parameters p = search(measurements, region_for(measurements));
  if (!crossed) {
    p[a_n] = std::max(p[a_n], kNetworkOverNode * p[a_r]);
    p[b_n] = std::max(p[b_n], kNetworkOverNode * p[b_r]);
  }
  return to_step_time(p);
}

}  // namespace rubato::model
