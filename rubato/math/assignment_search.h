// A genetic search for a good assignment of units in bins to rows: GPUs on nodes to jobs. Each
// solution is a sparse matrix rows x bins of units; its worth is the sum of what its rows are
// worth.
//
// After the search of Pollux (Qiao et al., OSDI'21, section 4.2): one-point crossover by rows;
// mutation that puts rows back to what they are at present, drops shares and raises shares on bins
// with room; repair in order of precedence, so that the first rows keep what they have.
//
// Deviates, to be fast:
//   - rows are stored once and shared by the solutions that have them, each with its worth, so a
//     child costs one addition a row, and only rows it changes are evaluated;
//   - mutation jumps to the rows it touches instead of drawing for each entry, touches few of many
//     rows, and puts no row back to having nothing;
//   - two further moves, for what chance in single entries needs many generations for: a row is
//     taken up and put down elsewhere, on the fewest bins, with another number of units; and a row
//     hands units over to another on the same bin;
//   - it begins, besides, with the present state in which every row without units gets some;
//   - from these and the best of those it was given it climbs to solutions that no small change
//     improves (math/assignment_climb.h), and again from the best after the last generation: what
//     few generations leave undone;
//   - one objective. The published search keeps solutions of high utility beside those of high
//     worth, but in the end takes the worthiest;
//   - the best of old and new survive, equal ones once.
//
// Pure: the seed is an input. Equal inputs give equal bytes. Memory is bounded by compaction.
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
// What one row has: ascending in bins, at least one unit each.
using Shares = std::vector<Share>;

// A row as its worth depends on it.
struct RowShape {
  std::size_t row = 0;
  int bins = 0;
  int units = 0;
  bool unchanged = false;  // exactly what the row has at present
};

struct AssignmentProblem {
  std::vector<int> capacity;    // by bin
  std::vector<Shares> present;  // by row, in order of precedence
  bool one_spanning_row =
      false;                  // a bin may hold shares of at most one row that spans several bins
  std::vector<bool> spanned;  // by bin, or empty: such a row, outside the search, is there
  // What the search maximises the sum of. Must be finite.
  std::function<double(const RowShape&)> worth;
  // The most units, up to so many, that a row can use; 0 = none.
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

// `start` are solutions to begin with, besides the present one; what breaks a limit is repaired.
[[nodiscard]] AssignmentSearchResult search_assignment(const AssignmentProblem& problem,
                                                       const AssignmentSearchOptions& options,
                                                       std::span<const Assignment> start = {});

// Whether capacity, the spanning rule and what each row can use are kept.
[[nodiscard]] bool keeps_limits(const AssignmentProblem& problem, const std::vector<Shares>& rows);

}  // namespace rubato::math
