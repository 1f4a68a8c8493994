#include "rubato/math/linear_program.h"

#include <ClpSimplex.hpp>
#include <algorithm>

#include "rubato/base/check.h"

namespace rubato::math {
namespace {

// How much a row may be violated. It is small because jobs may differ by factors of a thousand: a
// small violation for one job is a thousand times larger for another.
constexpr double kTolerance = 1e-9;

constexpr int kScaling = 3;  // CLP's default

static_assert(LinearProgram::kColumnAtZero == 'a' + ClpSimplex::atLowerBound);
static_assert(LinearProgram::kRowWithSlack == 'a' + ClpSimplex::basic);

double bound(double value) {
  return value == LinearProgram::kUnbounded    ? COIN_DBL_MAX
         : value == -LinearProgram::kUnbounded ? -COIN_DBL_MAX
                                               : value;
}

}  // namespace

struct LinearProgram::Model {
  // The program as given, until the first solve passes it to CLP.
  std::vector<double> row_lower, row_upper, upper, objective, elements;
  std::vector<int> starts{0};
  std::vector<int> indices;
  std::string basis;

  ClpSimplex clp;
  bool loaded = false;
  int iterations = 0;

  void load() {
    if (loaded) return;
    loaded = true;
    clp.setLogLevel(0);
    clp.setPerturbation(50);  // these programs are degenerate, because many jobs are equal
    clp.setOptimizationDirection(-1);
    clp.setPrimalTolerance(kTolerance);
    clp.setDualTolerance(kTolerance);
    const std::vector<double> zeros(upper.size(), 0);
    const std::vector<CoinBigIndex> begins(starts.begin(), starts.end());
    clp.loadProblem(static_cast<int>(upper.size()), static_cast<int>(row_lower.size()),
                    begins.data(), indices.data(), elements.data(), zeros.data(), upper.data(),
                    objective.data(), row_lower.data(), row_upper.data());
  }
  void apply_basis() {
    if (basis.size() != upper.size() + row_lower.size()) return;
    clp.createStatus();
    for (std::size_t i = 0; i < basis.size(); ++i) {
      const auto status = static_cast<ClpSimplex::Status>(basis[i] - 'a');
      i < upper.size() ? clp.setColumnStatus(static_cast<int>(i), status)
                       : clp.setRowStatus(static_cast<int>(i - upper.size()), status);
    }
  }
};

LinearProgram::LinearProgram() : model_(std::make_unique<Model>()) {}
LinearProgram::LinearProgram(LinearProgram&&) noexcept = default;
LinearProgram& LinearProgram::operator=(LinearProgram&&) noexcept = default;
LinearProgram::~LinearProgram() = default;

int LinearProgram::add_row(double lower, double upper) {
  CHECK(!model_->loaded);
  model_->row_lower.push_back(bound(lower));
  model_->row_upper.push_back(bound(upper));
  return rows() - 1;
}

int LinearProgram::add_column(double upper, double objective, std::span<const Term> terms) {
  CHECK(!model_->loaded);
  model_->upper.push_back(bound(upper));
  model_->objective.push_back(objective);
  for (const auto& [row, coefficient] : terms) {
    CHECK(row >= 0 && row < rows());
    model_->indices.push_back(row);
    model_->elements.push_back(coefficient);
  }
  model_->starts.push_back(static_cast<int>(model_->indices.size()));
  return columns() - 1;
}

void LinearProgram::set_coefficient(int row, int column, double value) {
  const auto column_at = static_cast<std::size_t>(column);
  const auto from = model_->indices.begin() + model_->starts[column_at];
  const auto to = model_->indices.begin() + model_->starts[column_at + 1];
  const auto at = std::find(from, to, row);
  CHECK(at != to);
  model_->elements[static_cast<std::size_t>(at - model_->indices.begin())] = value;
  if (model_->loaded) model_->clp.modifyCoefficient(row, column, value, true);
}

void LinearProgram::set_row_lower(int row, double lower) {
  model_->row_lower[static_cast<std::size_t>(row)] = bound(lower);
  if (model_->loaded) model_->clp.setRowLower(row, bound(lower));
}

void LinearProgram::set_column_upper(int column, double upper) {
  model_->upper[static_cast<std::size_t>(column)] = bound(upper);
  if (model_->loaded) model_->clp.setColumnUpper(column, bound(upper));
}

void LinearProgram::set_objective(int column, double value) {
  model_->objective[static_cast<std::size_t>(column)] = value;
  if (model_->loaded) model_->clp.setObjectiveCoefficient(column, value);
}

void LinearProgram::set_basis(const std::string& basis) {
  const bool letters = std::all_of(basis.begin(), basis.end(), [](char c) {
    return c >= 'a' && c <= 'a' + ClpSimplex::isFixed;
  });
  if (letters) model_->basis = basis;
}

std::string LinearProgram::basis() const {
  std::string letters;
  for (int column = 0; column < columns(); ++column)
    letters += static_cast<char>('a' + model_->clp.getColumnStatus(column));
  for (int row = 0; row < rows(); ++row)
    letters += static_cast<char>('a' + model_->clp.getRowStatus(row));
  return letters;
}

bool LinearProgram::maximise() {
  model_->load();
  const bool given = !model_->basis.empty();
  if (given) model_->apply_basis();
  model_->basis.clear();
  model_->clp.primal();
  if (given && !model_->clp.isProvenOptimal()) {  // a bad start must not change the result
    model_->clp.allSlackBasis(true);
    model_->clp.primal();
  }
  if (model_->clp.secondaryStatus() != 0) {  // only the scaled program was solved
    model_->clp.scaling(0);
    model_->clp.primal();
    model_->clp.scaling(kScaling);
  }
  model_->iterations = model_->clp.numberIterations();
  return model_->clp.isProvenOptimal();
}

double LinearProgram::objective() const { return model_->clp.objectiveValue(); }
double LinearProgram::value(int column) const { return model_->clp.primalColumnSolution()[column]; }
double LinearProgram::dual(int row) const { return model_->clp.dualRowSolution()[row]; }
int LinearProgram::iterations() const { return model_->iterations; }
int LinearProgram::rows() const { return static_cast<int>(model_->row_lower.size()); }
int LinearProgram::columns() const { return static_cast<int>(model_->upper.size()); }

}  // namespace rubato::math
