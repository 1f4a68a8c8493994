// Linear programs in columns (variables >= 0) and rows, solved by the simplex method of COIN-OR
// CLP. A program is built once. Coefficients, bounds and objective can then be changed, and each
// solve starts from the basis of the last one. The same calls give the same bits.
#pragma once

#include <cstddef>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "rubato/base/namespaces.h"

namespace rubato::math {

class LinearProgram {
 public:
  static constexpr double kUnbounded = std::numeric_limits<double>::infinity();
  using Term = std::pair<int, double>;  // row and coefficient

  LinearProgram();
  LinearProgram(LinearProgram&&) noexcept;
  LinearProgram& operator=(LinearProgram&&) noexcept;
  ~LinearProgram();

  // Before the first solve: first the rows, then the columns.
  int add_row(double lower, double upper);
  int add_column(double upper, double objective, std::span<const Term> terms);

  // At any time. A coefficient can be changed only if it was given when its column was added.
  void set_coefficient(int row, int column, double value);
  void set_row_lower(int row, double lower);
  void set_column_upper(int column, double upper);
  void set_objective(int column, double value);

  // A start for the next solve, in the format of basis(): one letter per column, then one per row.
  // A start of the wrong length is ignored. A start made from pieces of others need not be a basis:
  // the solver completes it.
  static constexpr char kColumnAtZero = 'd', kRowWithSlack = 'b';  // the default
  void set_basis(const std::string& basis);
  [[nodiscard]] std::string basis() const;

  // Maximises. False if no point satisfies all rows, or if the objective is unbounded.
  [[nodiscard]] bool maximise();

  // The result of the last maximise() that returned true.
  [[nodiscard]] double objective() const;
  [[nodiscard]] double value(int column) const;
  // The price of a row: by how much the objective would grow with the row's bound.
  [[nodiscard]] double dual(int row) const;
  [[nodiscard]] int iterations() const;

  [[nodiscard]] int rows() const;
  [[nodiscard]] int columns() const;

 private:
  struct Model;
  std::unique_ptr<Model> model_;
};

}  // namespace rubato::math
