// How noisy a job's gradients are. This decides whether a larger batch helps (McCandlish et al.
// 2018, "An Empirical Model of Large-Batch Training"; Pollux, Qiao et al., OSDI'21, section 3.1;
// AdaScale, Johnson et al. 2020).
//
// There are two numbers: sqr is the squared norm of the true gradient, and var is the summed
// variance of a gradient over a batch of M0 samples. They are estimated from norms alone, so a job
// need not keep the gradients of its micro-batches:
//
//   n micro-gradients g_i of one step      sqr = (n |mean g|^2 - mean |g_i|^2) / (n - 1)
//                                          var = (mean |g_i|^2 - |mean g|^2) S / (n - 1)
//   one GPU without accumulation           the same with n = 2 from this and the previous step's
//                                          gradient, which together are a batch of 2 S
//
// with S = M/M0. Both are unbiased for a fixed gradient. The second counts the change of the
// gradient from step to step as noise. For Adam, the norms must be those of the gradient divided by
// the preconditioner.
//
// Deviates: the published code keeps var >= 1e-6, which has no meaning without the scale of the
// gradient. Ours keeps var >= 0. If nothing is known about the gradients, a larger batch gains
// nothing (model/learning_rate.h). Pure, except NoiseAverage, which is a plain value.
#pragma once

namespace rubato::model {

struct GradientNoise {
  double sqr = 0;
  double var = 0;

  // phi, the gradient noise scale: the batch size, in samples, at which noise and signal are equal.
  // Infinite if there is no signal, 0 if nothing is known.
  [[nodiscard]] double scale(double initial_batch) const {
    return var == 0 ? 0 : initial_batch * var / sqr;
  }
  // sqr / (sqr + var): which part of a gradient over M0 samples is signal. 1 if nothing is known.
  [[nodiscard]] double signal() const;
  // (var + sqr) / (var/S + sqr), how many steps at M0 one at S x M0 is worth: from 1 to S.
  [[nodiscard]] double gain(double batch_ratio) const {
    return batch_ratio / (1 + signal() * (batch_ratio - 1));
  }
};

// From the micro-gradients of one step, over all GPUs and accumulation passes.
struct MicroGradients {
  int count = 0;             // n >= 2
  double mean_sqr_norm = 0;  // mean |g_i|^2
  double sqr_norm_mean = 0;  // |mean g_i|^2
};
[[nodiscard]] GradientNoise noise_of(const MicroGradients& gradients, double batch_ratio);

// From two gradients in a row, each of a batch of `batch_ratio` x M0.
struct SuccessiveGradients {
  double sqr_norm_before = 0;
  double sqr_norm_now = 0;
  double sqr_norm_mean = 0;  // |(before + now) / 2|^2
};
[[nodiscard]] GradientNoise noise_of(const SuccessiveGradients& gradients, double batch_ratio);

// Exponential average of the estimates with factor 0.999^S, so that it forgets by samples and not
// by steps. It is corrected for its start at 0. Estimates from micro-gradients are better; they
// replace those from successive gradients as soon as there is one.
class NoiseAverage {
 public:
  void add(const MicroGradients& gradients, double batch_ratio);
  void add(const SuccessiveGradients& gradients, double batch_ratio);

  [[nodiscard]] bool empty() const { return weight_ == 0; }
  // Both are at least 0, and 0 if nothing was added.
  [[nodiscard]] GradientNoise value() const;

 private:
  void add(const GradientNoise& estimate, double batch_ratio);

  GradientNoise sum_;
  double weight_ = 0;
  bool differenced_ = false;  // from successive gradients
};

}  // namespace rubato::model
