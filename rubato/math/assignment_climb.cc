#include "rubato/math/assignment_climb.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

namespace rubato::math {
namespace {

// The minimum gain of a change, relative to the worth of the rows involved. Rounding must not look
// like a gain, or climbing would never end.
constexpr double kLeastGain = 1e-9;

// Up to this many rows, all rows are compared with each other. More rows are tried one by one.
constexpr std::size_t kFewRows = 64;
constexpr std::size_t kNoRow = static_cast<std::size_t>(-1);

int units_of(const Shares& shares) {
  int units = 0;
  for (const auto& share : shares) units += share.units;
  return units;
}

bool is_gain(double before, double after) {
  return after - before > kLeastGain * (std::abs(before) + std::abs(after));
}

class Climber {
 public:
  Climber(const AssignmentProblem& problem, std::vector<Shares>& rows)
      : problem_(problem),
        rows_(rows),
        free_(problem.capacity),
        spanning_(problem.capacity.size(), 0),
        there_(problem.capacity.size()) {
    for (std::size_t bin = 0; bin < problem.spanned.size(); ++bin)
      spanning_[bin] = problem.spanned[bin] ? 1 : 0;
    worth_.reserve(rows.size());
    for (std::size_t row = 0; row < rows.size(); ++row) {
      worth_.push_back(worth(row, rows[row]));
      enter(row);
    }
  }

  void climb(Climb how) {
    if (how == Climb::pairs_first) move_rows_that_meet();
    climb();
    while (how == Climb::thoroughly && few_rows() && reconsider()) climb();
  }
  [[nodiscard]] double worth() const {
    double sum = 0;
    for (const double worth : worth_) sum += worth;
    return sum;
  }
  [[nodiscard]] std::size_t evaluated() const { return evaluated_; }

 private:
  struct Place {
    Shares shares;
    double worth = 0;
  };

  void climb() {
    while (move_single_rows() || move_rows_that_meet() || serve_rows_without_units()) {
    }
  }

  double worth(std::size_t row, const Shares& shares) {
    ++evaluated_;
    return problem_.worth(
        {row, static_cast<int>(shares.size()), units_of(shares), shares == problem_.present[row]});
  }

  // ---- removing and placing rows ----

  void enter(std::size_t row) { count(row, 1); }
  void leave(std::size_t row) { count(row, -1); }
  void count(std::size_t row, int sign) {
    const Shares& shares = rows_[row];
    for (const auto& share : shares) {
      const auto bin = static_cast<std::size_t>(share.bin);
      free_[bin] -= sign * share.units;
      if (shares.size() > 1) spanning_[bin] += sign;
      if (sign > 0) {
        there_[bin].push_back(row);
      } else {
        std::erase(there_[bin], row);
      }
    }
  }
  void put_down(std::size_t row, Place place) {
    rows_[row] = std::move(place.shares);
    worth_[row] = place.worth;
    enter(row);
  }
  Place take_up(std::size_t row) {
    leave(row);
    return {std::exchange(rows_[row], {}), worth_[row]};
  }

  [[nodiscard]] bool may_span(std::size_t bin) const {
    return !problem_.one_spanning_row || spanning_[bin] == 0;
  }
  // For a row that was removed.
  [[nodiscard]] bool fits(const Shares& shares) const {
    return std::all_of(shares.begin(), shares.end(), [&](const Share& share) {
      const auto bin = static_cast<std::size_t>(share.bin);
      return share.units <= free_[bin] && (shares.size() == 1 || may_span(bin));
    });
  }
  [[nodiscard]] bool usable(std::size_t row, int units) const {
    return problem_.usable(row, units) == units;
  }

  // ---- where a removed row is worth most ----

  Place best_place(std::size_t row, int limit = std::numeric_limits<int>::max()) {
    Place best{{}, worth(row, {})};
    const auto consider = [&](Shares shares) {
      const double is = worth(row, shares);
      if (is > best.worth) best = {std::move(shares), is};
    };
    const Shares& present = problem_.present[row];
    const int had = units_of(present);
    if (had > 0 && had <= limit && usable(row, had) && fits(present)) consider(present);

    sort_room();
    const int most = problem_.usable(row, std::min(room_, limit));
    for (int units = 1; units <= most; ++units) {
      if (!usable(row, units)) continue;
      if (units < static_cast<int>(tightest_.size())) {
        consider({{tightest_[static_cast<std::size_t>(units)], units}});
      } else if (auto wide = on_emptiest(units); !wide.empty()) {
        consider(std::move(wide));
      }
    }
    return best;
  }

  // Computes room_, tightest_ (by units: the first bin with the least room that is enough) and
  // emptiest_ (bins that a row may span, most room first).
  void sort_room() {
    constexpr int kNone = -1;
    room_ = 0;
    int most = 0;
    emptiest_.clear();
    for (std::size_t bin = 0; bin < free_.size(); ++bin) {
      if (free_[bin] <= 0) continue;
      room_ += free_[bin];
      most = std::max(most, free_[bin]);
      if (may_span(bin)) emptiest_.push_back(static_cast<int>(bin));
    }
    tightest_.assign(static_cast<std::size_t>(most) + 1, kNone);
    for (std::size_t bin = free_.size(); bin-- > 0;) {
      if (free_[bin] > 0) tightest_[static_cast<std::size_t>(free_[bin])] = static_cast<int>(bin);
    }
    for (int units = most; units-- > 0;) {
      int& here = tightest_[static_cast<std::size_t>(units)];
      if (here == kNone) here = tightest_[static_cast<std::size_t>(units) + 1];
    }
    std::stable_sort(emptiest_.begin(), emptiest_.end(), [&](int a, int b) {
      return free_[static_cast<std::size_t>(a)] > free_[static_cast<std::size_t>(b)];
    });
  }

  // Placed on the emptiest bins; empty if they do not have enough units.
  [[nodiscard]] Shares on_emptiest(int units) const {
    Shares shares;
    for (const int bin : emptiest_) {
      const int taken = std::min(units, free_[static_cast<std::size_t>(bin)]);
      shares.push_back({bin, taken});
      units -= taken;
      if (units == 0) break;
    }
    if (units > 0) return {};
    std::sort(shares.begin(), shares.end(),
              [](const Share& a, const Share& b) { return a.bin < b.bin; });
    return shares;
  }

  // ---- changes ----

  [[nodiscard]] bool few_rows() const { return rows_.size() <= kFewRows; }

  // Improves single rows, all but `except`. If there are few rows, the one that gains most comes
  // first.
  bool move_single_rows(std::size_t except = kNoRow) {
    if (!few_rows()) return move_single_rows_in_order();
    bool moved = false;
    for (;;) {
      std::size_t best_row = kNoRow;
      Place best;
      double most = 0;
      for (std::size_t row = 0; row < rows_.size(); ++row) {
        if (row == except) continue;
        Place before = take_up(row);
        Place after = best_place(row);
        const double gain = after.worth - before.worth;
        if (gain > most && is_gain(before.worth, after.worth)) {
          most = gain;
          best_row = row;
          best = std::move(after);
        }
        put_down(row, std::move(before));
      }
      if (best_row == kNoRow) return moved;
      moved = true;
      undo_.emplace_back(best_row, take_up(best_row));
      put_down(best_row, std::move(best));
    }
  }

  bool move_single_rows_in_order() {
    bool moved = false;
    for (std::size_t row = 0; row < rows_.size(); ++row) {
      Place before = take_up(row);
      Place after = best_place(row);
      const bool gain = is_gain(before.worth, after.worth);
      put_down(row, std::move(gain ? after : before));
      moved |= gain;
    }
    return moved;
  }

  // A row loses what it has gained, or some of its bins, and the others are improved from there.
  bool reconsider() {
    bool moved = false;
    for (std::size_t row = 0; row < rows_.size(); ++row) {
      const Shares now = rows_[row];
      const auto half = static_cast<std::ptrdiff_t>((now.size() + 1) / 2);
      moved |= go_on_from(row, problem_.present[row]);
      if (now.size() < 2 || rows_[row] != now) continue;
      moved |= go_on_from(row, Shares(now.begin(), now.end() - 1));
      if (now.size() > 2 && rows_[row] == now)
        moved |= go_on_from(row, Shares(now.begin(), now.begin() + half));
    }
    return moved;
  }

  bool go_on_from(std::size_t row, const Shares& shares) {
    if (shares.empty() || shares == rows_[row] || !usable(row, units_of(shares))) return false;
    const double before = worth();
    undo_.clear();
    undo_.emplace_back(row, take_up(row));
    if (fits(shares)) {
      put_down(row, {shares, worth(row, shares)});
      move_single_rows(row);
      move_single_rows();
      if (is_gain(before, worth())) return true;
    }
    for (; !undo_.empty(); undo_.pop_back()) {
      take_up(undo_.back().first);
      put_down(undo_.back().first, std::move(undo_.back().second));
    }
    return false;
  }

  bool move_rows_that_meet() {
    bool moved = false;
    for (std::size_t bin = 0; bin < there_.size(); ++bin) {
      const std::vector<std::size_t> here = there_[bin];
      for (const std::size_t first : here) {
        for (const std::size_t second : here) {
          if (first == second) continue;
          moved |= transfer(first, second, static_cast<int>(bin));
          moved |= move_both(first, second);
        }
      }
    }
    return moved;
  }

  // Places the first row where it is worth most, or with slightly fewer units, to leave more to the
  // second.
  bool move_both(std::size_t first, std::size_t second) {
    constexpr int kSizes = 3;
    Place first_before = take_up(first);
    Place second_before = take_up(second);
    const double before = first_before.worth + second_before.worth;
    Place first_best, second_best;
    double best = before;
    int limit = std::numeric_limits<int>::max();
    for (int i = 0; i < kSizes && limit > 0; ++i) {
      Place first_after = best_place(first, limit);
      limit = units_of(first_after.shares) - 1;
      put_down(first, first_after);
      Place second_after = best_place(second);
      take_up(first);
      if (!(first_after.worth + second_after.worth > best)) continue;
      best = first_after.worth + second_after.worth;
      first_best = std::move(first_after);
      second_best = std::move(second_after);
    }
    const bool gain = is_gain(before, best);
    put_down(first, std::move(gain ? first_best : first_before));
    put_down(second, std::move(gain ? second_best : second_before));
    return gain;
  }

  bool serve_rows_without_units() {
    bool moved = false;
    for (std::size_t row = 0; row < rows_.size(); ++row) {
      for (std::size_t bin = 0; bin < there_.size() && rows_[row].empty(); ++bin) {
        const std::vector<std::size_t> here = there_[bin];
        for (const std::size_t giver : here) {
          if (rows_[row].empty()) moved |= transfer(giver, row, static_cast<int>(bin));
        }
      }
    }
    return moved;
  }

  // Moves the number of units that gains most. Both rows keep their units on other bins.
  bool transfer(std::size_t giver, std::size_t taker, int bin) {
    const int has = units_on(rows_[giver], bin);
    const double before = worth_[giver] + worth_[taker];
    double best = before;
    Place given, taken;
    for (int units = 1; units <= has; ++units) {
      Place less{rows_[giver], 0};
      Place more{rows_[taker], 0};
      add(less.shares, bin, -units);
      add(more.shares, bin, units);
      if (!usable(giver, units_of(less.shares)) || !usable(taker, units_of(more.shares))) continue;
      less.worth = worth(giver, less.shares);
      more.worth = worth(taker, more.shares);
      const double after = less.worth + more.worth;
      if (!(after > best) || !fits_beside(taker, more, giver, less)) continue;
      best = after;
      given = std::move(less);
      taken = std::move(more);
    }
    if (!is_gain(before, best)) return false;
    take_up(giver);
    take_up(taker);
    put_down(giver, std::move(given));
    put_down(taker, std::move(taken));
    return true;
  }

  // Whether the spanning rule allows the transfer. If a giver that spans several bins gives up all
  // its units on a bin, the taker may span there; if it gives up only some, it may not.
  bool fits_beside(std::size_t taker, const Place& more, std::size_t giver, const Place& less) {
    Place taker_before = take_up(taker);
    Place giver_before = take_up(giver);
    put_down(giver, less);
    const bool fitting = fits(more.shares);
    take_up(giver);
    put_down(giver, std::move(giver_before));
    put_down(taker, std::move(taker_before));
    return fitting;
  }

  [[nodiscard]] static int units_on(const Shares& shares, int bin) {
    for (const auto& share : shares) {
      if (share.bin == bin) return share.units;
    }
    return 0;
  }
  static void add(Shares& shares, int bin, int units) {
    auto at = std::lower_bound(shares.begin(), shares.end(), bin,
                               [](const Share& share, int b) { return share.bin < b; });
    if (at == shares.end() || at->bin != bin) at = shares.insert(at, {bin, 0});
    at->units += units;
    if (at->units == 0) shares.erase(at);
  }

  const AssignmentProblem& problem_;
  std::vector<Shares>& rows_;
  std::vector<double> worth_;                        // by row
  std::vector<int> free_;                            // by bin
  std::vector<int> spanning_;                        // by bin: rows there that span several
  std::vector<std::vector<std::size_t>> there_;      // by bin: rows there
  std::vector<std::pair<std::size_t, Place>> undo_;  // rows that were moved, with their old places
  int room_ = 0;
  std::vector<int> tightest_, emptiest_;
  std::size_t evaluated_ = 0;
};

}  // namespace

std::size_t climb(const AssignmentProblem& problem, Assignment& assignment, Climb how) {
  Climber climber(problem, assignment.rows);
  climber.climb(how);
  assignment.worth = climber.worth();
  return climber.evaluated();
}

}  // namespace rubato::math
