#include "rubato/math/linear_program.h"

#include <algorithm>

#include "rubato/base/check.h"
#include "rubato/math/simplex.h"

namespace rubato::math {
namespace {

double bound(double value) {
  constexpr double kMost = std::numeric_limits<double>::max();
  return std::clamp(value, -kMost, kMost);
}

}  // namespace

struct LinearProgram::Model {
  // The program as given, until the first solve passes it to CLP.
  std::vector<double> row_lower, row_upper, upper, objective, elements;
  std::vector<int> starts{0};
  std::vector<int> indices;
  std::string basis;

  std::unique_ptr<Simplex> simplex = new_simplex();
  bool loaded = false;

  void load() {
    if (loaded) return;
    loaded = true;
    simplex->load({static_cast<int>(upper.size()), static_cast<int>(row_lower.size()),
                   starts.data(), indices.data(), elements.data(), upper.data(), objective.data(),
                   row_lower.data(), row_upper.data()});
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
  if (model_->loaded) model_->simplex->set_coefficient(row, column, value);
}

void LinearProgram::set_row_lower(int row, double lower) {
  model_->row_lower[static_cast<std::size_t>(row)] = bound(lower);
  if (model_->loaded) model_->simplex->set_row_lower(row, bound(lower));
}

void LinearProgram::set_column_upper(int column, double upper) {
  model_->upper[static_cast<std::size_t>(column)] = bound(upper);
  if (model_->loaded) model_->simplex->set_column_upper(column, bound(upper));
}

void LinearProgram::set_objective(int column, double value) {
  model_->objective[static_cast<std::size_t>(column)] = value;
  if (model_->loaded) model_->simplex->set_objective(column, value);
}

void LinearProgram::set_basis(const std::string& basis) {
  const bool letters = std::all_of(basis.begin(), basis.end(), [](char c) {
    return c >= Simplex::kFirstStatus && c <= Simplex::kLastStatus;
  });
  if (letters) model_->basis = basis;
}

std::string LinearProgram::basis() const {
  std::string letters;
  for (int column = 0; column < columns(); ++column)
    letters += model_->simplex->column_status(column);
  for (int row = 0; row < rows(); ++row) letters += model_->simplex->row_status(row);
  return letters;
}

bool LinearProgram::maximise() {
  model_->load();
  const std::string basis = std::exchange(model_->basis, {});
  if (basis.size() == model_->upper.size() + model_->row_lower.size())
    model_->simplex->set_basis(basis.c_str());
  return model_->simplex->solve(!basis.empty());
}

double LinearProgram::objective() const { return model_->simplex->objective(); }
double LinearProgram::value(int column) const { return model_->simplex->value(column); }
double LinearProgram::dual(int row) const { return model_->simplex->dual(row); }
int LinearProgram::iterations() const { return model_->simplex->iterations(); }
int LinearProgram::rows() const { return static_cast<int>(model_->row_lower.size()); }
int LinearProgram::columns() const { return static_cast<int>(model_->upper.size()); }

}  // namespace rubato::math
