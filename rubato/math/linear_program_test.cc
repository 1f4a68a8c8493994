#include "rubato/math/linear_program.h"

#include <gtest/gtest.h>
#include <vector>

#include "rubato/base/random.h"

namespace rubato::math {
namespace {

using Term = LinearProgram::Term;

// max 3x + 2y with x + y <= 4, x + 3y <= 7, x <= 3.
struct Small {
  LinearProgram program;
  int sum = program.add_row(-LinearProgram::kUnbounded, 4);
  int slope = program.add_row(-LinearProgram::kUnbounded, 7);
  int x = program.add_column(3, 3, std::vector<Term>{{sum, 1}, {slope, 1}});
  int y = program.add_column(LinearProgram::kUnbounded, 2, std::vector<Term>{{sum, 1}, {slope, 3}});
};

TEST(LinearProgram, FindsTheBestCornerAndItsPrices) {
  Small small;
  ASSERT_TRUE(small.program.maximise());
  EXPECT_NEAR(small.program.objective(), 11, 1e-9);
  EXPECT_NEAR(small.program.value(small.x), 3, 1e-9);
  EXPECT_NEAR(small.program.value(small.y), 1, 1e-9);
  EXPECT_NEAR(small.program.dual(small.sum), 2, 1e-9) << "one more of it is worth this much";
  EXPECT_NEAR(small.program.dual(small.slope), 0, 1e-9);
}

TEST(LinearProgram, ChangesAreSolvedFromWhereItStands) {
  Small small;
  ASSERT_TRUE(small.program.maximise());
  small.program.set_column_upper(small.x, 1);
  ASSERT_TRUE(small.program.maximise());
  EXPECT_NEAR(small.program.objective(), 7, 1e-9);
  small.program.set_coefficient(small.slope, small.y, 1);
  ASSERT_TRUE(small.program.maximise());
  EXPECT_NEAR(small.program.value(small.y), 3, 1e-9);
  small.program.set_objective(small.y, 0);
  ASSERT_TRUE(small.program.maximise());
  EXPECT_NEAR(small.program.objective(), 3, 1e-9);
  small.program.set_row_lower(small.sum, 2);
  ASSERT_TRUE(small.program.maximise());
  EXPECT_GE(small.program.value(small.x) + small.program.value(small.y), 2 - 1e-9);
}

TEST(LinearProgram, SaysWhenThereIsNoAnswer) {
  LinearProgram none;
  const int row = none.add_row(2, LinearProgram::kUnbounded);
  none.add_column(1, 1, std::vector<Term>{{row, 1}});
  EXPECT_FALSE(none.maximise());
  LinearProgram endless;
  endless.add_row(0, LinearProgram::kUnbounded);
  endless.add_column(LinearProgram::kUnbounded, 1, std::vector<Term>{{0, 1}});
  EXPECT_FALSE(endless.maximise());
}

TEST(LinearProgram, ASavedBasisIsTheWholeWay) {
  const auto build = [] {
    LinearProgram program;
    Random random(7);
    for (int row = 0; row < 30; ++row) program.add_row(-LinearProgram::kUnbounded, 1);
    for (int column = 0; column < 60; ++column) {
      std::vector<Term> terms;
      for (int row = 0; row < 30; ++row) terms.emplace_back(row, random.uniform());
      program.add_column(1, random.uniform(), terms);
    }
    return program;
  };
  LinearProgram first = build();
  ASSERT_TRUE(first.maximise());
  EXPECT_GT(first.iterations(), 5);
  LinearProgram second = build();
  second.set_basis(first.basis());
  ASSERT_TRUE(second.maximise());
  EXPECT_LE(second.iterations(), 1);
  EXPECT_NEAR(second.objective(), first.objective(), 1e-9);
  LinearProgram third = build();
  third.set_basis("nonsense");
  ASSERT_TRUE(third.maximise());
  EXPECT_NEAR(third.objective(), first.objective(), 1e-9);
}

}  // namespace
}  // namespace rubato::math
