// Minimises a smooth function of a few variables inside a box (lower <= x <= upper).
//
// A projected quasi-Newton method similar to L-BFGS-B (Byrd, Lu, Nocedal, Zhu 1995), in the simpler
// two-metric form (Bertsekas 1982; Kim, Sra, Dhillon 2010). Variables that the gradient holds at a
// bound are set aside. The two-loop recursion of L-BFGS gives a direction for the others. The line
// search (weak Wolfe conditions) follows this direction, projected at the bounds.
//
// Deviates from L-BFGS-B: there is no Cauchy point. A direction that does not descend is replaced
// by the projected gradient, which always descends unless x is stationary. The caller must scale
// the variables: steps and tolerances assume that all have similar size.
//
// NLopt is not used: it would be one more library for 250 lines, and a new version of it could
// change fits, and with them decisions that replay compares byte for byte.
//
// Deterministic; no clock, no thread, no randomness. Allocates once per call, not per step.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "rubato/base/namespaces.h"

namespace rubato::math {

// Returns f(x) and writes its gradient. A value that is not finite means that the step was too
// long.
using SmoothFunction = std::function<double(std::span<const double> x, std::span<double> gradient)>;

// Bounds may be infinite; equal bounds fix a variable.
struct Box {
  std::span<const double> lower;
  std::span<const double> upper;
};

struct MinimiseOptions {
  int iterations = 200;
  double gradient_tolerance = 1e-8;  // largest move of a variable by one projected gradient step
  double value_tolerance = 1e-13;    // relative decrease below which three steps in a row end it
};

struct Minimum {
  std::vector<double> x;
  double value = 0;
  int iterations = 0;
  int evaluations = 0;
  bool converged = false;  // false: out of iterations
};

// `start` is first moved into the box; f must be finite there.
[[nodiscard]] Minimum minimise(const SmoothFunction& f, std::span<const double> start,
                               const Box& box, const MinimiseOptions& options = {});

}  // namespace rubato::math
