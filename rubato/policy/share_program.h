// Gavel's allocation problem (Narayanan et al., OSDI'20, section 3) as linear programs: which share
// of time each job should have on each GPU type, alone or beside another job.
//
//   sum over jobs of GPUs x share <= GPUs of the type,   sum over types of a job's shares <= 1
//
// Equal jobs form one group, whose time is the sum over its jobs. So the size of a program depends
// on the number of different jobs, not on the number of jobs. The program is built once. Objectives
// change its coefficients, and each solve starts where the last one ended.
//
// Max-min alone determines only the worst job. Water filling breaks the ties: jobs that cannot be
// raised further (their row has a price) are held at their value, and the others are raised
// further. Where all rise at the same rate, most jobs are stopped by their own ceiling (all of
// their time on their best type). There are as many ceilings as groups, so solving a program for
// each would be slow. Instead, a level counts as reachable if every job reaches the level or its
// own ceiling. If a level is not reachable, the prices of the failed program say how far down the
// next guess must be. A few programs find the highest level.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "rubato/math/linear_program.h"

namespace rubato::policy {

struct ShareProblem {
  struct Group {
    int jobs = 1;
    int gpus = 1;              // each
    std::vector<double> rate;  // by type, of one job; 0 = cannot run there
  };
  struct Pair {  // one job of each group, or two of the same; both on the same GPUs
    std::size_t first = 0, second = 0;
    std::vector<double> first_rate, second_rate;  // by type
  };
  std::vector<double> capacity;  // GPUs by type
  std::vector<Group> groups;
  std::vector<Pair> pairs;
};

// Time by type, summed over the jobs of a group. Indexed by group or pair.
struct Times {
  std::vector<std::vector<double>> alone, paired;
};

class ShareProgram {
 public:
  explicit ShareProgram(ShareProblem problem);

  // The value of a group is its scale x the effective throughput of one of its jobs. Raises all
  // values as far as possible. `rise(held)` says how fast each group that is not held rises with
  // the level; held groups keep their value. Without `fill`, only the first level is found.
  using Rise = std::function<std::vector<double>(const std::vector<bool>& held)>;
  [[nodiscard]] bool water_fill(const std::vector<double>& scale, const Rise& rise, bool fill);
  [[nodiscard]] bool water_fill(const std::vector<double>& scale, bool fill = true);
  // The first level found: the lowest value.
  [[nodiscard]] double level() const { return level_; }

  // Maximises the sum of scale x throughput over all jobs, minus the price of the GPU time used.
  // The penalty for a group below its needed throughput (0 = none) is far larger than any gain, so
  // needs are met wherever possible.
  [[nodiscard]] bool maximise_sum(const std::vector<double>& scale,
                                  const std::vector<double>& price_of_type,
                                  const std::vector<double>& needed);

  [[nodiscard]] const ShareProblem& problem() const { return problem_; }
  [[nodiscard]] Times times() const;
  // Effective throughput of one job of each group.
  [[nodiscard]] std::vector<double> throughputs() const;
  // GPU-time used, of each type.
  [[nodiscard]] std::vector<double> used() const;

  // The basis where a solve ended, in pieces, so that a program in which some groups are new can
  // start there. A new group has an empty piece.
  struct Basis {
    std::vector<std::string> groups, pairs;  // each: its columns on every type, then its rows
    std::string types;                       // the rows of the types, and the level
  };
  // Sets the start: basis() and, after water filling, first_level() of a similar program. It
  // changes the path to the optimum, and which one is found if there are several.
  void set_basis(const Basis& basis);
  void set_guess(double first_level) { guess_ = first_level; }
  // The level at which jobs first could not rise because GPUs were missing; 0 if not searched for.
  [[nodiscard]] double first_level() const { return first_level_; }
  // Of the last solve.
  [[nodiscard]] Basis basis() const;
  [[nodiscard]] int solves() const { return solves_; }

 private:
  struct Part {  // the part of a group's throughput that comes from one column
    std::size_t group = 0;
    double rate = 0;  // per job of the group and unit of time
  };
  struct Column {
    int column = 0;
    std::size_t of = 0;  // group or pair
    std::size_t type = 0;
    bool pair = false;
    int gpus = 0;
    std::vector<Part> parts;
  };

  void add(std::size_t of, bool pair, std::size_t type, int gpus, const std::vector<Part>& parts,
           const std::vector<double>& time);
  void set_scale(const std::vector<double>& scale);
  void prepare_levels(const std::vector<double>& scale);
  // The value of each group if its jobs always run on their fastest type.
  [[nodiscard]] std::vector<double> ceilings(const std::vector<double>& scale) const;
  void hold(std::size_t group, double part_of_ceiling);
  struct Filling {
    std::vector<double> ceiling, held;  // by group; held: 0 if the group still rises
    std::vector<std::size_t> rising;    // groups by ascending ceiling
    [[nodiscard]] double ceiling_of(std::size_t place) const { return ceiling[rising[place]]; }
  };
  struct Level {
    double level = LinearProgram::kUnbounded;  // all are at their ceilings
    double reached = 1;       // the share of it that the program's solution reaches
    std::vector<bool> stuck;  // by index in `rising`: cannot be above the level
  };
  // Lowers the level until sum of price x min(level, ceiling) equals the bound.
  static void lower(Level& found, const Filling& filling, const std::vector<double>& price,
                    double bound);
  [[nodiscard]] Level most_that_gpus_give(const Filling& filling) const;
  // The highest level such that every rising group reaches it or its own ceiling.
  [[nodiscard]] std::optional<Level> highest_level(const Filling& filling,
                                                   std::optional<double> guess);
  [[nodiscard]] bool solve();
  // Calls visit(piece, place in it, place in the letters of a LinearProgram) for all letters.
  template <class BasisType, class Visit>
  void for_letters(BasisType& basis, const Visit& visit) const;

  ShareProblem problem_;
  LinearProgram program_;
  std::vector<int> time_row_, value_row_, capacity_row_, shortfall_;
  std::vector<Column> columns_;
  int level_column_ = 0;
  double level_ = 0, first_level_ = 0;
  std::optional<double> guess_;
  int solves_ = 0;
};

}  // namespace rubato::policy
