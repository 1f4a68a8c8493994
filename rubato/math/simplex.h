// The solver behind LinearProgram: the simplex method of COIN-OR CLP.
//
// It is a module that the program carries as data and loads when the first linear program is made.
// The libraries of CLP (LAPACK, OpenBLAS, Fortran's) take longer to load than most commands of
// `rubato` take to run, and only a few policies solve linear programs.
#pragma once

#include <memory>

#include "rubato/base/namespaces.h"

namespace rubato::math {

// Signatures have no type of the standard library: the module may be linked to another copy of it.
class Simplex {
 public:
  Simplex() = default;
  Simplex(const Simplex&) = delete;
  Simplex& operator=(const Simplex&) = delete;
  virtual ~Simplex() = default;

  // Columns are sparse: those of column j are indices and elements from starts[j] to starts[j + 1].
  struct Problem {
    int columns;
    int rows;
    const int* starts;
    const int* indices;
    const double* elements;
    const double* upper;  // of columns; their lower bounds are 0
    const double* objective;
    const double* row_lower;
    const double* row_upper;
  };
  virtual void load(const Problem& problem) = 0;
  virtual void set_coefficient(int row, int column, double value) = 0;
  virtual void set_row_lower(int row, double lower) = 0;
  virtual void set_column_upper(int column, double upper) = 0;
  virtual void set_objective(int column, double value) = 0;

  // A letter for the state of each column, then of each row: 'a' + ClpSimplex::Status.
  static constexpr char kFirstStatus = 'a', kLastStatus = 'f';
  virtual void set_basis(const char* letters) = 0;
  [[nodiscard]] virtual char column_status(int column) const = 0;
  [[nodiscard]] virtual char row_status(int row) const = 0;

  // Maximises; false if there is no optimum. `given`: starts from the basis that was set.
  [[nodiscard]] virtual bool solve(bool given) = 0;
  [[nodiscard]] virtual double objective() const = 0;
  [[nodiscard]] virtual double value(int column) const = 0;
  [[nodiscard]] virtual double dual(int row) const = 0;
  [[nodiscard]] virtual int iterations() const = 0;
};

// Ends the program with a sentence on standard error if the solver cannot be loaded.
[[nodiscard]] std::unique_ptr<Simplex> new_simplex();

}  // namespace rubato::math
