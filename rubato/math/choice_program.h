// Chooses at most one option for each row, so that the chosen options are worth most in sum. Each
// option takes units of one resource, and each resource has only so many. This is a
// multiple-choice knapsack with several knapsacks: a configuration (GPU type, number of GPUs) for
// each job.
//
// The relaxation, in which a row may mix options, is a linear program (math/linear_program.h) with
// one constraint per row and one per resource. A corner of it mixes options in at most as many rows
// as there are resources, because every other row has a single option in the basis. So branch and
// bound has few rows to branch on. It takes one option of a mixed row for granted, then excludes
// it. The relaxation, rounded down and filled up greedily, is the first solution.
//
// The effort is limited in nodes, never in seconds: equal inputs give equal bytes on any machine.
// The result says how far from the optimum it can be at most.
#pragma once

#include <cstddef>
#include <vector>

#include "rubato/base/namespaces.h"

namespace rubato::math {

struct ChoiceOption {
  int resource = 0;
  int units = 0;
  double worth = 0;  // options of 0 or less are never chosen
};

struct ChoiceProblem {
  std::vector<int> capacity;                    // by resource
  std::vector<std::vector<ChoiceOption>> rows;  // units of 0 or more
};

struct ChoiceLimits {
  int nodes = 1000;  // relaxations to solve at most
  double gap = 0;    // good enough: worth that may be missing, relative to the worth
};

struct ChoiceResult {
  static constexpr int kNone = -1;
  std::vector<int> chosen;  // by row: index of the option, or kNone
  double worth = 0;
  double bound = 0;  // no choice is worth more
  int nodes = 0;
};

[[nodiscard]] ChoiceResult choose(const ChoiceProblem& problem, const ChoiceLimits& limits = {});

}  // namespace rubato::math
