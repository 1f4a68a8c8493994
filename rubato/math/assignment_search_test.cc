#include "rubato/math/assignment_search.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <gtest/gtest.h>
#include <limits>
#include <numeric>
#include <rapidcheck/gtest.h>
#include <vector>

#include "rubato/base/random.h"

namespace rubato::math {
namespace {

// Rows gain from units with diminishing returns, and lose by spanning bins.
struct Example {
  std::vector<double> weight, network;
  std::vector<int> most;
  AssignmentProblem problem;
  bool powers_of_two = false;
};

Example random_example(std::uint64_t seed) {
  Random random(seed);
  Example e;
  const auto rows = 1 + random.below(12);
  const auto bins = 1 + random.below(6);
  e.powers_of_two = random.below(3) == 0;
  for (std::uint64_t i = 0; i < bins; ++i)
    e.problem.capacity.push_back(static_cast<int>(random.below(6)));
  e.problem.one_spanning_row = random.below(2) == 0;
  if (random.below(4) == 0) {
    for (std::uint64_t i = 0; i < bins; ++i) e.problem.spanned.push_back(random.below(2) == 0);
  }
  for (std::uint64_t i = 0; i < rows; ++i) {
    e.weight.push_back(random.uniform(0.1, 2));
    e.network.push_back(random.uniform(0.3, 1));
    e.most.push_back(1 + static_cast<int>(random.below(10)));
    e.problem.present.emplace_back();
  }
  return e;
}

// The functions hold references to the example, so it must not move.
void describe(Example& e) {
  e.problem.worth = [&e](const RowShape& row) {
    if (row.units == 0) return -1000.0;
    const double speed = e.weight[row.row] * std::pow(row.units, 0.7);
    return -1 / (speed * (row.bins > 1 ? e.network[row.row] : 1) * (row.unchanged ? 1 : 0.9));
  };
  e.problem.usable = [&e](std::size_t row, int units) {
    units = std::min(units, e.most[row]);
    if (!e.powers_of_two) return units;
    int power = 0;
    for (int p = 1; p <= units; p *= 2) power = p;
    return power;
  };
}

double worth_of(const AssignmentProblem& problem, const std::vector<Shares>& rows) {
  double worth = 0;
  for (std::size_t row = 0; row < rows.size(); ++row) {
    int units = 0;
    for (const auto& share : rows[row]) units += share.units;
    worth += problem.worth(
        {row, static_cast<int>(rows[row].size()), units, rows[row] == problem.present[row]});
  }
  return worth;
}

RC_GTEST_PROP(AssignmentSearch, EverySolutionKeepsTheLimitsAndIsWorthWhatItSays, ()) {
  Example e = random_example(*rc::gen::arbitrary<std::uint64_t>());
  describe(e);
  const auto result = search_assignment(e.problem, {10, 10, 7});
  RC_ASSERT(!result.population.empty());
  double before = std::numeric_limits<double>::infinity();
  for (const auto& solution : result.population) {
    RC_ASSERT(keeps_limits(e.problem, solution.rows));
    RC_ASSERT(std::abs(solution.worth - worth_of(e.problem, solution.rows)) <=
              1e-9 * std::abs(solution.worth));
    RC_ASSERT(solution.worth <= before);
    before = solution.worth;
  }
}

RC_GTEST_PROP(AssignmentSearch, GoesOnFromWhatItWasGivenAndNeverLosesIt, ()) {
  const auto seed = *rc::gen::arbitrary<std::uint64_t>();
  Example e = random_example(seed);
  describe(e);
  const auto first = search_assignment(e.problem, {8, 8, seed});
  const auto again = search_assignment(e.problem, {8, 3, seed + 1}, first.population);
  RC_ASSERT(again.population.front().worth >= first.population.front().worth);
  const auto idle = search_assignment(e.problem, {8, 0, seed + 1}, first.population);
  RC_ASSERT(idle.population.front().worth >= first.population.front().worth);
}

// Initial solutions may come from a larger problem.
RC_GTEST_PROP(AssignmentSearch, RepairsWhatItIsGiven, ()) {
  const auto seed = *rc::gen::arbitrary<std::uint64_t>();
  Random random(seed);
  Example e = random_example(seed);
  describe(e);
  Assignment wild;
  for (std::size_t row = 0; row < e.problem.present.size(); ++row) {
    Shares shares;
    for (std::size_t bin = 0; bin < e.problem.capacity.size(); ++bin) {
      if (random.below(2) == 0)
        shares.push_back({static_cast<int>(bin), 1 + static_cast<int>(random.below(9))});
    }
    wild.rows.push_back(shares);
    if (random.below(2) == 0) e.problem.present[row] = shares;
  }
  const auto result = search_assignment(e.problem, {5, 2, seed}, std::vector{wild});
  for (const auto& solution : result.population) RC_ASSERT(keeps_limits(e.problem, solution.rows));
}

// Enumerates all assignments of a few units, row by row.
double best_by_trying(const AssignmentProblem& problem) {
  std::vector<Shares> rows(problem.present.size());
  double best = -std::numeric_limits<double>::infinity();
  const std::function<void(std::size_t, std::size_t)> fill = [&](std::size_t row, std::size_t bin) {
    if (row == rows.size()) {
      if (keeps_limits(problem, rows)) best = std::max(best, worth_of(problem, rows));
      return;
    }
    if (bin == problem.capacity.size()) return fill(row + 1, 0);
    fill(row, bin + 1);
    for (int units = 1; units <= problem.capacity[bin]; ++units) {
      rows[row].push_back({static_cast<int>(bin), units});
      fill(row, bin + 1);
      rows[row].pop_back();
    }
  };
  fill(0, 0);
  return best;
}

TEST(AssignmentSearch, FindsTheBestOfSmallWorlds) {
  int found = 0;
  int tried = 0;
  for (std::uint64_t seed = 0; tried < 40; ++seed) {
    Example e = random_example(seed);
    describe(e);
    const int units = std::accumulate(e.problem.capacity.begin(), e.problem.capacity.end(), 0);
    if (e.problem.present.size() > 3 || e.problem.capacity.size() > 3 || units > 8) continue;
    ++tried;
    const double best = best_by_trying(e.problem);
    const auto result = search_assignment(e.problem, {50, 50, seed});
    EXPECT_LE(result.population.front().worth, best + 1e-9);
    found += result.population.front().worth >= best - 1e-9 ? 1 : 0;
  }
  EXPECT_GE(found, 38) << "of " << tried;
}

TEST(AssignmentSearch, TheSameSeedGivesTheSameBytes) {
  Example e = random_example(5);
  describe(e);
  const auto a = search_assignment(e.problem, {20, 20, 3});
  const auto b = search_assignment(e.problem, {20, 20, 3});
  ASSERT_EQ(a.population.size(), b.population.size());
  for (std::size_t i = 0; i < a.population.size(); ++i) {
    EXPECT_EQ(a.population[i].rows, b.population[i].rows);
    EXPECT_EQ(a.population[i].worth, b.population[i].worth);
  }
}

TEST(AssignmentSearch, AWorldWithoutRowsOrRoomIsNoTrouble) {
  AssignmentProblem problem;
  problem.worth = [](const RowShape&) { return 0.0; };
  problem.usable = [](std::size_t, int units) { return units; };
  EXPECT_EQ(search_assignment(problem, {}).population.size(), 1U);
  problem.capacity = {0, 0};
  problem.present = {{}, {}};
  EXPECT_EQ(search_assignment(problem, {}).population.size(), 1U) << "all that can be is nothing";
}

TEST(AssignmentSearch, EvaluatesOnlyRowsThatChange) {
  AssignmentProblem problem;
  problem.capacity.assign(16, 4);
  problem.present.resize(40);
  problem.worth = [](const RowShape& row) { return -1 / (row.units + 0.001); };
  problem.usable = [](std::size_t, int units) { return std::min(units, 8); };
  const auto result = search_assignment(problem, {100, 100, 1});
  EXPECT_LT(result.rows_evaluated, 40U * 100 * 100 / 4);
}

}  // namespace
}  // namespace rubato::math
