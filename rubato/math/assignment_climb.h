// Hill climbing on an assignment of units in bins to rows (math/assignment_search.h): what a search
// by chance has left lying about is picked up by looking at every small change, until none helps.
//
//   one row     is taken up and put down where it is worth most in the room there is, or as it is
//               at present
//   two rows    that meet on a bin are taken up together; the first is put down where it is worth
//               most, or with a little less, then the second
//   a transfer  of units on one bin, between two rows that meet there or to a row without units
//   a loss      thoroughly, with few rows: one is put back to what it is at present, or loses some
//               of its bins, and the others go on from there; kept if all together gain
//
// Rows go where there is just enough room, else on the emptiest bins, so that a change costs a few
// evaluations and not one for each bin.
//
// Pure and without chance: equal inputs give equal bytes. What comes out is never worth less and
// keeps the limits if what came in did.
#pragma once

#include <cstddef>

#include "rubato/base/namespaces.h"
#include "rubato/math/assignment_search.h"

namespace rubato::math {

// With which changes it begins, as the slope at the foot decides which top is reached; and whether
// losses are tried.
enum class Climb { rows_first, pairs_first, thoroughly };

// Returns how many rows were evaluated.
std::size_t climb(const AssignmentProblem& problem, Assignment& assignment,
                  Climb how = Climb::thoroughly);

}  // namespace rubato::math
