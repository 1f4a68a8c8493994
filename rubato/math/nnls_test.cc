#include "rubato/math/nnls.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <vector>

#include "rubato/base/random.h"

namespace rubato::math {
namespace {

struct Problem {
  std::vector<double> a;
  std::size_t columns = 0;
  std::vector<double> b;
};

// A'(b - A x)
std::vector<double> pull(const Problem& p, const std::vector<double>& x) {
  std::vector<double> pull(p.columns, 0);
  for (std::size_t i = 0; i < p.b.size(); ++i) {
    double rest = p.b[i];
    for (std::size_t j = 0; j < p.columns; ++j) rest -= p.a[i * p.columns + j] * x[j];
    for (std::size_t j = 0; j < p.columns; ++j) pull[j] += p.a[i * p.columns + j] * rest;
  }
  return pull;
}

Problem draw(Random& random) {
  Problem p;
  p.columns = random.below(5) + 1;
  const auto rows = random.below(12) + 1;
  for (std::size_t i = 0; i < rows; ++i) {
    for (std::size_t j = 0; j < p.columns; ++j) p.a.push_back(random.uniform(-1, 1));
    p.b.push_back(random.uniform(-3, 3));
  }
  return p;
}

TEST(NonNegativeLeastSquares, FindsWhatMadeTheNumbers) {
  const std::vector<double> a = {1, 1, 1, 0.5, 1, 2, 0.25, 1, 4, 0.125, 1, 8};
  const std::vector<double> b = {3 + 0.5 + 0.01, 1.5 + 0.5 + 0.02, 0.75 + 0.5 + 0.04,
                                 0.375 + 0.5 + 0.08};
  const auto fit = non_negative_least_squares(a, 3, b);
  EXPECT_NEAR(fit.x[0], 3, 1e-10);
  EXPECT_NEAR(fit.x[1], 0.5, 1e-10);
  EXPECT_NEAR(fit.x[2], 0.01, 1e-10);
  EXPECT_NEAR(fit.residual, 0, 1e-10);
}

TEST(NonNegativeLeastSquares, HoldsAtZeroWhatWouldBeNegative) {
  const auto fit =
      non_negative_least_squares(std::vector<double>{1, 0, 0, 1}, 2, std::vector<double>{-2, 5});
  EXPECT_EQ(fit.x, (std::vector<double>{0, 5}));
  EXPECT_NEAR(fit.residual, 2, 1e-12);
}

TEST(NonNegativeLeastSquares, EmptyColumnsAndTwinsDoNoHarm) {
  const auto fit = non_negative_least_squares(std::vector<double>{1, 0, 1, 2, 0, 2}, 3,
                                              std::vector<double>{3, 6});
  EXPECT_NEAR(fit.x[0] + fit.x[2], 3, 1e-12);
  EXPECT_EQ(fit.x[1], 0);
  EXPECT_NEAR(fit.residual, 0, 1e-12);
  EXPECT_EQ(non_negative_least_squares({}, 2, {}).x, (std::vector<double>{0, 0}));
}

// The Karush-Kuhn-Tucker conditions prove that it is the optimum.
TEST(NonNegativeLeastSquares, IsOptimalOnRandomProblems) {
  Random random(7);
  for (int trial = 0; trial < 5000; ++trial) {
    const Problem p = draw(random);
    const auto fit = non_negative_least_squares(p.a, p.columns, p.b);
    const auto gradient = pull(p, fit.x);
    for (std::size_t j = 0; j < p.columns; ++j) {
      EXPECT_GE(fit.x[j], 0);
      if (fit.x[j] > 1e-9) {
        EXPECT_NEAR(gradient[j], 0, 1e-6 * std::max(1.0, fit.x[j])) << "trial " << trial;
      } else {
        EXPECT_LE(gradient[j], 1e-6) << "trial " << trial;
      }
    }
  }
}

}  // namespace
}  // namespace rubato::math
