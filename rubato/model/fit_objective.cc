#include "rubato/model/fit_objective.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace rubato::model::fit {
namespace {

constexpr double kOverlapPenalty = 1e-3;
constexpr double kRetrogressionPenalty = 1e-2;
constexpr double kSmoothing = 1e-3;

// Sums for a root mean square and its gradient.
class RootMeanSquare {
 public:
  explicit RootMeanSquare(double smoothing) : smoothing_(smoothing) {}
  void add(double error) {
    sum_ += error * error;
    ++count_;
  }
  [[nodiscard]] double value() const { return std::sqrt(sum_ / count_ + smoothing_ * smoothing_); }
  // d value / d error = error x this.
  [[nodiscard]] double weight() const { return 1 / (count_ * value()); }

 private:
  double smoothing_;
  double sum_ = 0;
  int count_ = 0;
};

double square(double x) { return x * x; }

double penalty(const Parameters& p) {
  return kOverlapPenalty * square(p[g] - 1) +
         kRetrogressionPenalty * (square(p[b_n] / p[a_n]) + square(p[b_r] / p[a_r]));
}

void add_penalty_gradient(const Parameters& p, Parameters& gradient) {
  gradient[g] += 2 * kOverlapPenalty * (p[g] - 1);
  for (const auto& [a, b] : {std::pair{a_n, b_n}, std::pair{a_r, b_r}}) {
    const double ratio = p[b] / p[a];
    gradient[b] += 2 * kRetrogressionPenalty * ratio / p[a];
    gradient[a] -= 2 * kRetrogressionPenalty * ratio * ratio / p[a];
  }
}

}  // namespace

StepTime to_step_time(const Parameters& p) {
  return {p[a_c], p[b_c], p[a_r], p[b_r], p[a_n], p[b_n], p[g]};
}

Parameters to_parameters(const StepTime& t) {
  return {t.grad_fixed,   t.grad_per_sample,      t.node_sync, t.node_sync_per_gpu,
          t.network_sync, t.network_sync_per_gpu, t.overlap};
}

Objective::Objective(std::span<const StepMeasurement> measurements) {
  rows_.reserve(measurements.size());
  for (const auto& m : measurements) {
    rows_.push_back({static_cast<double>(m.batch.per_gpu), m.place.gpus - 2.0, m.place.gpus == 1,
                     m.place.nodes > 1 ? a_n : a_r, std::log(m.grad_seconds),
                     std::log(m.optim_seconds())});
  }
}

double Objective::operator()(const Parameters& p, Parameters& gradient) {
  RootMeanSquare grad_error(kSmoothing);
  RootMeanSquare optim_error(kSmoothing);
  for (auto& row : rows_) {
    predict(p, row);
    grad_error.add(row.grad_error);
    optim_error.add(row.optim_error);
  }
  gradient.fill(0);
  const double grad_weight = grad_error.weight();
  const double optim_weight = optim_error.weight();
  for (const auto& row : rows_) {
    const double by_grad = row.grad_error * grad_weight;
    const double by_optim = row.optim_error * optim_weight;
    const double by_pass = (by_grad + by_optim * row.grad_share) / row.grad;
    gradient[a_c] += by_pass;
    gradient[b_c] += by_pass * row.samples;
    if (row.alone) continue;
    const double by_sync = by_optim * (1 - row.grad_share) / row.sync;
    gradient[row.link] += by_sync;
    gradient[row.link + 1] += by_sync * row.more_gpus;
    gradient[g] += by_optim * row.by_overlap;
  }
  add_penalty_gradient(p, gradient);
  return grad_error.value() + optim_error.value() + penalty(p);
}

void Objective::predict(const Parameters& p, Row& row) {
  row.grad = p[a_c] + p[b_c] * row.samples;
  const double log_grad = std::log(row.grad);
  row.grad_error = log_grad - row.log_grad;
  row.optim_error = log_grad - row.log_optim;
  if (row.alone) return;
  row.sync = p[row.link] + p[row.link + 1] * row.more_gpus;
  // log T_optim = log T_grad + log(1 + r)/g with r = (T_sync/T_grad)^g, inverted if r > 1.
  const double log_ratio = std::log(row.sync) - log_grad;
  const double r = std::exp(-p[g] * std::abs(log_ratio));
  const double log_sum = std::log1p(r) / p[g];
  const double larger_share = 1 / (1 + r);
  row.optim_error += std::max(log_ratio, 0.0) + log_sum;
  row.grad_share = log_ratio > 0 ? 1 - larger_share : larger_share;
  row.by_overlap = -((1 - larger_share) * std::abs(log_ratio) + log_sum) / p[g];
}

double error(const StepTime& model, std::span<const StepMeasurement> measurements) {
  RootMeanSquare grad_error(0);
  RootMeanSquare optim_error(0);
  for (const auto& m : measurements) {
    const double grad = model.grad(m.batch.per_gpu);
    grad_error.add(std::log(grad / m.grad_seconds));
    optim_error.add(std::log(model.optim(grad, model.sync(m.place)) / m.optim_seconds()));
  }
  return grad_error.value() + optim_error.value() + penalty(to_parameters(model));
}

}  // namespace rubato::model::fit
