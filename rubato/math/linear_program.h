// Linear programs in columns (variables from 0 up) and rows, solved by the simplex method of
// COIN-OR CLP. Built once; coefficients, bounds and objective can then be changed, and each solve
// starts from the basis of the last one. The same calls give the same bits.
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

  // Before the first solve: rows first, then the columns in them.
  int add_row(double lower, double upper);
  int add_column(double upper, double objective, std::span<const Term> terms);

  // At any time. A coefficient that changes must have been given when its column was added.
  void set_coefficient(int row, int column, double value);
  void set_row_lower(int row, double lower);
  void set_column_upper(int column, double upper);
  void set_objective(int column, double value);

  // A start for the next solve, as basis() wrote it: one letter a column, then one a row. What does
  // not fit is ignored. A start put together from pieces of others need not be a basis: the solver
  // makes it one.
  static constexpr char kColumnAtZero = 'd', kRowWithSlack = 'b';  // where nothing is known
  void set_basis(const std::string& basis);
  [[nodiscard]] std::string basis() const;

  // Maximises. False if no point keeps all rows or the objective has no bound.
  [[nodiscard]] bool maximise();

  // Of the last maximise() that said true.
  [[nodiscard]] double objective() const;
  [[nodiscard]] double value(int column) const;
  // By how much the objective would grow with the row's bound.
  [[nodiscard]] double dual(int row) const;
  [[nodiscard]] int iterations() const;

  [[nodiscard]] int rows() const;
  [[nodiscard]] int columns() const;

 private:
  struct Model;
  std::unique_ptr<Model> model_;
};

}  // namespace rubato::math
