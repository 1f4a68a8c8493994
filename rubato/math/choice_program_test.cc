#include "rubato/math/choice_program.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <vector>

#include "rubato/base/random.h"

namespace rubato::math {
namespace {

constexpr int kNone = ChoiceResult::kNone;

// The best worth by trying every combination.
double best_of_all(const ChoiceProblem& problem, std::vector<int> room, std::size_t row = 0) {
  if (row == problem.rows.size()) return 0;
  double best = best_of_all(problem, room, row + 1);
  for (const ChoiceOption& option : problem.rows[row]) {
    int& left = room[static_cast<std::size_t>(option.resource)];
    if (option.units > left) continue;
    left -= option.units;
    best = std::max(best, option.worth + best_of_all(problem, room, row + 1));
    left += option.units;
  }
  return best;
}

// The worth of what was chosen; fails if it does not fit.
double worth_of(const ChoiceProblem& problem, const std::vector<int>& chosen) {
  std::vector<int> room = problem.capacity;
  double worth = 0;
  for (std::size_t row = 0; row < chosen.size(); ++row) {
    if (chosen[row] == kNone) continue;
    const ChoiceOption& option = problem.rows[row][static_cast<std::size_t>(chosen[row])];
    room[static_cast<std::size_t>(option.resource)] -= option.units;
    worth += option.worth;
  }
  for (const int left : room) EXPECT_GE(left, 0);
  return worth;
}

ChoiceProblem draw_problem(Random random, std::uint64_t most_rows, std::uint64_t most_resources) {
  ChoiceProblem problem;
  const auto resources = 1 + random.below(most_resources);
  for (std::uint64_t i = 0; i < resources; ++i)
    problem.capacity.push_back(static_cast<int>(random.below(12)));
  problem.rows.resize(random.below(most_rows + 1));
  for (auto& row : problem.rows) {
    for (std::uint64_t i = random.below(6); i > 0; --i) {
      row.push_back({static_cast<int>(random.below(resources)), static_cast<int>(random.below(7)),
                     random.below(4) == 0 ? 1.0 * static_cast<double>(random.below(4))
                                          : random.uniform(-0.2, 2)});
    }
  }
  return problem;
}

TEST(ChoiceProgram, TakesWhatIsWorthMostTogether) {
  // One of both rows could have 3.5 and 3.6, but not both.
  const ChoiceProblem problem{{2, 4},
                              {{{0, 1, 1}, {0, 2, 1.5}, {1, 1, 1.5}, {1, 2, 2.5}, {1, 4, 3.5}},
                               {{0, 1, 1.2}, {0, 2, 2.1}, {1, 1, 1}, {1, 2, 1.9}, {1, 4, 3.6}}}};
  const auto result = choose(problem);
  EXPECT_EQ(result.chosen, (std::vector<int>{4, 1}));
  EXPECT_DOUBLE_EQ(result.worth, 5.6);
  EXPECT_NEAR(result.bound, 5.6, 1e-6);
}

TEST(ChoiceProgram, NothingIsChosenIfNothingFitsOrIsWorthIt) {
  EXPECT_EQ(choose({{3}, {{{0, 4, 5}}, {{0, 1, 0}, {0, 2, -1}}, {}}}).chosen,
            (std::vector<int>{kNone, kNone, kNone}));
  EXPECT_TRUE(choose({{}, {}}).chosen.empty());
}

RC_GTEST_PROP(ChoiceProgram, FindsTheBestOfAllCombinations, ()) {
  const auto seed = *rc::gen::arbitrary<std::uint32_t>();
  const auto problem = draw_problem(Random(seed), 8, 3);
  const auto result = choose(problem, {.nodes = 100'000});
  const double best = best_of_all(problem, problem.capacity);
  RC_ASSERT(std::abs(result.worth - best) <= 1e-7);
  RC_ASSERT(std::abs(worth_of(problem, result.chosen) - result.worth) <= 1e-9);
  RC_ASSERT(std::abs(result.bound - best) <= 1e-6);
}

RC_GTEST_PROP(ChoiceProgram, FewNodesGiveAValidChoiceAndAnHonestBound, ()) {
  const auto seed = *rc::gen::arbitrary<std::uint32_t>();
  const auto problem = draw_problem(Random(seed), 8, 3);
  const auto result = choose(problem, {.nodes = static_cast<int>(seed % 4)});
  const double best = best_of_all(problem, problem.capacity);
  RC_ASSERT(result.nodes <= static_cast<int>(seed % 4));
  RC_ASSERT(std::abs(worth_of(problem, result.chosen) - result.worth) <= 1e-9);
  RC_ASSERT(result.worth <= best + 1e-7);
  RC_ASSERT(result.bound >= best - 1e-6);
}

TEST(ChoiceProgram, EqualInputsGiveEqualChoices) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const auto problem = draw_problem(Random(seed), 60, 3);
    EXPECT_EQ(choose(problem).chosen, choose(problem).chosen);
  }
}

}  // namespace
}  // namespace rubato::math
