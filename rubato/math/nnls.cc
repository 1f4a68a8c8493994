#include "rubato/math/nnls.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "rubato/base/check.h"

namespace rubato::math {
namespace {

// Relative to the column: a remainder below this, after projection on the others, is rounding.
constexpr double kDependent = 1e-11;

class ActiveSet {
 public:
  ActiveSet(std::span<const double> a, std::size_t columns, std::span<const double> b)
      : a_(a), columns_(columns), b_(b), x_(columns, 0), barred_(columns, false) {
    for (std::size_t j = 0; j < columns; ++j) {
      double squares = 0;
      for (std::size_t i = 0; i < b.size(); ++i) squares += at(i, j) * at(i, j);
      length_.push_back(std::sqrt(squares));
    }
  }

  NonNegativeFit solve() {
    // Each round lowers the residual, so no set of free variables occurs twice. The limit is only a
    // protection against rounding.
    for (std::size_t round = 0; round < 10 * columns_ + 10; ++round) {
      const auto entering = steepest();
      if (!entering) break;
      free_.push_back(*entering);
      if (!settle(*entering)) barred_[*entering] = true;
    }
    NonNegativeFit fit{x_, 0};
    for (const double r : residuals()) fit.residual += r * r;
    fit.residual = std::sqrt(fit.residual);
    return fit;
  }

 private:
  [[nodiscard]] double at(std::size_t row, std::size_t column) const {
    return a_[row * columns_ + column];
  }

  [[nodiscard]] std::vector<double> residuals() const {
    std::vector<double> rest(b_.begin(), b_.end());
    for (std::size_t i = 0; i < rest.size(); ++i) {
      for (std::size_t j = 0; j < columns_; ++j) rest[i] -= at(i, j) * x_[j];
    }
    return rest;
  }

  // The variable at 0 whose growth lowers the residual most; nullopt at the optimum.
  [[nodiscard]] std::optional<std::size_t> steepest() const {
    const std::vector<double> rest = residuals();
    double size = 0;
    for (const double value : b_) size += value * value;
    std::optional<std::size_t> best;
    double most = 1e-12 * std::sqrt(size);
    for (std::size_t j = 0; j < columns_; ++j) {
      if (barred_[j] || length_[j] == 0 || std::find(free_.begin(), free_.end(), j) != free_.end())
        continue;
      double pull = 0;
      for (std::size_t i = 0; i < rest.size(); ++i) pull += at(i, j) * rest[i];
      pull /= length_[j];
      if (pull > most) {
        most = pull;
        best = j;
      }
    }
    return best;
  }

  // Moves x towards the least-squares solution of the free variables, and removes those that reach
  // 0. False if the entering column depends on the others, or would become negative at once.
  bool settle(std::size_t entering) {
    for (;;) {
      const auto solution = least_squares();
      if (!solution) {
        drop(entering);
        return false;
      }
      double step = 1;
      for (std::size_t f = 0; f < free_.size(); ++f) {
        const double from = x_[free_[f]];
        const double to = (*solution)[f];
        if (to <= 0) step = std::min(step, from > 0 ? from / (from - to) : 0.0);
      }
      bool dropped = false;
      const std::vector<std::size_t> before = free_;
      for (std::size_t f = 0; f < before.size(); ++f) {
        double& x = x_[before[f]];
        const double to = (*solution)[f];
        x = step == 1 ? to : x + step * (to - x);
        if (to > 0 || x > 1e-14 * std::abs(to)) continue;
        x = 0;
        drop(before[f]);
        dropped = true;
        if (before[f] == entering) return false;
      }
      if (!dropped) {
        std::fill(barred_.begin(), barred_.end(), false);
        return true;
      }
    }
  }

  void drop(std::size_t column) { free_.erase(std::find(free_.begin(), free_.end(), column)); }

  // The solution over the free columns, by modified Gram-Schmidt; nullopt if they are dependent.
  [[nodiscard]] std::optional<std::vector<double>> least_squares() const {
    const std::size_t n = free_.size();
    const std::size_t rows = b_.size();
    std::vector<std::vector<double>> q(n, std::vector<double>(rows));
    std::vector<std::vector<double>> r(n, std::vector<double>(n, 0));
    std::vector<double> rest(b_.begin(), b_.end());
    std::vector<double> along(n, 0);
    for (std::size_t f = 0; f < n; ++f) {
      for (std::size_t i = 0; i < rows; ++i) q[f][i] = at(i, free_[f]);
      for (std::size_t g = 0; g < f; ++g) {
        for (std::size_t i = 0; i < rows; ++i) r[g][f] += q[g][i] * q[f][i];
        for (std::size_t i = 0; i < rows; ++i) q[f][i] -= r[g][f] * q[g][i];
      }
      double squares = 0;
      for (const double value : q[f]) squares += value * value;
      r[f][f] = std::sqrt(squares);
      if (!(r[f][f] > kDependent * length_[free_[f]])) return std::nullopt;
      for (double& value : q[f]) value /= r[f][f];
      for (std::size_t i = 0; i < rows; ++i) along[f] += q[f][i] * rest[i];
      for (std::size_t i = 0; i < rows; ++i) rest[i] -= along[f] * q[f][i];
    }
    std::vector<double> x(n, 0);
    for (std::size_t f = n; f-- > 0;) {
      double sum = along[f];
      for (std::size_t g = f + 1; g < n; ++g) sum -= r[f][g] * x[g];
      x[f] = sum / r[f][f];
    }
    return x;
  }

  std::span<const double> a_;
  std::size_t columns_;
  std::span<const double> b_;
  std::vector<double> x_;
  std::vector<double> length_;     // of each column
  std::vector<bool> barred_;       // tried without success since x last moved
  std::vector<std::size_t> free_;  // variables that are not held at 0
};

}  // namespace

NonNegativeFit non_negative_least_squares(std::span<const double> a, std::size_t columns,
                                          std::span<const double> b) {
  CHECK(a.size() == columns * b.size());
  return ActiveSet(a, columns, b).solve();
}

}  // namespace rubato::math
