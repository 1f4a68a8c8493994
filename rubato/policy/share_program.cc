#include "rubato/policy/share_program.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "rubato/base/check.h"

namespace rubato {
namespace {

constexpr double kNone = LinearProgram::kUnbounded;

// Prices below this are rounding.
constexpr double kNoPrice = 1e-9;

// A held value may give way by so little that rounding makes no program infeasible.
constexpr double kHeld = 1 - 1e-9;

// Further levels say nothing any more: the rest is worth less than rounding.
constexpr int kMostLevels = 200;

}  // namespace

ShareProgram::ShareProgram(ShareProblem problem) : problem_(std::move(problem)) {
  const std::size_t types = problem_.capacity.size();
  for (const auto& group : problem_.groups)
    time_row_.push_back(program_.add_row(-kNone, group.jobs));
  for (std::size_t g = 0; g < problem_.groups.size(); ++g)
    value_row_.push_back(program_.add_row(-kNone, kNone));
  for (const double gpus : problem_.capacity)
    capacity_row_.push_back(program_.add_row(-kNone, gpus));

  for (std::size_t g = 0; g < problem_.groups.size(); ++g) {
    const auto& group = problem_.groups[g];
    for (std::size_t t = 0; t < types; ++t) {
      if (group.rate[t] > 0) add(g, false, t, group.gpus, {{g, group.rate[t] / group.jobs}}, {1});
    }
  }
  for (std::size_t p = 0; p < problem_.pairs.size(); ++p) {
    const auto& pair = problem_.pairs[p];
    const auto& first = problem_.groups[pair.first];
    const auto& second = problem_.groups[pair.second];
    for (std::size_t t = 0; t < types; ++t) {
      if (!(pair.first_rate[t] > 0) || !(pair.second_rate[t] > 0)) continue;
      if (pair.first == pair.second) {
        add(p, true, t, first.gpus,
            {{pair.first, (pair.first_rate[t] + pair.second_rate[t]) / first.jobs}}, {2});
      } else {
        add(p, true, t, first.gpus,
            {{pair.first, pair.first_rate[t] / first.jobs},
             {pair.second, pair.second_rate[t] / second.jobs}},
            {1, 1});
      }
    }
  }
  std::vector<LinearProgram::Term> rising;
  for (const int row : value_row_) {
    rising.emplace_back(row, 0);
    shortfall_.push_back(program_.add_column(0, 0, std::vector<LinearProgram::Term>{{row, 1}}));
  }
  level_column_ = program_.add_column(0, 0, rising);
}

void ShareProgram::add(std::size_t of, bool pair, std::size_t type, int gpus,
                       const std::vector<Part>& parts, const std::vector<double>& time) {
  std::vector<LinearProgram::Term> terms;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    terms.emplace_back(time_row_[parts[i].group], time[i]);
    terms.emplace_back(value_row_[parts[i].group], parts[i].rate);
  }
  terms.emplace_back(capacity_row_[type], gpus);
  columns_.push_back({program_.add_column(kNone, 0, terms), of, type, pair, gpus, parts});
}

void ShareProgram::set_scale(const std::vector<double>& scale) {
  for (const auto& column : columns_) {
    for (const auto& part : column.parts)
      program_.set_coefficient(value_row_[part.group], column.column,
                               part.rate * scale[part.group]);
  }
}

bool ShareProgram::solve() {
  ++solves_;
  return program_.maximise();
}

bool ShareProgram::water_fill(const std::vector<double>& scale, bool fill) {
  return water_fill(
      scale,
      [](const std::vector<bool>& held) {
        std::vector<double> rise;
        rise.reserve(held.size());
        for (const bool h : held) rise.push_back(h ? 0 : 1);
        return rise;
      },
      fill);
}

bool ShareProgram::water_fill(const std::vector<double>& scale, const Rise& rise, bool fill) {
  set_scale(scale);
  for (const auto& column : columns_) program_.set_objective(column.column, 0);
  for (const int column : shortfall_) {
    program_.set_column_upper(column, 0);
    program_.set_objective(column, 0);
  }
  program_.set_column_upper(level_column_, kNone);
  program_.set_objective(level_column_, 1);
  std::vector<bool> held(problem_.groups.size(), true);  // who runs on no type cannot rise
  for (const auto& column : columns_) {
    for (const auto& part : column.parts) held[part.group] = false;
  }
  std::vector<double> value(problem_.groups.size(), 0);
  for (int levels = 0; levels < kMostLevels; ++levels) {
    const std::vector<double> speed = rise(held);
    bool rising = false;
    for (std::size_t g = 0; g < value.size(); ++g) {
      program_.set_coefficient(value_row_[g], level_column_, -speed[g]);
      program_.set_row_lower(value_row_[g], value[g] * kHeld);
      rising = rising || speed[g] > 0;
    }
    if (!rising) return true;
    if (!solve()) return levels > 0;
    const double level = program_.value(level_column_);
    if (levels == 0) level_ = level;
    bool any = false;
    for (std::size_t g = 0; g < value.size(); ++g) {
      if (speed[g] <= 0) continue;
      value[g] += speed[g] * level;
      const bool stuck = std::abs(program_.dual(value_row_[g])) * speed[g] > kNoPrice;
      held[g] = stuck;
      any = any || stuck;
    }
    if (!fill || !any) return true;
  }
  return true;
}

bool ShareProgram::maximise_sum(const std::vector<double>& scale,
                                const std::vector<double>& price_of_type,
                                const std::vector<double>& needed) {
  set_scale(std::vector<double>(scale.size(), 1));
  program_.set_column_upper(level_column_, 0);
  program_.set_objective(level_column_, 0);
  double best = 0;  // what one job can gain at most
  for (std::size_t g = 0; g < scale.size(); ++g) {
    for (const double rate : problem_.groups[g].rate) best = std::max(best, scale[g] * rate);
  }
  for (const auto& column : columns_) {
    double gain = -price_of_type[column.type] * column.gpus;
    for (const auto& part : column.parts)
      gain += scale[part.group] * part.rate * problem_.groups[part.group].jobs;
    program_.set_objective(column.column, gain);
  }
  for (std::size_t g = 0; g < scale.size(); ++g) {
    program_.set_row_lower(value_row_[g], needed[g]);
    program_.set_column_upper(shortfall_[g], needed[g]);
    program_.set_objective(shortfall_[g],
                           needed[g] > 0 ? -1e3 * best * problem_.groups[g].jobs / needed[g] : 0);
  }
  return solve();
}

Times ShareProgram::times() const {
  const std::vector<double> none(problem_.capacity.size(), 0);
  Times times{std::vector(problem_.groups.size(), none), std::vector(problem_.pairs.size(), none)};
  for (const auto& column : columns_) {
    const double time = std::max(0.0, program_.value(column.column));
    (column.pair ? times.paired : times.alone)[column.of][column.type] = time;
  }
  return times;
}

std::vector<double> ShareProgram::throughputs() const {
  std::vector<double> sum(problem_.groups.size(), 0);
  for (const auto& column : columns_) {
    for (const auto& part : column.parts)
      sum[part.group] += part.rate * std::max(0.0, program_.value(column.column));
  }
  return sum;
}

std::vector<double> ShareProgram::used() const {
  std::vector<double> used(problem_.capacity.size(), 0);
  for (const auto& column : columns_)
    used[column.type] += column.gpus * std::max(0.0, program_.value(column.column));
  return used;
}

}  // namespace rubato
