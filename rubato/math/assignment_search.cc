#include "rubato/math/assignment_search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "rubato/base/check.h"
#include "rubato/base/random.h"
#include "rubato/math/assignment_climb.h"

namespace rubato::math {
namespace {

using RowId = std::uint32_t;

// As published, a tenth of the rows go back to their present state, and in another tenth each share
// is dropped with this probability. But at most this many rows are touched: if a child changed a
// tenth of a thousand rows, it would rarely be better than its parents. The other moves, and the
// probability of one more move, are our own.
constexpr double kTouched = 0.1;
constexpr double kMostTouched = 4;
constexpr double kDropShare = 0.1;
constexpr double kAnotherMove = 0.5;

// Random distances between rare events, from 4,096 quantiles of their distribution.
class JumpTable {
 public:
  explicit JumpTable(double chance) : lengths_(kQuantiles) {
    for (std::size_t i = 0; i < kQuantiles; ++i) {
      const double share = (static_cast<double>(i) + 0.5) / kQuantiles;
      lengths_[i] = static_cast<std::uint32_t>(std::log1p(-share) / std::log1p(-chance));
    }
  }
  [[nodiscard]] std::size_t draw(Random& random) const { return lengths_[random.next() >> 52U]; }

 private:
  static constexpr std::size_t kQuantiles = 4096;
  std::vector<std::uint32_t> lengths_;
};

// The rows of all solutions. Each is stored once and never changed.
class RowStore {
 public:
  struct Value {
    double worth = 0;
    std::uint64_t hash = 0;
  };

  [[nodiscard]] const Value& value(RowId id) const { return values_[id]; }
  [[nodiscard]] std::span<const Share> shares(RowId id) const {
    return {shares_.data() + extents_[id].first, extents_[id].count};
  }
  RowId add(std::span<const Share> shares, const Value& value) {
    const auto id = static_cast<RowId>(values_.size());
    extents_.push_back(
        {static_cast<std::uint32_t>(shares_.size()), static_cast<std::uint32_t>(shares.size())});
    values_.push_back(value);
    shares_.insert(shares_.end(), shares.begin(), shares.end());
    return id;
  }
  [[nodiscard]] std::size_t size() const { return values_.size(); }

 private:
  struct Extent {
    std::uint32_t first = 0;
    std::uint32_t count = 0;
  };
  std::vector<Extent> extents_;
  std::vector<Value> values_;
  std::vector<Share> shares_;
};

struct Solution {
  std::vector<RowId> rows;
  double worth = 0;
  std::uint64_t hash = 0;
};

bool worthier(const Solution& a, const Solution& b) {
  return a.worth != b.worth ? a.worth > b.worth : a.hash < b.hash;
}

std::uint64_t mixed(std::uint64_t x) { return Random(x).next(); }

class Search {
 public:
  Search(const AssignmentProblem& problem, const AssignmentSearchOptions& options)
      : problem_(problem),
        options_(options),
        random_(options.seed),
        jumps_(std::min(kTouched, kMostTouched / static_cast<double>(rows() + 1))),
        free_(problem.capacity.size()),
        spanning_(problem.capacity.size()),
        edit_of_(problem.present.size(), kNone),
        there_(problem.capacity.size()) {
    CHECK(options.population >= 1 && options.generations >= 0);
    for (std::size_t row = 0; row < rows(); ++row) {
      present_.push_back(store(row, problem.present[row]));
      none_.push_back(store(row, {}));
      const int units = units_of(problem.present[row]);
      // A row that has nothing at present does not go back to nothing, because it would lose too
      // much.
      put_back_.push_back(units > 0 && problem.usable(row, units) == units);
    }
  }

  AssignmentSearchResult run(std::span<const Assignment> start) {
    begin(start);
    for (int generation = 0; generation < options_.generations && rows() > 0; ++generation) {
      breed();
      survive();
      compact_if_large();
    }
    climb_from(population_.front(), Climb::thoroughly);
    keep_best(population_);
    AssignmentSearchResult result;
    result.rows_evaluated = evaluated_;
    for (const auto& solution : population_) result.population.push_back(exported(solution));
    return result;
  }

 private:
  static constexpr std::uint32_t kNone = static_cast<std::uint32_t>(-1);
  struct Edit {
    std::size_t row = 0;
    Shares shares;
  };

  [[nodiscard]] std::size_t rows() const { return problem_.present.size(); }
  [[nodiscard]] std::size_t bins() const { return problem_.capacity.size(); }

  // ---- rows ----

  RowId store(std::size_t row, const Shares& shares) {
    int units = 0;
    std::uint64_t hash = mixed(row + 1);
    for (const auto& share : shares) {
      units += share.units;
      hash = mixed(hash ^ (static_cast<std::uint64_t>(share.bin) << 20U) ^
                   static_cast<std::uint64_t>(share.units));
    }
    ++evaluated_;
    const double worth = problem_.worth(
        {row, static_cast<int>(shares.size()), units, shares == problem_.present[row]});
    return store_.add(shares, {worth, hash});
  }

  // ---- a child in progress: shared rows, and rows that are being changed ----

  Shares& edit(std::size_t row) {
    if (edit_of_[row] == kNone) {
      edit_of_[row] = static_cast<std::uint32_t>(edits_);
      if (edits_ == edit_.size()) edit_.emplace_back();
      Edit& fresh = edit_[edits_++];
      const auto now = store_.shares(child_.rows[row]);
      fresh.row = row;
      fresh.shares.assign(now.begin(), now.end());
    }
    return edit_[edit_of_[row]].shares;
  }
  [[nodiscard]] std::span<const Share> shares(std::size_t row) const {
    if (edit_of_[row] == kNone) return store_.shares(child_.rows[row]);
    return edit_[edit_of_[row]].shares;
  }

  // Adds units on a bin.
  static void add(Shares& shares, int bin, int units) {
    auto at = std::lower_bound(shares.begin(), shares.end(), bin,
                               [](const Share& share, int b) { return share.bin < b; });
    if (at == shares.end() || at->bin != bin) at = shares.insert(at, {bin, 0});
    at->units += units;
  }
  static int units_of(std::span<const Share> shares) {
    int units = 0;
    for (const auto& share : shares) units += share.units;
    return units;
  }

  // ---- room: updated while a child changes ----

  int& free_at(const Share& share) { return free_[static_cast<std::size_t>(share.bin)]; }
  void give_room(std::span<const Share> shares) {
    for (const auto& share : shares) free_at(share) += share.units;
  }
  void take_room(std::span<const Share> shares) {
    for (const auto& share : shares) free_at(share) -= share.units;
  }
  void count_room() {
    std::copy(problem_.capacity.begin(), problem_.capacity.end(), free_.begin());
    for (const RowId id : child_.rows) take_room(store_.shares(id));
  }

  // ---- mutation ----

  void put_rows_back() {
    for (std::size_t row = jumps_.draw(random_); row < rows(); row += 1 + jumps_.draw(random_)) {
      if (!put_back_[row] || child_.rows[row] == present_[row]) continue;
      give_room(store_.shares(child_.rows[row]));
      child_.rows[row] = present_[row];
      take_room(store_.shares(child_.rows[row]));
    }
  }

  void drop_shares() {
    for (std::size_t row = jumps_.draw(random_); row < rows(); row += 1 + jumps_.draw(random_)) {
      for (std::size_t i = shares(row).size(); i-- > 0;) {
        if (random_.uniform() >= kDropShare) continue;
        Shares& changed = edit(row);
        const auto dropped = changed.begin() + static_cast<std::ptrdiff_t>(i);
        free_at(*dropped) += dropped->units;
        changed.erase(dropped);
      }
    }
  }

  // On each bin with room, about one row of all rows and one of the rows there get more units, up
  // to the whole bin. Repair decides which rows lose units.
  void raise_shares() {
    roomy_.clear();
    for (std::size_t bin = 0; bin < bins(); ++bin) {
      if (free_[bin] > 0) roomy_.push_back(bin);
    }
    if (roomy_.empty()) return;
    for (const std::size_t bin : roomy_) there_[bin].clear();
    for (std::size_t row = 0; row < rows(); ++row) {
      for (const auto& share : shares(row)) {
        if (free_at(share) > 0)
          there_[static_cast<std::size_t>(share.bin)].push_back(static_cast<std::uint32_t>(row));
      }
    }
    for (const std::size_t bin : roomy_) {
      raise(random_.below(rows()), bin);
      const auto& there = there_[bin];
      if (!there.empty()) raise(there[random_.below(there.size())], bin);
    }
  }

  void raise(std::size_t row, std::size_t bin) {
    int has = 0;
    for (const auto& share : shares(row))
      has += share.bin == static_cast<int>(bin) ? share.units : 0;
    const int room = problem_.capacity[bin] - has;
    if (room <= 0) return;
    const int more = static_cast<int>(random_.below(static_cast<std::uint64_t>(room) + 1));
    if (more == 0) return;
    add(edit(row), static_cast<int>(bin), more);
    free_[bin] -= more;
  }

  // Removes a row and places it again, with another number of units, on the fewest bins.
  void place_again() {
    const std::size_t row = random_.below(rows());
    const int had = units_of(shares(row));
    give_room(shares(row));
    const int wish = problem_.usable(row, wished_units(row, had));
    Shares& after = edit(row);
    after.clear();
    if (wish > 0) put_down(after, wish);
  }

  int wished_units(std::size_t row, int had) {
    switch (random_.below(6)) {
      case 0:
        return had + 1;
      case 1:
        return std::max(had - 1, 1);
      case 2:
        return 2 * had;
      case 3:
        return std::max(had, 1);
      default:
        break;
    }
    int room = 0;
    for (const int free : free_) room += std::max(free, 0);
    const int most = std::max(problem_.usable(row, std::max(room, 1)), 1);
    return 1 + static_cast<int>(random_.below(static_cast<std::uint64_t>(most)));
  }

  // Uses the bin with the least room that is enough; else fills the emptiest bins. If all bins are
  // full, it overbooks the rows of lowest precedence, which repair will cut.
  void put_down(Shares& shares, int units) {
    while (units > 0) {
      const auto bin = tightest_or_emptiest(units);
      const int room = free_[bin] > 0 ? free_[bin] : problem_.capacity[bin];
      const int taken = std::min(units, room);
      if (taken <= 0) return;
      add(shares, static_cast<int>(bin), taken);
      free_[bin] -= taken;
      units -= taken;
    }
  }

  std::size_t tightest_or_emptiest(int units) {
    const std::size_t first = random_.below(bins());
    std::size_t tightest = bins();
    int least_room = std::numeric_limits<int>::max();
    std::size_t emptiest = first;
    const auto look_from_to = [&](std::size_t from, std::size_t to) {
      for (std::size_t bin = from; bin < to && least_room > units; ++bin) {
        const int room = free_[bin];
        if (room > free_[emptiest]) emptiest = bin;
        if (room < units || room >= least_room) continue;
        least_room = room;
        tightest = bin;
      }
    };
    look_from_to(first, bins());
    look_from_to(0, first);
    return tightest != bins() ? tightest : emptiest;
  }

  // A row gives units on one of its bins to another row, if possible to a row without units.
  void hand_over() {
    const std::size_t giver = random_.below(rows());
    if (shares(giver).empty()) return;
    const std::size_t taker = random_taker();
    if (taker == giver) return;
    const std::size_t at = random_.below(shares(giver).size());
    Shares& given = edit(giver);
    const int bin = given[at].bin;
    const int units =
        1 + static_cast<int>(random_.below(static_cast<std::uint64_t>(given[at].units)));
    given[at].units -= units;
    if (given[at].units == 0) given.erase(given.begin() + static_cast<std::ptrdiff_t>(at));
    add(edit(taker), bin, units);
  }

  std::size_t random_taker() {
    constexpr int kTries = 4;
    std::size_t taker = random_.below(rows());
    for (int i = 1; i < kTries && !shares(taker).empty(); ++i) taker = random_.below(rows());
    return taker;
  }

  void mutate() {
    put_rows_back();
    drop_shares();
    raise_shares();
    do {
      random_.below(2) == 0 ? place_again() : hand_over();
    } while (random_.uniform() < kAnotherMove);
  }

  // ---- repair ----

  void repair() {
    for (std::size_t i = 0; i < edits_; ++i) cut_to_usable(edit_[i].row, edit_[i].shares);
    if (problem_.one_spanning_row) keep_first_spanning();
    if (std::all_of(free_.begin(), free_.end(), [](int free) { return free >= 0; })) return;
    std::copy(problem_.capacity.begin(), problem_.capacity.end(), free_.begin());
    for (std::size_t row = 0; row < rows(); ++row) {
      const auto now = shares(row);
      const bool fits = std::all_of(now.begin(), now.end(), [&](const Share& share) {
        return share.units <= free_at(share);
      });
      if (!fits) cut_to_room(row);
      take_room(shares(row));
    }
  }

  void cut_to_room(std::size_t row) {
    Shares& cut = edit(row);
    for (auto& share : cut) share.units = std::min(share.units, free_at(share));
    std::erase_if(cut, [](const Share& share) { return share.units <= 0; });
    const int units = units_of(cut);
    cut_down(cut, units - problem_.usable(row, units));
  }

  // Reduces a row to what it can use.
  void cut_to_usable(std::size_t row, Shares& shares) {
    const int units = units_of(shares);
    const int surplus = units - problem_.usable(row, units);
    if (surplus == 0) return;
    give_room(shares);
    cut_down(shares, surplus);
    take_room(shares);
  }

  // Takes units from shares in random order.
  void cut_down(Shares& shares, int surplus) {
    while (surplus > 0) {
      const auto at = shares.begin() + static_cast<std::ptrdiff_t>(random_.below(shares.size()));
      const int taken = std::min(surplus, at->units);
      surplus -= taken;
      at->units -= taken;
      if (at->units == 0) shares.erase(at);
    }
  }

  void keep_first_spanning() {
    for (std::size_t bin = 0; bin < bins(); ++bin)
      spanning_[bin] = !problem_.spanned.empty() && problem_.spanned[bin];
    const auto taken = [&](const Share& share) {
      return spanning_[static_cast<std::size_t>(share.bin)] != 0;
    };
    for (std::size_t row = 0; row < rows(); ++row) {
      const auto now = shares(row);
      if (now.size() < 2) continue;
      if (std::any_of(now.begin(), now.end(), taken)) {
        Shares& cut = edit(row);
        give_room(cut);
        std::erase_if(cut, taken);
        take_room(cut);
        cut_to_usable(row, cut);
      }
      if (shares(row).size() < 2) continue;
      for (const auto& share : shares(row)) spanning_[static_cast<std::size_t>(share.bin)] = 1;
    }
  }

  // ---- generations ----

  // Repairs the child, stores its changed rows and computes its worth.
  void finish_child() {
    repair();
    for (std::size_t i = 0; i < edits_; ++i) {
      const Edit& changed = edit_[i];
      child_.rows[changed.row] = row_id(changed);
      edit_of_[changed.row] = kNone;
    }
    edits_ = 0;
    child_.worth = 0;
    child_.hash = 0;
    for (const RowId id : child_.rows) {
      const auto& value = store_.value(id);
      child_.worth += value.worth;
      child_.hash += value.hash;
    }
  }

  RowId row_id(const Edit& changed) {
    if (changed.shares.empty()) return none_[changed.row];
    if (changed.shares == problem_.present[changed.row]) return present_[changed.row];
    const auto before = store_.shares(child_.rows[changed.row]);
    if (std::equal(before.begin(), before.end(), changed.shares.begin(), changed.shares.end()))
      return child_.rows[changed.row];
    return store(changed.row, changed.shares);
  }

  void begin(std::span<const Assignment> start) {
    child_.rows = present_;
    count_room();
    keep_child();
    for (const auto& assignment : start) enter(assignment);
    for (const bool by_taking : {false, true}) {
      begin_with_all_served(by_taking);
      climb_from(population_.back(), by_taking ? Climb::pairs_first : Climb::rows_first);
    }
    keep_best(population_);
    climb_from(population_.front(), Climb::rows_first);
    keep_best(population_);
  }

  void enter(const Assignment& assignment) {
    CHECK(assignment.rows.size() == rows());
    child_.rows = present_;
    count_room();
    for (std::size_t row = 0; row < rows(); ++row) {
      give_room(shares(row));
      edit(row) = assignment.rows[row];
      take_room(shares(row));
    }
    keep_child();
  }

  void climb_from(const Solution& solution, Climb how) {
    Assignment found = exported(solution);
    evaluated_ += climb(problem_, found, how);
    enter(found);
  }

  // The present state, in which each row without units gets the fewest units that it can use: from
  // free room or, with `taking`, from the row that has most.
  void begin_with_all_served(bool by_taking) {
    child_.rows = present_;
    count_room();
    for (std::size_t row = 0; row < rows(); ++row) {
      if (!shares(row).empty()) continue;
      const int least = least_usable(row);
      int room = 0;
      for (const int free : free_) room += std::max(free, 0);
      if (least > 0 && least <= room) {
        put_down(edit(row), least);
      } else if (by_taking && least == 1) {
        take_from_richest(row);
      }
    }
    keep_child();
  }

  [[nodiscard]] int least_usable(std::size_t row) const {
    const int all = std::accumulate(problem_.capacity.begin(), problem_.capacity.end(), 0);
    for (int units = 1; units <= all; ++units) {
      if (problem_.usable(row, units) == units) return units;
    }
    return 0;
  }

  void take_from_richest(std::size_t taker) {
    std::size_t richest = taker;
    int most = 1;
    for (std::size_t row = 0; row < rows(); ++row) {
      const int units = units_of(shares(row));
      if (units <= most || problem_.usable(row, units - 1) != units - 1) continue;
      most = units;
      richest = row;
    }
    if (richest == taker) return;
    Shares& given = edit(richest);
    const int bin = given.back().bin;
    if (--given.back().units == 0) given.pop_back();
    add(edit(taker), bin, 1);
  }

  // The present state may also break a limit, if a bin was removed.
  void keep_child() {
    for (std::size_t row = 0; row < rows(); ++row) {
      const int units = units_of(shares(row));
      if (problem_.usable(row, units) != units) edit(row);
    }
    finish_child();
    population_.push_back(child_);
  }

  const Solution& tournament() {
    const Solution& a = population_[random_.below(population_.size())];
    const Solution& b = population_[random_.below(population_.size())];
    return worthier(b, a) ? b : a;
  }

  void breed() {
    const auto wanted = static_cast<std::size_t>(options_.population);
    children_.resize(wanted);
    for (auto& child : children_) {
      const Solution& first = tournament();
      const Solution& second = tournament();
      const auto point = static_cast<std::ptrdiff_t>(random_.below(rows()));
      std::swap(child_.rows, child.rows);
      child_.rows.assign(first.rows.begin(), first.rows.begin() + point);
      child_.rows.insert(child_.rows.end(), second.rows.begin() + point, second.rows.end());
      count_room();
      mutate();
      finish_child();
      std::swap(child, child_);
    }
  }

  void survive() {
    for (auto& child : children_) population_.push_back(std::move(child));
    keep_best(population_);
  }

  void keep_best(std::vector<Solution>& solutions) const {
    std::sort(solutions.begin(), solutions.end(), worthier);
    const auto equal = [](const Solution& a, const Solution& b) {
      return a.hash == b.hash && a.worth == b.worth;
    };
    solutions.erase(std::unique(solutions.begin(), solutions.end(), equal), solutions.end());
    const auto most = static_cast<std::size_t>(options_.population);
    if (solutions.size() > most) solutions.resize(most);
  }

  // Removes the rows of solutions that did not survive.
  void compact_if_large() {
    const std::size_t used = population_.size() * rows();
    if (store_.size() < 4 * used + 10'000) return;
    RowStore fresh;
    std::vector<RowId> moved(store_.size(), kNone);
    const auto move = [&](RowId& id) {
      if (moved[id] == kNone) moved[id] = fresh.add(store_.shares(id), store_.value(id));
      id = moved[id];
    };
    for (auto& id : present_) move(id);
    for (auto& id : none_) move(id);
    for (auto& solution : population_) {
      for (auto& id : solution.rows) move(id);
    }
    store_ = std::move(fresh);
  }

  [[nodiscard]] Assignment exported(const Solution& solution) const {
    Assignment assignment;
    assignment.worth = solution.worth;
    for (const RowId id : solution.rows) {
      const auto shares = store_.shares(id);
      assignment.rows.emplace_back(shares.begin(), shares.end());
    }
    return assignment;
  }

  const AssignmentProblem& problem_;
  const AssignmentSearchOptions& options_;
  Random random_;
  JumpTable jumps_;
  RowStore store_;
  std::vector<RowId> present_, none_;  // by row
  std::vector<bool> put_back_;         // by row: whether it may be
  std::vector<Solution> population_, children_;
  std::size_t evaluated_ = 0;

  Solution child_;
  std::vector<Edit> edit_;  // the first edits_ of them are in use
  std::size_t edits_ = 0;
  std::vector<int> free_;                          // by bin; negative if overbooked
  std::vector<char> spanning_;                     // by bin
  std::vector<std::uint32_t> edit_of_;             // by row
  std::vector<std::size_t> roomy_;                 // bins
  std::vector<std::vector<std::uint32_t>> there_;  // by roomy bin: rows there
};

}  // namespace

AssignmentSearchResult search_assignment(const AssignmentProblem& problem,
                                         const AssignmentSearchOptions& options,
                                         std::span<const Assignment> start) {
  return Search(problem, options).run(start);
}

bool keeps_limits(const AssignmentProblem& problem, const std::vector<Shares>& rows) {
  std::vector<int> used(problem.capacity.size(), 0);
  std::vector<int> spanning(problem.capacity.size(), 0);
  for (std::size_t row = 0; row < rows.size(); ++row) {
    int units = 0;
    int before = -1;
    for (const auto& share : rows[row]) {
      if (share.bin <= before || share.units < 1) return false;
      before = share.bin;
      units += share.units;
      used[static_cast<std::size_t>(share.bin)] += share.units;
      spanning[static_cast<std::size_t>(share.bin)] += rows[row].size() > 1 ? 1 : 0;
    }
    if (problem.usable(row, units) != units) return false;
  }
  for (std::size_t bin = 0; bin < used.size(); ++bin) {
    if (used[bin] > problem.capacity[bin]) return false;
    const int outside = !problem.spanned.empty() && problem.spanned[bin] ? 1 : 0;
    if (problem.one_spanning_row && spanning[bin] > 0 && spanning[bin] + outside > 1) return false;
  }
  return true;
}

}  // namespace rubato::math
