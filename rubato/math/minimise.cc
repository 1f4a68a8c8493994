#include "rubato/math/minimise.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>

#include "rubato/base/check.h"

namespace rubato::math {
namespace {

using Vector = std::vector<double>;

constexpr double kSufficientDecrease = 1e-4;  // Armijo
constexpr double kCurvature = 0.9;            // weak Wolfe
constexpr std::size_t kMemory = 10;           // pairs of (step, change of gradient) remembered
constexpr int kLineSearchEvaluations = 40;
constexpr int kSmallDecreases = 3;

struct Pair {
  Vector step;
  Vector change;
};

struct Point {
  Vector x;
  Vector gradient;
  double value = 0;
};

class BoundedSearch {
 public:
  BoundedSearch(const SmoothFunction& f, std::span<const double> start, const Box& box)
      : f_(f), box_(box), n_(start.size()), here_{Vector(start.begin(), start.end()), Vector(n_)} {
    CHECK(box.lower.size() == n_ && box.upper.size() == n_);
    there_ = here_;
    free_.assign(n_, true);
    direction_.assign(n_, 0);
    memory_.assign(kMemory, {Vector(n_), Vector(n_)});
    for (std::size_t i = 0; i < n_; ++i) {
      CHECK(box.lower[i] <= box.upper[i]);
      here_.x[i] = inside(i, here_.x[i]);
    }
    evaluate(here_);
    CHECK(std::isfinite(here_.value));
  }

  Minimum run(const MinimiseOptions& options) {
    Minimum result;
    int small_decreases = 0;
    while (!result.converged && result.iterations < options.iterations) {
      if (largest_projected_step() <= options.gradient_tolerance) {
        result.converged = true;
        break;
      }
      ++result.iterations;
      const double before = here_.value;
      // If neither direction descends, the remaining gain is smaller than rounding errors.
      if (!step()) result.converged = true;
      const double decrease = before - here_.value;
      const bool small = decrease <= options.value_tolerance * std::max(1.0, std::abs(before));
      small_decreases = small ? small_decreases + 1 : 0;
      if (small_decreases == kSmallDecreases) result.converged = true;
    }
    result.x = here_.x;
    result.value = here_.value;
    result.evaluations = evaluations_;
    return result;
  }

 private:
  [[nodiscard]] double inside(std::size_t i, double x) const {
    return std::clamp(x, box_.lower[i], box_.upper[i]);
  }

  void evaluate(Point& point) {
    point.value = f_(point.x, point.gradient);
    ++evaluations_;
  }

  [[nodiscard]] double largest_projected_step() const {
    double largest = 0;
    for (std::size_t i = 0; i < n_; ++i) {
      const double moved = inside(i, here_.x[i] - here_.gradient[i]);
      largest = std::max(largest, std::abs(moved - here_.x[i]));
    }
    return largest;
  }

  bool step() {
    if (remembered_ > 0) {
      quasi_newton_direction();
      if (line_search(1)) return true;
      remembered_ = 0;
    }
    steepest_direction();
    double length = 0;
    for (const double d : direction_) length += std::abs(d);
    return line_search(std::min(1.0, 1 / length));
  }

  // Whether moving variable i along d leaves the box at once.
  [[nodiscard]] bool blocked(std::size_t i, double d) const {
    return (d <= 0 && here_.x[i] <= box_.lower[i]) || (d >= 0 && here_.x[i] >= box_.upper[i]);
  }

  void steepest_direction() {
    for (std::size_t i = 0; i < n_; ++i) {
      free_[i] = !blocked(i, -here_.gradient[i]);
      direction_[i] = free_[i] ? -here_.gradient[i] : 0;
    }
  }

  void quasi_newton_direction() {
    steepest_direction();
    bool changed = true;
    while (changed) {  // each round removes at least one variable
      for (std::size_t i = 0; i < n_; ++i) direction_[i] = free_[i] ? -here_.gradient[i] : 0;
      two_loop_recursion();
      changed = false;
      for (std::size_t i = 0; i < n_; ++i) {
        if (!free_[i] || !blocked(i, direction_[i])) continue;
        free_[i] = false;
        changed = true;
      }
    }
  }

  [[nodiscard]] double dot_of_free(const Vector& a, const Vector& b) const {
    double sum = 0;
    for (std::size_t i = 0; i < n_; ++i) sum += free_[i] ? a[i] * b[i] : 0;
    return sum;
  }

  void add_to_direction(double factor, const Vector& v) {
    for (std::size_t i = 0; i < n_; ++i) direction_[i] += free_[i] ? factor * v[i] : 0;
  }

  // The pair remembered `age` steps ago.
  [[nodiscard]] const Pair& pair(std::size_t age) const {
    return memory_[(newest_ + kMemory - age) % kMemory];
  }

  // direction <- H direction, H the inverse Hessian over the free variables (Nocedal 1980).
  void two_loop_recursion() {
    std::array<double, kMemory> weight{};
    std::array<double, kMemory> curvature{};
    double scale = 0;
    for (std::size_t age = 0; age < remembered_; ++age) {
      const auto& [step, change] = pair(age);
      curvature[age] = dot_of_free(step, change);
      const double change_sqr = dot_of_free(change, change);
      // Restricted to the free variables, a pair may have no positive curvature.
      if (!(curvature[age] > 1e-12 * change_sqr)) {
        curvature[age] = 0;
        continue;
      }
      if (scale == 0) scale = curvature[age] / change_sqr;
      weight[age] = dot_of_free(step, direction_) / curvature[age];
      add_to_direction(-weight[age], change);
    }
    if (scale == 0) return;
    for (double& d : direction_) d *= scale;
    for (std::size_t age = remembered_; age-- > 0;) {
      if (curvature[age] == 0) continue;
      const auto& [step, change] = pair(age);
      add_to_direction(weight[age] - dot_of_free(change, direction_) / curvature[age], step);
    }
  }

  // Searches along the direction, projected at the bounds, for a point that satisfies the weak
  // Wolfe conditions, by bisection and doubling (Lewis, Overton 2013), and moves there.
  bool line_search(double length) {
    double too_short = 0;
    double too_long = std::numeric_limits<double>::infinity();
    const double slope = dot_of_free(here_.gradient, direction_);
    if (!(slope < 0)) return false;
    bool descended = false;
    for (int i = 0; i < kLineSearchEvaluations; ++i) {
      const double slope_there = look(length);
      if (!descends()) {
        too_long = length;
      } else if (slope_there < kCurvature * slope) {
        too_short = length;
        descended = true;
      } else {
        accept();
        return true;
      }
      length = std::isinf(too_long) ? 2 * length : (too_short + too_long) / 2;
    }
    if (!descended) return false;
    look(too_short);
    accept();
    return true;
  }

  // Evaluates the point `length` along the direction; returns the slope of the path there.
  double look(double length) {
    for (std::size_t i = 0; i < n_; ++i)
      there_.x[i] = inside(i, here_.x[i] + length * direction_[i]);
    evaluate(there_);
    double slope = 0;
    for (std::size_t i = 0; i < n_; ++i) {
      const bool bent = there_.x[i] <= box_.lower[i] || there_.x[i] >= box_.upper[i];
      if (!bent) slope += there_.gradient[i] * direction_[i];
    }
    return slope;
  }

  [[nodiscard]] bool descends() const {
    double predicted = 0;
    for (std::size_t i = 0; i < n_; ++i)
      predicted += here_.gradient[i] * (there_.x[i] - here_.x[i]);
    return predicted < 0 && there_.value <= here_.value + kSufficientDecrease * predicted;
  }

  void accept() {
    newest_ = (newest_ + 1) % kMemory;
    remembered_ = std::min(remembered_ + 1, kMemory);
    auto& [step, change] = memory_[newest_];
    for (std::size_t i = 0; i < n_; ++i) {
      step[i] = there_.x[i] - here_.x[i];
      change[i] = there_.gradient[i] - here_.gradient[i];
    }
    std::swap(here_, there_);
  }

  const SmoothFunction& f_;
  const Box& box_;
  std::size_t n_;
  Point here_;
  Point there_;             // the point that the line search evaluates
  std::vector<char> free_;  // not held at a bound
  Vector direction_;
  std::vector<Pair> memory_;  // ring
  std::size_t newest_ = 0;
  std::size_t remembered_ = 0;
  int evaluations_ = 0;
};

}  // namespace

Minimum minimise(const SmoothFunction& f, std::span<const double> start, const Box& box,
                 const MinimiseOptions& options) {
  return BoundedSearch(f, start, box).run(options);
}

}  // namespace rubato::math
