// The solver on COIN-OR CLP. It is compiled into a module of its own (simplex.h).
#include <ClpSimplex.hpp>
#include <vector>

#include "rubato/math/linear_program.h"
#include "rubato/math/simplex.h"

namespace rubato::math {
namespace {

// By how much a row may be missed. Where jobs differ by factors of a thousand, what one lacks is a
// thousand times that for another.
constexpr double kTolerance = 1e-9;

constexpr int kScaling = 3;  // CLP's default

static_assert(LinearProgram::kColumnAtZero == 'a' + ClpSimplex::atLowerBound);
static_assert(LinearProgram::kRowWithSlack == 'a' + ClpSimplex::basic);
static_assert(Simplex::kLastStatus == 'a' + ClpSimplex::isFixed);

class ClpSolver final : public Simplex {
 public:
  void load(const Problem& problem) override {
    columns_ = problem.columns;
    rows_ = problem.rows;
    clp_.setLogLevel(0);
    clp_.setPerturbation(50);  // these programs are degenerate: many jobs are equally good
    clp_.setOptimizationDirection(-1);
    clp_.setPrimalTolerance(kTolerance);
    clp_.setDualTolerance(kTolerance);
    const std::vector<double> zeros(static_cast<std::size_t>(problem.columns), 0);
    const std::vector<CoinBigIndex> begins(problem.starts, problem.starts + problem.columns + 1);
    clp_.loadProblem(problem.columns, problem.rows, begins.data(), problem.indices,
                     problem.elements, zeros.data(), problem.upper, problem.objective,
                     problem.row_lower, problem.row_upper);
  }

  void set_coefficient(int row, int column, double value) override {
    clp_.modifyCoefficient(row, column, value, true);
  }
  void set_row_lower(int row, double lower) override { clp_.setRowLower(row, lower); }
  void set_column_upper(int column, double upper) override { clp_.setColumnUpper(column, upper); }
  void set_objective(int column, double value) override {
    clp_.setObjectiveCoefficient(column, value);
  }

  void set_basis(const char* letters) override {
    clp_.createStatus();
    const auto status = [&](int i) {
      return static_cast<ClpSimplex::Status>(letters[i] - kFirstStatus);
    };
    for (int column = 0; column < columns_; ++column) clp_.setColumnStatus(column, status(column));
    for (int row = 0; row < rows_; ++row) clp_.setRowStatus(row, status(columns_ + row));
  }
  [[nodiscard]] char column_status(int column) const override {
    return static_cast<char>(kFirstStatus + clp_.getColumnStatus(column));
  }
  [[nodiscard]] char row_status(int row) const override {
    return static_cast<char>(kFirstStatus + clp_.getRowStatus(row));
  }

  bool solve(bool given) override {
    clp_.primal();
    if (given && !clp_.isProvenOptimal()) {  // a bad start must not decide
      clp_.allSlackBasis(true);
      clp_.primal();
    }
    if (clp_.secondaryStatus() != 0) {  // only the scaled program is solved
      clp_.scaling(0);
      clp_.primal();
      clp_.scaling(kScaling);
    }
    iterations_ = clp_.numberIterations();
    return clp_.isProvenOptimal();
  }
  [[nodiscard]] double objective() const override { return clp_.objectiveValue(); }
  [[nodiscard]] double value(int column) const override {
    return clp_.primalColumnSolution()[column];
  }
  [[nodiscard]] double dual(int row) const override { return clp_.dualRowSolution()[row]; }
  [[nodiscard]] int iterations() const override { return iterations_; }

 private:
  ClpSimplex clp_;
  int columns_ = 0;
  int rows_ = 0;
  int iterations_ = 0;
};

}  // namespace
}  // namespace rubato::math

// NOLINTNEXTLINE(readability-identifier-naming)
extern "C" rubato::math::Simplex* rubato_make_simplex() { return new rubato::math::ClpSolver; }
