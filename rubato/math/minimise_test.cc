#include "rubato/math/minimise.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <gtest/gtest.h>
#include <limits>
#include <rapidcheck/gtest.h>
#include <vector>

#include "rubato/base/random.h"

namespace rubato::math {
namespace {

using Vector = std::vector<double>;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

double rosenbrock(std::span<const double> x, std::span<double> gradient) {
  std::fill(gradient.begin(), gradient.end(), 0);
  double sum = 0;
  for (std::size_t i = 0; i + 1 < x.size(); ++i) {
    const double across = x[i + 1] - x[i] * x[i];
    const double along = 1 - x[i];
    sum += 100 * across * across + along * along;
    gradient[i] += -400 * across * x[i] - 2 * along;
    gradient[i + 1] += 200 * across;
  }
  return sum;
}

double beale(std::span<const double> x, std::span<double> gradient) {
  double sum = 0;
  gradient[0] = gradient[1] = 0;
  const double targets[] = {1.5, 2.25, 2.625};
  for (int i = 1; i <= 3; ++i) {
    const double error = targets[i - 1] - x[0] + x[0] * std::pow(x[1], i);
    sum += error * error;
    gradient[0] += 2 * error * (std::pow(x[1], i) - 1);
    gradient[1] += 2 * error * x[0] * i * std::pow(x[1], i - 1);
  }
  return sum;
}

Minimum solve(const SmoothFunction& f, const Vector& start, const Vector& lower,
              const Vector& upper, const MinimiseOptions& options = {}) {
  return minimise(f, start, {lower, upper}, options);
}

Minimum solve_unbounded(const SmoothFunction& f, const Vector& start) {
  return solve(f, start, Vector(start.size(), -kInfinity), Vector(start.size(), kInfinity));
}

void expect_near(const Vector& x, const Vector& expected, double tolerance) {
  ASSERT_EQ(x.size(), expected.size());
  for (std::size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(x[i], expected[i], tolerance) << i;
}

TEST(Minimise, RosenbrocksValley) {
  const auto found = solve_unbounded(rosenbrock, {-1.2, 1});
  EXPECT_TRUE(found.converged);
  expect_near(found.x, {1, 1}, 1e-6);
  EXPECT_LT(found.evaluations, 100);
}

TEST(Minimise, RosenbrocksValleyInTwentyDimensions) {
  const auto found = solve_unbounded(rosenbrock, Vector(20, -0.5));
  EXPECT_TRUE(found.converged);
  EXPECT_LT(found.value, 1e-10);
}

TEST(Minimise, RosenbrocksValleyCutByABound) {
  // x <= 0.5 holds the minimum at (0.5, 0.25); y >= 1.5 holds it near (1.22, 1.5).
  const auto left = solve(rosenbrock, {-1.2, 1}, {-2, -2}, {0.5, 2});
  EXPECT_TRUE(left.converged);
  expect_near(left.x, {0.5, 0.25}, 1e-6);
  EXPECT_NEAR(left.value, 0.25, 1e-9);
  const auto above = solve(rosenbrock, {2, 3}, {0, 1.5}, {3, 4});
  EXPECT_EQ(above.x[1], 1.5);
  Vector gradient(2);
  rosenbrock(above.x, gradient);
  EXPECT_NEAR(gradient[0], 0, 1e-5);
  EXPECT_GT(gradient[1], 0);
}

TEST(Minimise, Beale) {
  expect_near(solve_unbounded(beale, {1, 1}).x, {3, 0.5}, 1e-6);
  const auto bounded = solve(beale, {1, 1}, {-4.5, -4.5}, {2, 4.5});
  EXPECT_EQ(bounded.x[0], 2);
  Vector gradient(2);
  beale(bounded.x, gradient);
  EXPECT_NEAR(gradient[1], 0, 1e-6);
}

TEST(Minimise, ASeparableQuadraticStopsAtTheBoundsItWantsToCross) {
  const Vector wanted = {-3, 0.5, 7, 0};
  const auto f = [&](std::span<const double> x, std::span<double> gradient) {
    double sum = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double weight = std::pow(10, static_cast<double>(i));
      sum += weight * (x[i] - wanted[i]) * (x[i] - wanted[i]);
      gradient[i] = 2 * weight * (x[i] - wanted[i]);
    }
    return sum;
  };
  const auto found = solve(f, {5, 5, -5, 0.3}, {-1, -1, -1, 0.25}, {1, 1, 1, 1});
  EXPECT_TRUE(found.converged);
  expect_near(found.x, {-1, 0.5, 1, 0.25}, 1e-8);
}

TEST(Minimise, EqualBoundsFixAVariable) {
  const auto found = solve(rosenbrock, {0, 0}, {0.3, -kInfinity}, {0.3, kInfinity});
  EXPECT_EQ(found.x[0], 0.3);
  EXPECT_NEAR(found.x[1], 0.09, 1e-8);
  const auto none_free = solve(rosenbrock, {0, 0}, {0.3, 2}, {0.3, 2});
  EXPECT_TRUE(none_free.converged);
  EXPECT_EQ(none_free.x, (Vector{0.3, 2}));
  EXPECT_EQ(none_free.iterations, 0);
}

TEST(Minimise, BacksOffFromWhereTheFunctionIsNotANumber) {
  const auto f = [](std::span<const double> x, std::span<double> gradient) {
    gradient[0] = 1 - 1 / x[0];
    return x[0] - std::log(x[0]);  // NaN below 0
  };
  const auto found = solve(f, {50}, {-100}, {100});
  EXPECT_TRUE(found.converged);
  EXPECT_NEAR(found.x[0], 1, 1e-6);
}

TEST(Minimise, AnAlmostKinkIsNoObstacle) {
  const auto f = [](std::span<const double> x, std::span<double> gradient) {
    double sum = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double off = x[i] - static_cast<double>(i);
      const double root = std::sqrt(off * off + 1e-8);
      sum += root;
      gradient[i] = off / root;
    }
    return sum;
  };
  expect_near(solve_unbounded(f, {10, -10, 3}).x, {0, 1, 2}, 1e-6);
}

TEST(Minimise, SaysWhenItRanOutOfIterations) {
  const Vector lower(2, -10);
  const Vector upper(2, 10);
  const auto found = solve(rosenbrock, {-1.2, 1}, lower, upper, {.iterations = 3});
  EXPECT_FALSE(found.converged);
  EXPECT_EQ(found.iterations, 3);
  EXPECT_LT(found.value, 24.2) << "but it is better than the start";
}

TEST(Minimise, IsDeterministicAndNeverLeavesTheBox) {
  const Vector lower = {-0.4, -3};
  const Vector upper = {0.9, 0.2};
  const auto f = [&](std::span<const double> x, std::span<double> gradient) {
    for (std::size_t i = 0; i < 2; ++i) {
      EXPECT_GE(x[i], lower[i]);
      EXPECT_LE(x[i], upper[i]);
    }
    return rosenbrock(x, gradient);
  };
  const auto once = solve(f, {-7, 9}, lower, upper);
  const auto again = solve(f, {-7, 9}, lower, upper);
  EXPECT_EQ(once.x, again.x);
  EXPECT_EQ(once.evaluations, again.evaluations);
}

// 1/2 x'Ax + b'x with A = B'B + small I; condition numbers up to about 1e4.
struct Quadratic {
  std::size_t n;
  std::vector<Vector> a;
  Vector b;
  Vector lower;
  Vector upper;

  Quadratic(std::size_t size, Random random) : n(size), a(n, Vector(n)), b(n), lower(n), upper(n) {
    std::vector<Vector> root(n, Vector(n));
    for (auto& row : root)
      for (auto& entry : row) entry = random.uniform(-1, 1);
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = 0; j < n; ++j) {
        a[i][j] = i == j ? 0.01 : 0;
        for (std::size_t k = 0; k < n; ++k) a[i][j] += root[k][i] * root[k][j];
      }
      b[i] = random.uniform(-3, 3);
      lower[i] = random.uniform() < 0.2 ? -kInfinity : random.uniform(-2, 0);
      upper[i] = random.uniform() < 0.2 ? kInfinity : random.uniform(0, 2);
    }
  }

  double operator()(std::span<const double> x, std::span<double> gradient) const {
    double value = 0;
    for (std::size_t i = 0; i < n; ++i) {
      gradient[i] = b[i];
      for (std::size_t j = 0; j < n; ++j) gradient[i] += a[i][j] * x[j];
      value += x[i] * (gradient[i] + b[i]) / 2;
    }
    return value;
  }
};

// The optimality condition: the projected gradient is zero.
double largest_violation(const Quadratic& q, const Vector& x) {
  Vector gradient(q.n);
  q(x, gradient);
  double largest = 0;
  for (std::size_t i = 0; i < q.n; ++i) {
    const double moved = std::clamp(x[i] - gradient[i], q.lower[i], q.upper[i]);
    largest = std::max(largest, std::abs(moved - x[i]));
  }
  return largest;
}

RC_GTEST_PROP(MinimiseQuadratics, SatisfyTheConditionsOfOptimality, (std::uint64_t seed)) {
  Random random(seed);
  const Quadratic q(1 + random.below(12), random.split(1));
  Vector start(q.n);
  for (auto& x : start) x = random.uniform(-5, 5);
  const auto found = solve(q, start, q.lower, q.upper, {.iterations = 1000});
  RC_ASSERT(found.converged);
  RC_ASSERT(largest_violation(q, found.x) < 1e-5);
}

// Coordinate descent with exact steps is slow but cannot miss the minimum of a convex quadratic.
Vector by_coordinates(const Quadratic& q) {
  Vector x(q.n);
  for (std::size_t i = 0; i < q.n; ++i) x[i] = std::clamp(0.0, q.lower[i], q.upper[i]);
  for (int sweep = 0; sweep < 20'000; ++sweep) {
    for (std::size_t i = 0; i < q.n; ++i) {
      double slope = q.b[i];
      for (std::size_t j = 0; j < q.n; ++j) slope += q.a[i][j] * x[j];
      x[i] = std::clamp(x[i] - slope / q.a[i][i], q.lower[i], q.upper[i]);
    }
  }
  return x;
}

TEST(MinimiseQuadratics, AgreeWithExhaustiveCoordinateDescent) {
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    const Quadratic q(2 + seed % 5, Random(seed));
    const auto found = solve(q, Vector(q.n, 0.1), q.lower, q.upper, {.iterations = 1000});
    Vector gradient(q.n);
    EXPECT_NEAR(found.value, q(by_coordinates(q), gradient), 1e-8) << "seed " << seed;
  }
}

TEST(MinimiseDeathTest, BoundsMustMakeABox) {
  const auto run = [](const Vector& lower, const Vector& upper) {
    return solve(rosenbrock, {0, 0}, lower, upper).value;
  };
  EXPECT_DEATH(run({1, 0}, {0, 1}), "CHECK");
  EXPECT_DEATH(run({0}, {1}), "CHECK");
}

}  // namespace
}  // namespace rubato::math
