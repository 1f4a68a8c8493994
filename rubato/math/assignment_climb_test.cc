#include "rubato/math/assignment_climb.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <vector>

#include "rubato/base/random.h"

namespace rubato::math {
namespace {

// Rows gain from units with diminishing returns. They lose a fifth by spanning bins, a tenth by a
// change.
AssignmentProblem problem_with(std::vector<int> capacity, std::vector<double> weights) {
  AssignmentProblem problem;
  problem.capacity = std::move(capacity);
  problem.present.resize(weights.size());
  problem.one_spanning_row = true;
  problem.worth = [weights = std::move(weights)](const RowShape& row) {
    const double speed = weights[row.row] * std::sqrt(row.units) * (row.bins > 1 ? 0.8 : 1);
    return -1 / (speed * (row.unchanged ? 1 : 0.9) + 0.001);
  };
  problem.usable = [](std::size_t, int units) { return std::min(units, 8); };
  return problem;
}

Assignment climbed(const AssignmentProblem& problem, std::vector<Shares> rows) {
  Assignment assignment{std::move(rows), 0};
  climb(problem, assignment);
  return assignment;
}

TEST(Climb, PutsRowsWhereThereIsRoom) {
  EXPECT_EQ(climbed(problem_with({4}, {1}), {{}}).rows[0], (Shares{{0, 4}}));
  EXPECT_EQ(climbed(problem_with({4, 4}, {1}), {{{0, 2}}}).rows[0], (Shares{{0, 4}, {1, 4}}));
  auto small = problem_with({2, 4}, {1});
  small.usable = [](std::size_t, int units) { return std::min(units, 2); };
  EXPECT_EQ(climbed(small, {{}}).rows[0], (Shares{{0, 2}})) << "where there is just enough";
}

TEST(Climb, StaysWhereAChangeCostsMoreThanItBrings) {
  auto problem = problem_with({4, 1}, {1});
  problem.present = {{{0, 4}}};
  EXPECT_EQ(climbed(problem, problem.present).rows, problem.present);
  EXPECT_EQ(climbed(problem, {{{1, 1}}}).rows, problem.present);
}

TEST(Climb, ServesARowThatHasNothingFromOneThatHasMuch) {
  const auto problem = problem_with({4}, {1, 1});
  const auto found = climbed(problem, {{{0, 4}}, {}});
  EXPECT_EQ(found.rows[0], (Shares{{0, 2}}));
  EXPECT_EQ(found.rows[1], (Shares{{0, 2}}));
}

TEST(Climb, BringsARowThatSpansBinsTogether) {
  // Each row has half of two bins. Separated, they are worth more.
  auto problem = problem_with({4, 4}, {1, 1});
  problem.one_spanning_row = false;
  const auto found = climbed(problem, {{{0, 2}, {1, 2}}, {{0, 2}, {1, 2}}});
  EXPECT_EQ(found.rows[0].size(), 1U);
  EXPECT_EQ(found.rows[1].size(), 1U);
  EXPECT_DOUBLE_EQ(found.worth, -2 / (2 * 0.9 + 0.001));
}

RC_GTEST_PROP(Climb, IsNeverWorthLessKeepsTheLimitsAndEndsOnTop, ()) {
  const auto seed = *rc::gen::arbitrary<std::uint64_t>();
  Random random(seed);
  std::vector<int> capacity(1 + random.below(6));
  for (int& units : capacity) units = static_cast<int>(random.below(6));
  std::vector<double> weights(1 + random.below(12));
  for (double& weight : weights) weight = random.uniform(0.1, 2);
  auto problem = problem_with(capacity, weights);
  problem.one_spanning_row = random.below(2) == 0;
  if (random.below(3) == 0) {
    problem.usable = [](std::size_t, int units) { return units >= 4 ? 4 : units >= 2 ? 2 : 0; };
  }
  for (std::size_t bin = 0; random.below(2) == 0 && bin < capacity.size(); ++bin) {
    problem.spanned.resize(capacity.size());
    problem.spanned[bin] = random.below(2) == 0;
  }
  problem.present = search_assignment(problem, {6, 2, seed}).population.back().rows;
  for (const auto& before : search_assignment(problem, {6, 2, seed + 1}).population) {
    Assignment after = before;
    climb(problem, after);
    RC_ASSERT(keeps_limits(problem, after.rows));
    Assignment again = after;
    climb(problem, again);
    RC_ASSERT(again.rows == after.rows);
    RC_ASSERT(again.worth == after.worth);
    RC_ASSERT(after.worth >= before.worth - 1e-9);
  }
}

}  // namespace
}  // namespace rubato::math
