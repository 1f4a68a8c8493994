#include "rubato/math/assignment_search.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "rubato/base/check.h"
#include "rubato/base/random.h"

namespace rubato {
namespace {

using RowId = std::uint32_t;

// Rates of the mutations, as published where it has them.
constexpr double kPutBack = 0.1;    // of a row
constexpr double kDropRow = 0.1;    // of a row: some of its shares may go ...
constexpr double kDropShare = 0.1;  // ... each with this chance
constexpr double kReplaceAgain = 0.5;

// The places of events of chance `p` among so many trials, jumping over those that do not happen.
class Jumps {
 public:
  Jumps(double p, std::size_t trials, Random& random)
      : scale_(1 / std::log1p(-p)), trials_(trials), random_(random) {
    jump();
  }
  [[nodiscard]] bool done() const { return at_ >= trials_; }
  [[nodiscard]] std::size_t at() const { return at_; }
  void next() {
    ++at_;
    jump();
  }

 private:
  void jump() {
    const double skip = std::log1p(-random_.uniform()) * scale_;
    at_ = skip < static_cast<double>(trials_ - std::min(at_, trials_))
              ? at_ + static_cast<std::size_t>(skip)
              : trials_;
  }
  double scale_;
  std::size_t trials_;
  Random& random_;
  std::size_t at_ = 0;
};

// Rows of all solutions, each stored once and never changed.
class RowStore {
 public:
  struct Stored {
    std::uint32_t first = 0;
    std::uint32_t count = 0;
    int units = 0;
    double worth = 0;
    std::uint64_t hash = 0;
  };

  [[nodiscard]] const Stored& info(RowId id) const { return rows_[id]; }
  [[nodiscard]] std::span<const Share> shares(RowId id) const {
    return {shares_.data() + rows_[id].first, rows_[id].count};
  }
  RowId add(std::span<const Share> shares, int units, double worth, std::uint64_t hash) {
    const auto id = static_cast<RowId>(rows_.size());
    rows_.push_back({static_cast<std::uint32_t>(shares_.size()),
                     static_cast<std::uint32_t>(shares.size()), units, worth, hash});
    shares_.insert(shares_.end(), shares.begin(), shares.end());
    return id;
  }
  [[nodiscard]] std::size_t size() const { return rows_.size(); }

 private:
  std::vector<Stored> rows_;
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
        free_(problem.capacity.size()),
        spanning_(problem.capacity.size()),
        edit_of_(problem.present.size(), kNone) {
    CHECK(options.population >= 1 && options.generations >= 0);
    for (std::size_t row = 0; row < rows(); ++row) {
      present_.push_back(store(row, problem.present[row]));
      none_.push_back(store(row, {}));
      const int units = units_of(problem.present[row]);
      present_usable_.push_back(problem.usable(row, units) == units);
    }
  }

  AssignmentSearchResult run(std::span<const Assignment> start) {
    begin(start);
    for (int generation = 0; generation < options_.generations && rows() > 0; ++generation) {
      breed();
      survive();
      compact_if_large();
    }
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
    return store_.add(shares, units, worth, hash);
  }

  // ---- a child in the making: shared rows, and those that are being changed ----

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
  void replace(std::size_t row, RowId id) {
    if (edit_of_[row] != kNone) {
      const auto is = store_.shares(id);
      edit_[edit_of_[row]].shares.assign(is.begin(), is.end());
    } else {
      child_.rows[row] = id;
    }
  }

  // Adds what is missing or takes away (units < 0) on a bin.
  static void change(Shares& shares, int bin, int units) {
    auto at = std::lower_bound(shares.begin(), shares.end(), bin,
                               [](const Share& share, int b) { return share.bin < b; });
    if (at == shares.end() || at->bin != bin) at = shares.insert(at, {bin, 0});
    at->units += units;
    if (at->units == 0) shares.erase(at);
  }
  static int units_of(std::span<const Share> shares) {
    int units = 0;
    for (const auto& share : shares) units += share.units;
    return units;
  }

  // Cuts a row to what it can use, from shares in random order.
  void cut_to_usable(std::size_t row, Shares& shares) {
    const int units = units_of(shares);
    int surplus = units - problem_.usable(row, units);
    while (surplus > 0) {
      const auto at = static_cast<std::ptrdiff_t>(random_.below(shares.size()));
      const int taken = std::min(surplus, (shares.begin() + at)->units);
      surplus -= taken;
      (shares.begin() + at)->units -= taken;
      if ((shares.begin() + at)->units == 0) shares.erase(shares.begin() + at);
    }
  }

  void count_free() {
    std::copy(problem_.capacity.begin(), problem_.capacity.end(), free_.begin());
    for (std::size_t row = 0; row < rows(); ++row) {
      for (const auto& share : shares(row))
        free_[static_cast<std::size_t>(share.bin)] -= share.units;
    }
  }

  // ---- mutation ----

  void put_back() {
    for (Jumps jump(kPutBack, rows(), random_); !jump.done(); jump.next()) {
      if (present_usable_[jump.at()]) replace(jump.at(), present_[jump.at()]);
    }
  }

  void drop_shares() {
    for (Jumps jump(kDropRow, rows(), random_); !jump.done(); jump.next()) {
      const auto now = shares(jump.at());
      for (std::size_t i = now.size(); i-- > 0;) {
        if (random_.uniform() >= kDropShare) continue;
        Shares& shares = edit(jump.at());
        shares.erase(shares.begin() + static_cast<std::ptrdiff_t>(i));
      }
    }
  }

  // On each bin with room, about one row of all and one of those that are there get more, up to
  // the whole bin; repair decides who gives way.
  void raise_shares() {
    present_at_.resize(bins());
    for (std::size_t bin = 0; bin < bins(); ++bin) present_at_[bin].clear();
    for (std::size_t row = 0; row < rows(); ++row) {
      for (const auto& share : shares(row)) {
        const auto bin = static_cast<std::size_t>(share.bin);
        if (free_[bin] > 0) present_at_[bin].push_back(static_cast<std::uint32_t>(row));
      }
    }
    for (std::size_t bin = 0; bin < bins(); ++bin) {
      if (free_[bin] <= 0) continue;
      raise(random_.below(rows()), bin);
      const auto& there = present_at_[bin];
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
    if (more > 0) change(edit(row), static_cast<int>(bin), more);
  }

  // Takes a row up and puts it down with another number of units on the fewest bins.
  void place_again() {
    const std::size_t row = random_.below(rows());
    const auto before = shares(row);
    const int had = units_of(before);
    for (const auto& share : before) free_[static_cast<std::size_t>(share.bin)] += share.units;
    const int wish = problem_.usable(row, wished_units(row, had));
    Shares& after = edit(row);
    after.clear();
    if (wish > 0) put_down(after, wish);
  }

  int wished_units(std::size_t row, int had) {
    int room = 0;
    for (const int free : free_) room += std::max(free, 0);
    const int most = problem_.usable(row, std::max(room, 1));
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
        return 1 + static_cast<int>(random_.below(static_cast<std::uint64_t>(std::max(most, 1))));
    }
  }

  // On the bin with the least room that is enough; else fills the emptiest bins. Where all is full
  // it goes over the rows of least precedence, which repair will cut.
  void put_down(Shares& shares, int units) {
    while (units > 0) {
      const auto bin = tightest_or_emptiest(units);
      const int room = free_[bin] > 0 ? free_[bin] : problem_.capacity[bin];
      const int taken = std::min(units, room);
      if (taken <= 0) return;
      change(shares, static_cast<int>(bin), taken);
      free_[bin] -= taken;
      units -= taken;
    }
  }

  std::size_t tightest_or_emptiest(int units) {
    const std::size_t first = random_.below(bins());
    std::size_t tightest = bins();
    std::size_t emptiest = first;
    for (std::size_t i = 0; i < bins(); ++i) {
      const std::size_t bin = first + i < bins() ? first + i : first + i - bins();
      if (free_[bin] >= units && (tightest == bins() || free_[bin] < free_[tightest]))
        tightest = bin;
      if (free_[bin] > free_[emptiest]) emptiest = bin;
    }
    return tightest != bins() ? tightest : emptiest;
  }

  void mutate() {
    put_back();
    drop_shares();
    count_free();
    raise_shares();
    count_free();
    do {
      place_again();
    } while (random_.uniform() < kReplaceAgain);
  }

  // ---- repair ----

  void repair() {
    for (std::size_t i = 0; i < edits_; ++i) cut_to_usable(edit_[i].row, edit_[i].shares);
    if (problem_.one_spanning_row) keep_first_spanning();
    std::copy(problem_.capacity.begin(), problem_.capacity.end(), free_.begin());
    for (std::size_t row = 0; row < rows(); ++row) {
      for (const auto& share : shares(row)) {
        if (share.units > free_[static_cast<std::size_t>(share.bin)]) {
          cut_to_room(row);
          break;
        }
      }
      for (const auto& share : shares(row))
        free_[static_cast<std::size_t>(share.bin)] -= share.units;
    }
  }

  void cut_to_room(std::size_t row) {
    Shares& shares = edit(row);
    for (auto& share : shares)
      share.units = std::min(share.units, free_[static_cast<std::size_t>(share.bin)]);
    std::erase_if(shares, [](const Share& share) { return share.units <= 0; });
    cut_to_usable(row, shares);
  }

  void keep_first_spanning() {
    for (std::size_t bin = 0; bin < bins(); ++bin)
      spanning_[bin] = !problem_.spanned.empty() && problem_.spanned[bin];
    for (std::size_t row = 0; row < rows(); ++row) {
      const auto now = shares(row);
      if (now.size() < 2) continue;
      const auto taken = [&](const Share& share) {
        return spanning_[static_cast<std::size_t>(share.bin)] != 0;
      };
      if (std::any_of(now.begin(), now.end(), taken)) {
        Shares& shares = edit(row);
        std::erase_if(shares, taken);
        cut_to_usable(row, shares);
      }
      if (shares(row).size() < 2) continue;
      for (const auto& share : shares(row)) spanning_[static_cast<std::size_t>(share.bin)] = 1;
    }
  }

  // ---- generations ----

  // Repairs the child, stores the rows it changed and adds up its worth.
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
      child_.worth += store_.info(id).worth;
      child_.hash += store_.info(id).hash;
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
    keep_child();
    for (const auto& assignment : start) {
      CHECK(assignment.rows.size() == rows());
      child_.rows = present_;
      for (std::size_t row = 0; row < rows(); ++row) edit(row) = assignment.rows[row];
      keep_child();
    }
    keep_best(population_);
  }

  // A present state may break a limit, too, if a bin has gone.
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

  // Forgets the rows of solutions that did not survive.
  void compact_if_large() {
    const std::size_t used = population_.size() * rows();
    if (store_.size() < 4 * used + 100'000) return;
    RowStore fresh;
    std::vector<RowId> moved(store_.size(), kNone);
    const auto move = [&](RowId& id) {
      if (moved[id] == kNone) {
        const auto& info = store_.info(id);
        moved[id] = fresh.add(store_.shares(id), info.units, info.worth, info.hash);
      }
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
  RowStore store_;
  std::vector<RowId> present_, none_;  // by row
  std::vector<bool> present_usable_;   // by row; not if what it may use has shrunk
  std::vector<Solution> population_, children_;
  std::size_t evaluated_ = 0;

  Solution child_;
  std::vector<Edit> edit_;  // the first edits_ of them are in use
  std::size_t edits_ = 0;
  std::vector<int> free_;                               // by bin; below 0 where too much is given
  std::vector<char> spanning_;                          // by bin
  std::vector<std::uint32_t> edit_of_;                  // by row
  std::vector<std::vector<std::uint32_t>> present_at_;  // by bin
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

}  // namespace rubato
