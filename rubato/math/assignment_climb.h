// Hill climbing on an assignment of units in bins to rows (math/assignment_search.h). It tries
// every small change until none improves the result. This finds what the random search has missed.
//
//   one row     is removed and placed where it is worth most in the free room, or as at present
//   two rows    on the same bin are removed together; the first is placed where it is worth most,
//               or with slightly fewer units, then the second
//   a transfer  of units on one bin, between two rows there, or to a row without units
//   a loss      only with few rows (thoroughly): a row goes back to what it has at present, or
//               loses some of its bins, and the others are improved from there; kept if the total
//               gains
//
// Rows are placed where there is just enough room, else on the emptiest bins. So a change costs a
// few evaluations and not one per bin.
//
// Pure and not random: equal inputs give equal bytes. The result is never worth less than the
// input, and keeps the limits if the input did.
#pragma once

#include <cstddef>

#include "rubato/base/namespaces.h"
#include "rubato/math/assignment_search.h"

namespace rubato::math {

// Which changes are tried first (this decides which local optimum is reached), and whether losses
// are tried.
enum class Climb { rows_first, pairs_first, thoroughly };

// Returns how many rows were evaluated.
std::size_t climb(const AssignmentProblem& problem, Assignment& assignment,
                  Climb how = Climb::thoroughly);

}  // namespace rubato::math
