#include "rubato/math/choice_program.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "rubato/base/check.h"
#include "rubato/math/linear_program.h"

namespace rubato::math {
namespace {

constexpr double kWhole = 1e-6;     // as close to 0 or 1 as this counts as whole
constexpr double kRounding = 1e-9;  // relative error of a relaxation's worth

class Choice {
 public:
  Choice(const ChoiceProblem& problem, const ChoiceLimits& limits)
      : problem_(problem), limits_(limits) {
    best_.chosen.assign(problem.rows.size(), ChoiceResult::kNone);
    for (std::size_t row = 0; row < problem.rows.size(); ++row) add_columns(row);
    build();
  }

  ChoiceResult run() {
    if (!columns_.empty()) explore(LinearProgram::kUnbounded);
    best_.bound = std::max(best_.worth, open_);
    return best_;
  }

 private:
  struct Column {
    std::size_t row = 0;
    int option = 0;
    bool allowed = true;
  };

  [[nodiscard]] const ChoiceOption& option_of(const Column& column) const {
    return problem_.rows[column.row][static_cast<std::size_t>(column.option)];
  }

  // Only options that some optimum may need: not those that take more units than another one of the
  // same resource and are not worth more.
  void add_columns(std::size_t row) {
    std::vector<int> order;
    const auto& options = problem_.rows[row];
    for (std::size_t i = 0; i < options.size(); ++i) {
      const ChoiceOption& option = options[i];
      CHECK(option.units >= 0);
      const int room = problem_.capacity[static_cast<std::size_t>(option.resource)];
      if (option.worth > 0 && option.units <= room) order.push_back(static_cast<int>(i));
    }
    const auto at = [&](int i) -> const ChoiceOption& {
      return options[static_cast<std::size_t>(i)];
    };
    std::sort(order.begin(), order.end(), [&](int a, int b) {
      return std::tuple(at(a).resource, at(a).units, -at(a).worth, a) <
             std::tuple(at(b).resource, at(b).units, -at(b).worth, b);
    });
    first_column_.push_back(columns_.size());
    for (const int i : order) {
      const bool same = columns_.size() > first_column_.back() &&
                        option_of(columns_.back()).resource == at(i).resource;
      if (same && option_of(columns_.back()).worth >= at(i).worth) continue;
      columns_.push_back({row, i});
    }
  }

  void build() {
    first_column_.push_back(columns_.size());
    for (std::size_t row = 0; row < problem_.rows.size(); ++row) program_.add_row(0, 1);
    for (const int units : problem_.capacity) program_.add_row(0, units);
    for (const Column& column : columns_) {
      const ChoiceOption& option = option_of(column);
      const std::vector<LinearProgram::Term> terms = {
          {static_cast<int>(column.row), 1},
          {static_cast<int>(problem_.rows.size()) + option.resource, option.units}};
      program_.add_column(1, option.worth, terms);
    }
  }

  // Below this worth, a branch is of no use.
  [[nodiscard]] double enough() const {
    return best_.worth + std::max(limits_.gap, kRounding) * std::abs(best_.worth);
  }

  // Solves the relaxation of what is allowed at present. `above`: the worth of the one before.
  void explore(double above) {
    if (best_.nodes >= limits_.nodes) {
      open_ = std::max(open_, above);
      return;
    }
    ++best_.nodes;
    if (!program_.maximise()) return;
    const double worth = program_.objective();
    if (worth <= enough()) {
      open_ = std::max(open_, worth);  // it may be better by the gap
      return;
    }
    const auto split = round_down();
    if (split == columns_.size()) return;
    take(split, worth);
    exclude(split, worth);
  }

  // Keeps the whole options, fills up with others and remembers the result if it is the best.
  // Returns the column to branch on, or the number of columns if the relaxation was whole.
  std::size_t round_down() {
    room_ = problem_.capacity;
    std::vector<int> chosen(problem_.rows.size(), ChoiceResult::kNone);
    std::size_t split = columns_.size();
    double most = 0;
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      const double share = program_.value(static_cast<int>(i));
      if (share >= 1 - kWhole) {
        chosen[columns_[i].row] = columns_[i].option;
        room_[resource_of(columns_[i])] -= option_of(columns_[i]).units;
      } else if (share > std::max(kWhole, most)) {
        most = share;
        split = i;
      }
    }
    if (split != columns_.size()) fill(chosen);
    remember(std::move(chosen));
    return split;
  }

  [[nodiscard]] std::size_t resource_of(const Column& column) const {
    return static_cast<std::size_t>(option_of(column).resource);
  }

  // Gives what is left to the rows that gain most by it, each once.
  void fill(std::vector<int>& chosen) {
    struct Gain {
      double worth = 0;
      std::size_t column = 0;
    };
    std::vector<Gain> gains;
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      const int now = chosen[columns_[i].row];
      const auto& options = problem_.rows[columns_[i].row];
      const double has =
          now == ChoiceResult::kNone ? 0 : options[static_cast<std::size_t>(now)].worth;
      const double gain = option_of(columns_[i]).worth - has;
      if (gain > 0) gains.push_back({gain, i});
    }
    std::stable_sort(gains.begin(), gains.end(),
                     [](const Gain& a, const Gain& b) { return a.worth > b.worth; });
    std::vector<bool> raised(problem_.rows.size(), false);
    for (const Gain& gain : gains) {
      const Column& column = columns_[gain.column];
      int& now = chosen[column.row];
      const ChoiceOption* had = now == ChoiceResult::kNone
                                    ? nullptr
                                    : &problem_.rows[column.row][static_cast<std::size_t>(now)];
      const ChoiceOption& next = option_of(column);
      const int back = had != nullptr && had->resource == next.resource ? had->units : 0;
      int& room = room_[static_cast<std::size_t>(next.resource)];
      if (raised[column.row] || next.units > room + back) continue;
      if (had != nullptr) room_[static_cast<std::size_t>(had->resource)] += had->units;
      room -= next.units;
      now = column.option;
      raised[column.row] = true;
    }
  }

  void remember(std::vector<int> chosen) {
    double worth = 0;
    for (std::size_t row = 0; row < chosen.size(); ++row) {
      if (chosen[row] != ChoiceResult::kNone)
        worth += problem_.rows[row][static_cast<std::size_t>(chosen[row])].worth;
    }
    if (worth <= best_.worth) return;
    best_.worth = worth;
    best_.chosen = std::move(chosen);
  }

  // The branch in which this option is chosen.
  void take(std::size_t column, double worth) {
    const std::size_t row = columns_[column].row;
    std::vector<std::size_t> others;
    for (std::size_t i = first_column_[row]; i < first_column_[row + 1]; ++i) {
      if (i != column && columns_[i].allowed) others.push_back(i);
    }
    for (const std::size_t i : others) allow(i, false);
    program_.set_row_lower(static_cast<int>(row), 1);
    explore(worth);
    program_.set_row_lower(static_cast<int>(row), 0);
    for (const std::size_t i : others) allow(i, true);
  }

  // The branch in which it is not.
  void exclude(std::size_t column, double worth) {
    allow(column, false);
    explore(worth);
    allow(column, true);
  }

  void allow(std::size_t column, bool allowed) {
    columns_[column].allowed = allowed;
    program_.set_column_upper(static_cast<int>(column), allowed ? 1 : 0);
  }

  const ChoiceProblem& problem_;
  const ChoiceLimits& limits_;
  std::vector<Column> columns_;
  std::vector<std::size_t> first_column_;  // by row, and the end
  LinearProgram program_;
  std::vector<int> room_;
  ChoiceResult best_;
  double open_ = 0;  // the most that an unexplored branch can be worth
};

}  // namespace

ChoiceResult choose(const ChoiceProblem& problem, const ChoiceLimits& limits) {
  return Choice(problem, limits).run();
}

}  // namespace rubato::math
