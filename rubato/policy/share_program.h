// Gavel's allocation problem (Narayanan et al., OSDI'20, section 3) as linear programs: which share
// of time each job should have on each GPU type, alone or beside another job.
//
//   sum over jobs of GPUs x share <= GPUs of the type,   sum over types of a job's shares <= 1
//
// Equal jobs are one group with as much time as it has jobs, so a program's size depends on the
// kinds of jobs, not on their number. It is built once; objectives change its coefficients and each
// solve starts where the last one ended.
//
// Max-min alone fixes only the worst job. The tie-break is water filling: jobs that cannot be
// raised any more (their row has a price) are held where they are, and the others rise on. Where
// all rise alike, most are stopped by their own ceiling (all of their time on their best type), and
// there are as many ceilings as kinds of jobs: no program is spent on these. A level is reachable
// if all jobs reach it or their ceiling; from a level that is not, the prices of the program that
// failed say how far down the next one must be, and a few programs find the highest.
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
  struct Pair {  // one job of each, or two of one group; both on the GPUs of one
    std::size_t first = 0, second = 0;
    std::vector<double> first_rate, second_rate;  // by type
  };
  std::vector<double> capacity;  // GPUs by type
  std::vector<Group> groups;
  std::vector<Pair> pairs;
};

// Time by type, summed over the jobs of a group; by the index of group or pair.
struct Times {
  std::vector<std::vector<double>> alone, paired;
};

class ShareProgram {
 public:
  explicit ShareProgram(ShareProblem problem);

  // The value of a group is its scale x the effective throughput of one of its jobs. Raises all
  // values as far as they go: `rise(held)` says how fast each group not held rises with the level;
  // held ones keep their value. With `fill` off, only the first level is found.
  using Rise = std::function<std::vector<double>(const std::vector<bool>& held)>;
  [[nodiscard]] bool water_fill(const std::vector<double>& scale, const Rise& rise, bool fill);
  [[nodiscard]] bool water_fill(const std::vector<double>& scale, bool fill = true);
  // The first level found: the worst value.
  [[nodiscard]] double level() const { return level_; }

  // Maximises the sum of scale x throughput over all jobs, less the price of the GPU-time used. A
  // group that falls short of its needed throughput (0 = none) is punished by far more than it
  // could gain, so that needs are met wherever possible.
  [[nodiscard]] bool maximise_sum(const std::vector<double>& scale,
                                  const std::vector<double>& price_of_type,
                                  const std::vector<double>& needed);

  [[nodiscard]] const ShareProblem& problem() const { return problem_; }
  [[nodiscard]] Times times() const;
  // Effective throughput of one job of each group.
  [[nodiscard]] std::vector<double> throughputs() const;
  // GPU-time used, of each type.
  [[nodiscard]] std::vector<double> used() const;

  // Where a solve ended, piece by piece, so that a program with other groups among the same ones
  // can start there. An empty piece is that of a newcomer.
  struct Basis {
    std::vector<std::string> groups, pairs;  // each on every type, then its rows
    std::string types;                       // and the level
  };
  // Where to start: what basis() and, after water filling, first_level() of a similar program say.
  // It changes the way to the optimum, and which one is taken of several.
  void set_basis(const Basis& basis);
  void set_guess(double first_level) { guess_ = first_level; }
  // The level at which jobs were first stuck for want of GPUs; 0 if none was looked for.
  [[nodiscard]] double first_level() const { return first_level_; }
  // Of the last solve.
  [[nodiscard]] Basis basis() const;
  [[nodiscard]] int solves() const { return solves_; }

 private:
  struct Part {  // of a group's throughput that a column gives
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
  // The value of each group if its jobs run all the time where they are fastest.
  [[nodiscard]] std::vector<double> ceilings(const std::vector<double>& scale) const;
  void hold(std::size_t group, double part_of_ceiling);
  struct Filling {
    std::vector<double> ceiling, held;  // by group; held: 0 of those that still rise
    std::vector<std::size_t> rising;    // groups by ascending ceiling
    [[nodiscard]] double ceiling_of(std::size_t place) const { return ceiling[rising[place]]; }
  };
  struct Level {
    double level = LinearProgram::kUnbounded;  // all are at their ceilings
    double reached = 1;                        // share of it that the program's solution has
    std::vector<bool> stuck;                   // by place in `rising`: cannot be above the level
  };
  // Lowers the level to where sum of price x the lesser of level and ceiling is the bound.
  static void lower(Level& found, const Filling& filling, const std::vector<double>& price,
                    double bound);
  [[nodiscard]] Level most_that_gpus_give(const Filling& filling) const;
  // The highest level that all who rise reach or end below at their ceiling.
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
