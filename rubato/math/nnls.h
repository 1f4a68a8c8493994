// Non-negative least squares: minimises |A x - b| subject to x >= 0 (Lawson and Hanson 1974).
//
// The active-set method: variables enter one at a time, by the largest gradient. The free ones are
// solved by least squares (modified Gram-Schmidt), and those that would become negative return to
// 0. It is for a few columns. A column that depends on those already in stays at 0.
//
// Deterministic; no clock, no thread, no randomness.
#pragma once

#include <span>
#include <vector>

#include "rubato/base/namespaces.h"

namespace rubato::math {

struct NonNegativeFit {
  std::vector<double> x;
  double residual = 0;  // |A x - b|
};

// `a` holds the rows one after the other, b.size() of them with `columns` numbers each.
[[nodiscard]] NonNegativeFit non_negative_least_squares(std::span<const double> a,
                                                        std::size_t columns,
                                                        std::span<const double> b);

}  // namespace rubato::math
