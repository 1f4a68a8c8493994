#include "rubato/policy/share_program.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "rubato/base/check.h"

namespace rubato::policy {
namespace {

constexpr double kNone = LinearProgram::kUnbounded;
constexpr char kColumnAtZero = LinearProgram::kColumnAtZero;

// Prices below this are rounding errors.
constexpr double kNoPrice = 1e-9;

// A held value may fall by this much, so that rounding does not make a program infeasible.
constexpr double kHeld = 1 - 1e-9;

// As a fraction of its ceiling: a group that needs less than this to reach the level is there.
constexpr double kNoPart = 1e-13;

constexpr double kJustHeld = 1 - 1e-12;
constexpr double kLoosely = 1 - 1e-7;

// A level counts as reached if only rounding errors are missing.
constexpr double kReached = 1 - 1e-11;

// A limit, in case rounding prevents convergence. A few steps are usual.
constexpr int kMostPrograms = 100;

// The rest is smaller than rounding errors, so further levels mean nothing.
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

template <class BasisType, class Visit>
void ShareProgram::for_letters(BasisType& basis, const Visit& visit) const {
  const std::size_t types = problem_.capacity.size();
  const auto columns = static_cast<std::size_t>(program_.columns());
  const auto row = [&](int r) { return columns + static_cast<std::size_t>(r); };
  for (const auto& column : columns_) {
    visit((column.pair ? basis.pairs : basis.groups)[column.of], column.type,
          static_cast<std::size_t>(column.column));
  }
  for (std::size_t g = 0; g < problem_.groups.size(); ++g) {
    visit(basis.groups[g], types, static_cast<std::size_t>(shortfall_[g]));
    visit(basis.groups[g], types + 1, row(time_row_[g]));
    visit(basis.groups[g], types + 2, row(value_row_[g]));
  }
  for (std::size_t t = 0; t < types; ++t) visit(basis.types, t, row(capacity_row_[t]));
  visit(basis.types, types, static_cast<std::size_t>(level_column_));
}

ShareProgram::Basis ShareProgram::basis() const {
  const std::size_t types = problem_.capacity.size();
  // If there is no column, the letter is never read.
  Basis basis{std::vector(problem_.groups.size(), std::string(types + 3, kColumnAtZero)),
              std::vector(problem_.pairs.size(), std::string(types, kColumnAtZero)),
              std::string(types + 1, kColumnAtZero)};
  const std::string letters = program_.basis();
  for_letters(basis, [&](std::string& piece, std::size_t at, std::size_t place) {
    piece[at] = letters[place];
  });
  return basis;
}

void ShareProgram::set_basis(const Basis& basis) {
  if (basis.groups.size() != problem_.groups.size() || basis.pairs.size() != problem_.pairs.size())
    return;
  std::string letters(static_cast<std::size_t>(program_.columns()), kColumnAtZero);
  letters.append(static_cast<std::size_t>(program_.rows()), LinearProgram::kRowWithSlack);
  for_letters(basis, [&](const std::string& piece, std::size_t at, std::size_t place) {
    if (at < piece.size()) letters[place] = piece[at];
  });
  program_.set_basis(letters);
}

bool ShareProgram::solve() {
  ++solves_;
  return program_.maximise();
}

void ShareProgram::prepare_levels(const std::vector<double>& scale) {
  set_scale(scale);
  for (const auto& column : columns_) program_.set_objective(column.column, 0);
  for (const int column : shortfall_) {
    program_.set_column_upper(column, 0);
    program_.set_objective(column, 0);
  }
  program_.set_column_upper(level_column_, kNone);
  program_.set_objective(level_column_, 1);
}

std::vector<double> ShareProgram::ceilings(const std::vector<double>& scale) const {
  std::vector<double> ceiling(problem_.groups.size(), 0);
  for (const auto& column : columns_) {
    if (problem_.capacity[column.type] <= 0) continue;
    // Two jobs of one group use twice the group's time.
    const double time = column.pair && column.parts.size() == 1 ? 2 : 1;
    for (const auto& part : column.parts) {
      const double value = scale[part.group] * part.rate * problem_.groups[part.group].jobs / time;
      ceiling[part.group] = std::max(ceiling[part.group], value);
    }
  }
  return ceiling;
}

void ShareProgram::hold(std::size_t group, double part_of_ceiling) {
  program_.set_coefficient(value_row_[group], level_column_, 0);
  program_.set_row_lower(value_row_[group], part_of_ceiling * kJustHeld);
}

void ShareProgram::lower(Level& found, const Filling& filling, const std::vector<double>& price,
                         double bound) {
  double below = 0, rest = 0, all = 0;
  for (std::size_t i = 0; i < filling.rising.size(); ++i) {
    rest += price[i];
    all += price[i] * std::min(found.level, filling.ceiling_of(i));
  }
  double level = 0;
  std::size_t at = 0;
  for (; at < filling.rising.size() && rest > 0; ++at) {
    level = std::max(0.0, bound - below) / rest;
    if (level <= filling.ceiling_of(at)) break;
    below += price[at] * filling.ceiling_of(at);
    rest -= price[at];
  }
  if (at == filling.rising.size() || !(rest > 0) || !(level < found.level)) return;
  for (std::size_t i = 0; i < filling.rising.size(); ++i) {
    const double part = price[i] * std::min(found.level, filling.ceiling_of(i));
    found.stuck[i] = i >= at && (!std::isfinite(all) || part > kNoPrice * all);
  }
  found.level = level;
}

// An upper bound: all GPUs, each used at its best. Two jobs that share a GPU each count half of it.
ShareProgram::Level ShareProgram::most_that_gpus_give(const Filling& filling) const {
  const auto price = [&](std::size_t g) {
    const double time = problem_.groups[g].gpus * (problem_.pairs.empty() ? 1.0 : 0.5);
    return time * problem_.groups[g].jobs / filling.ceiling[g];
  };
  double bound = 0;
  for (const double gpus : problem_.capacity) bound += gpus;
  for (std::size_t g = 0; g < filling.ceiling.size(); ++g) {
    if (filling.ceiling[g] > 0) bound -= price(g) * filling.held[g];
  }
  std::vector<double> prices;
  prices.reserve(filling.rising.size());
  for (const std::size_t g : filling.rising) prices.push_back(price(g));
  Level most;
  most.stuck.assign(filling.rising.size(), false);
  lower(most, filling, prices, bound);
  return most;
}

std::optional<ShareProgram::Level> ShareProgram::highest_level(const Filling& filling,
                                                               std::optional<double> guess) {
  Level found = most_that_gpus_give(filling);
  // Raises the guess until it is not reachable.
  const Level most = found;
  const double little = kNoPrice * filling.ceiling_of(0);  // for all of them
  bool guessed = guess && *guess > little && *guess < most.level;
  if (guessed) found.level = *guess;
  double step = 1 + 1e-3;
  for (int programs = 0; programs < kMostPrograms; ++programs) {
    if (solves_ == 0) found.level = std::max(found.level, little);  // there must be some solution
    if (found.level <= little && solves_ > 0) {  // there is nothing for the stuck groups
      found.level = 0;
      found.reached = 1;
      return found;
    }
    for (const std::size_t g : filling.rising) {
      const double part = std::min(1.0, found.level / filling.ceiling[g]);
      program_.set_coefficient(value_row_[g], level_column_, part > kNoPart ? -part : 0);
      program_.set_row_lower(value_row_[g], 0);
    }
    if (!solve()) return std::nullopt;
    found.reached = std::min(1.0, program_.value(level_column_));
    if (found.reached >= kReached) {
      if (!guessed) return found;
      found.level *= step;
      step *= step;
      if (found.level < most.level) continue;
      found = most;
      guessed = false;
      continue;
    }
    guessed = false;
    // For every feasible solution: sum of price x value <= sum of price x value reached. This holds
    // for the highest level, too, where each value is min(level, ceiling).
    std::vector<double> price;
    price.reserve(filling.rising.size());
    double bound = 0;
    for (const std::size_t g : filling.rising) {
      price.push_back(std::abs(program_.dual(value_row_[g])) / filling.ceiling[g]);
      bound += price.back() * std::min(found.level, filling.ceiling[g]) * found.reached;
    }
    const double before = found.level;
    lower(found, filling, price, bound);
    if (!(found.level < before)) return found;  // only rounding errors are left
  }
  return found;
}

bool ShareProgram::water_fill(const std::vector<double>& scale, bool fill) {
  if (!fill) {
    const auto all_alike = [](const std::vector<bool>& held) {
      std::vector<double> rise;
      rise.reserve(held.size());
      for (const bool h : held) rise.push_back(h ? 0 : 1);
      return rise;
    };
    return water_fill(scale, all_alike, false);
  }
  // Rows are scaled by the ceiling, so that their numbers are between 0 and 1.
  Filling filling{ceilings(scale), std::vector<double>(scale.size(), 0), {}};
  std::vector<double> part_of_ceiling;
  part_of_ceiling.reserve(scale.size());
  for (std::size_t g = 0; g < scale.size(); ++g) {
    const double ceiling = filling.ceiling[g];
    part_of_ceiling.push_back(ceiling > 0 ? scale[g] / ceiling : 0);
    if (ceiling > 0) filling.rising.push_back(g);
  }
  prepare_levels(part_of_ceiling);
  for (std::size_t g = 0; g < scale.size(); ++g) hold(g, 0);
  std::stable_sort(filling.rising.begin(), filling.rising.end(), [&](std::size_t a, std::size_t b) {
    return filling.ceiling[a] < filling.ceiling[b];
  });
  if (filling.rising.empty()) {  // no group can run on any GPU
    program_.set_column_upper(level_column_, 0);
    level_ = first_level_ = 0;
    return solve();
  }
  bool nothing_for_some = false;  // groups that run only on types without GPUs
  for (const auto& column : columns_) {
    for (const auto& part : column.parts)
      nothing_for_some = nothing_for_some || filling.ceiling[part.group] <= 0;
  }
  for (bool first = true; !filling.rising.empty(); first = false) {
    auto found = highest_level(filling, first ? guess_ : std::nullopt);
    if (!found && !first) {  // rounding makes the earlier level infeasible
      for (std::size_t g = 0; g < scale.size(); ++g) {
        if (filling.held[g] > 0) hold(g, filling.held[g] / filling.ceiling[g] * kLoosely);
      }
      found = highest_level(filling, std::nullopt);
    }
    if (!found) return false;
    if (first) {
      first_level_ = found->level;
      level_ = nothing_for_some ? 0 : std::min(found->level, filling.ceiling_of(0));
    }
    // No group is held above its value in the present solution, so this solution is feasible for
    // the next program.
    const std::vector<double> reached = throughputs();
    std::vector<std::size_t> rest;
    for (std::size_t i = 0; i < filling.rising.size(); ++i) {
      const std::size_t g = filling.rising[i];
      if (filling.ceiling[g] <= found->level || found->stuck[i]) {
        filling.held[g] = std::min({filling.ceiling[g], found->level, scale[g] * reached[g]});
        hold(g, filling.held[g] / filling.ceiling[g]);
      } else {
        rest.push_back(g);
      }
    }
    if (rest.size() == filling.rising.size()) return true;
    filling.rising = std::move(rest);
  }
  return true;
}

bool ShareProgram::water_fill(const std::vector<double>& scale, const Rise& rise, bool fill) {
  prepare_levels(scale);
  std::vector<bool> held(problem_.groups.size(), true);  // a group that runs on no type cannot rise
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
  double best = 0;  // the most that one job can gain
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

}  // namespace rubato::policy
