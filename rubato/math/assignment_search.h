// A genetic search for a good assignment of units in bins to rows: GPUs on nodes to jobs. A
// solution is a sparse matrix rows x bins of units. Its worth is the sum of the worth of its rows.
//
// The search follows Pollux (Qiao et al., OSDI'21, section 4.2): one-point crossover by rows;
// mutation that returns rows to their present state, drops shares, and raises shares on bins with
// room; repair in order of precedence, so that the first rows keep what they have.
//
// Deviates, to be fast:
// - Rows are stored once, with their worth, and shared by all solutions that have them. So a child
//   costs one addition per row, and only changed rows are evaluated.
// - Mutation jumps directly to the rows that it changes, instead of drawing a random number for
//   each entry. It changes few of many rows, and never returns a row to having nothing.
// - There are two more moves, for changes that would need many generations with single entries: a
//   row is removed and placed elsewhere, on the fewest bins, with another number of units; and a
//   row gives units to another row on the same bin.
// - The first population also has the present state in which every row without units gets some.
// - From these, and from the best given solutions, hill climbing finds solutions that no small
//   change improves (math/assignment_climb.h). It runs again on the best solution after the last
//   generation.
// - There is one objective. The published search also keeps solutions of high utility, but in the
//   end takes the one with the highest worth.
// - The best of old and new solutions survive, without duplicates.
//
// Pure: the seed is an input. Equal inputs give equal bytes. Compaction bounds the memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "rubato/base/namespaces.h"

namespace rubato::math {

struct Share {
  int bin = 0;
  int units = 0;
  friend bool operator==(const Share&, const Share&) = default;
};
// The units of one row: ascending by bin, at least one unit each.
using Shares = std::vector<Share>;

// What the worth of a row depends on.
struct RowShape {
  std::size_t row = 0;
  int bins = 0;
  int units = 0;
  bool unchanged = false;  // exactly what the row has at present
};

struct AssignmentProblem {
  std::vector<int> capacity;    // by bin
  std::vector<Shares> present;  // by row, in order of precedence
  // Whether a bin may hold shares of at most one row that spans several bins.
  bool one_spanning_row = false;
  std::vector<bool> spanned;  // by bin, or empty: whether a row outside the search spans it
  // The worth of a row; the search maximises the sum. Must be finite.
  std::function<double(const RowShape&)> worth;
  // The largest number of units, up to the given one, that a row can use; 0 = none.
  std::function<int(std::size_t row, int units)> usable;
};

struct AssignmentSearchOptions {
  int population = 100;
  int generations = 100;
  std::uint64_t seed = 1;
};

struct Assignment {
  std::vector<Shares> rows;
  double worth = 0;
};

struct AssignmentSearchResult {
  std::vector<Assignment> population;  // best first, no two equal; all within the limits
  std::size_t rows_evaluated = 0;
};

// `start`: solutions to begin with, besides the present one. If one breaks a limit, it is repaired.
[[nodiscard]] AssignmentSearchResult search_assignment(const AssignmentProblem& problem,
                                                       const AssignmentSearchOptions& options,
                                                       std::span<const Assignment> start = {});

// Whether the assignment keeps the capacity, the spanning rule and what each row can use.
[[nodiscard]] bool keeps_limits(const AssignmentProblem& problem, const std::vector<Shares>& rows);

}  // namespace rubato::math
