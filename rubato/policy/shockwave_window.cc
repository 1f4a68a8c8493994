#include "rubato/policy/shockwave_window.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <span>
#include <tuple>
#include <utility>

#include "rubato/math/linear_program.h"

namespace rubato::policy {
namespace {

constexpr int kSegments = 5;
constexpr double kAtNothing = 0.01;  // log is taken here instead of at 0
constexpr double kHair = 1e-9;
constexpr double kWhole = 1e-6;  // as close to a whole number as this counts as whole

double utility_at(int point) { return std::log(point == 0 ? kAtNothing : 1.0 * point / kSegments); }
double slope_of(int segment) { return (utility_at(segment + 1) - utility_at(segment)) * kSegments; }

double scale_of(const WindowProblem& problem) {
  return 1.0 / static_cast<double>(std::max<std::size_t>(problem.jobs.size(), 1)) / problem.rounds;
}

// The most rounds that a job can use.
int most_rounds(const WindowProblem& problem, const WindowJob& job) {
  if (job.gpus > problem.gpus || !(job.left_s > 0)) return 0;
  return static_cast<int>(
      std::min(std::ceil(job.left_s / problem.round_s - kHair), 1.0 * problem.rounds));
}

class Window {
 public:
  explicit Window(const WindowProblem& problem) : problem_(problem) {
    gpus_row_ = program_.add_row(-LinearProgram::kUnbounded, 1.0 * problem.gpus * problem.rounds);
    for (const WindowJob& job : problem.jobs) {
      most_.push_back(most_rounds(problem, job));
      job_row_.push_back(program_.add_row(job.least_rounds, most_.back()));
      left_row_.push_back(program_.add_row(std::max(job.left_s, 0.0), LinearProgram::kUnbounded));
    }
    add_columns();
  }

  WindowPlan run() {
    WindowPlan plan;
    plan.feasible = program_.maximise();
    if (!plan.feasible) return plan;
    std::vector<double> shares(problem_.jobs.size(), 0);
    for (const Column& column : columns_)
      shares[column.job] += program_.value(column.column) * column.rounds;
    std::vector<int> rounds = rounded(shares);
    plan.run = packed(rounds);
    plan.worth = window_worth(problem_, rounds);
    plan.bound = std::max(program_.objective() + fixed_, plan.worth);
    return plan;
  }

 private:
  struct Column {
    int column = 0;
    std::size_t job = 0;
    double rounds = 0;  // for a share of 1
  };

  // A column is a job's share of work within a segment of its utility.
  void add_columns() {
    const double scale = scale_of(problem_);
    for (std::size_t j = 0; j < problem_.jobs.size(); ++j) {
      const WindowJob& job = problem_.jobs[j];
      const double total = job.done_s + job.left_s;
      fixed_ += scale * job.weight * share_utility(total > 0 ? job.done_s / total : 1);
      if (most_[j] == 0) continue;
      for (int segment = 0; segment < kSegments; ++segment) {
        const double from = std::max(1.0 * segment / kSegments, job.done_s / total);
        const double to = (segment + 1.0) / kSegments;
        if (to <= from) continue;
        const double rounds = total / problem_.round_s;
        const std::vector<LinearProgram::Term> terms = {
            {gpus_row_, rounds * job.gpus}, {job_row_[j], rounds}, {left_row_[j], total}};
        const int column =
            program_.add_column(to - from, scale * job.weight * slope_of(segment), terms);
        columns_.push_back({column, j, rounds});
      }
    }
    std::vector<LinearProgram::Term> terms;
    for (const int row : left_row_) terms.emplace_back(row, 1);
    program_.add_column(LinearProgram::kUnbounded, -problem_.k, terms);
  }

  // Whole rounds: at least those that are needed. What is left by rounding down goes to jobs that
  // wanted a part of one more, by what they gain on each GPU.
  [[nodiscard]] std::vector<int> rounded(const std::vector<double>& wanted) const {
    std::vector<int> rounds;
    std::vector<double> gain;
    double room = 1.0 * problem_.gpus * problem_.rounds;
    for (std::size_t j = 0; j < wanted.size(); ++j) {
      const int least = static_cast<int>(std::ceil(problem_.jobs[j].least_rounds - kHair));
      const int down = static_cast<int>(std::floor(wanted[j] + kHair));
      rounds.push_back(std::clamp(std::max(down, least), 0, most_[j]));
      room -= rounds.back() * problem_.jobs[j].gpus;
      gain.push_back(gain_of_one_more(j, rounds.back()) / problem_.jobs[j].gpus);
    }
    std::vector<std::size_t> order(wanted.size());
    for (std::size_t j = 0; j < order.size(); ++j) order[j] = j;
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return gain[a] > gain[b]; });
    for (const std::size_t j : order) {
      if (wanted[j] <= rounds[j] + kHair || rounds[j] >= most_[j]) continue;
      if (problem_.jobs[j].gpus > room) continue;
      ++rounds[j];
      room -= problem_.jobs[j].gpus;
    }
    return rounds;
  }

  // Of its utility, and of the longest job's time at the relaxation's prices.
  [[nodiscard]] double gain_of_one_more(std::size_t j, int rounds) const {
    const WindowJob& job = problem_.jobs[j];
    const double total = job.done_s + job.left_s;
    if (rounds >= most_[j]) return 0;
    const double before = std::min(rounds * problem_.round_s, job.left_s);
    const double after = std::min(before + problem_.round_s, job.left_s);
    const double utility =
        share_utility((job.done_s + after) / total) - share_utility((job.done_s + before) / total);
    return scale_of(problem_) * job.weight * utility -
           std::min(program_.dual(left_row_[j]), 0.0) * (after - before);
  }

  // Assigns rounds; what does not fit is taken from `rounds`.
  std::vector<std::vector<int>> packed(std::vector<int>& rounds) const {
    std::vector<int> owed = rounds;
    std::vector<std::vector<int>> run(static_cast<std::size_t>(problem_.rounds));
    std::vector<std::size_t> order(rounds.size());
    for (std::size_t j = 0; j < order.size(); ++j) order[j] = j;
    for (std::size_t r = 0; r < run.size(); ++r) {
      auto& round = run[r];
      const int left = problem_.rounds - static_cast<int>(r);
      std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
        return std::tuple(owed[a] < left, -problem_.jobs[a].weight, owed[a]) <
               std::tuple(owed[b] < left, -problem_.jobs[b].weight, owed[b]);
      });
      int room = problem_.gpus;
      for (const std::size_t j : order) {
        if (owed[j] == 0 || problem_.jobs[j].gpus > room) continue;
        room -= problem_.jobs[j].gpus;
        --owed[j];
        round.push_back(static_cast<int>(j));
      }
      std::sort(round.begin(), round.end());
    }
    for (std::size_t j = 0; j < rounds.size(); ++j) rounds[j] -= owed[j];
    return run;
  }

  const WindowProblem& problem_;
  LinearProgram program_;
  int gpus_row_ = 0;
  std::vector<int> job_row_, left_row_, most_;  // by job
  std::vector<Column> columns_;
  double fixed_ = 0;  // the utility of what is done
};

// Branch and bound on the numbers of rounds. Its relaxation knows which jobs fit side by side: a
// round is a mixture of sets of jobs to which no other job can be added. It has a column for each
// such set, and one for each round that a job can use.
class ExactWindow {
 public:
  ExactWindow(const WindowProblem& problem, int relaxations)
      : problem_(problem), relaxations_(relaxations) {
    const double infinite = LinearProgram::kUnbounded;
    for (const WindowJob& job : problem.jobs) {
      all_.least.push_back(static_cast<int>(std::ceil(std::min(job.least_rounds, 1e6) - kHair)));
      all_.most.push_back(most_rounds(problem, job));
      least_row_.push_back(program_.add_row(0, infinite));
      side_row_.push_back(program_.add_row(-infinite, 0));
      left_row_.push_back(program_.add_row(std::max(job.left_s, 0.0), infinite));
    }
    rounds_row_ = program_.add_row(-infinite, problem.rounds);
    add_rounds();
    std::vector<LinearProgram::Term> terms;
    for (const int row : left_row_) terms.emplace_back(row, 1);
    program_.add_column(infinite, -problem.k, terms);
    std::vector<std::size_t> set;
    add_sets(0, problem.gpus, set);
  }

  WindowPlan run() {
    const WindowPlan rounded = plan_window(problem_);
    if (rounded.feasible && keeps_least(rounded)) best_ = rounded;
    std::vector<Box> boxes = {all_};
    while (!boxes.empty()) {
      Box box = std::move(boxes.back());
      boxes.pop_back();
      if (!better(box.bound)) continue;
      if (relaxations_-- <= 0) {
        missed_ = std::max(missed_, box.bound);
      } else if (look_into(box)) {
        split(box, boxes);
      }
    }
    best_.bound = best_.feasible ? std::max(missed_, best_.worth) : missed_;
    return best_;
  }

 private:
  static constexpr int kPackingSteps = 20'000;  // for one packing

  // A range of rounds for each job.
  struct Box {
    std::vector<int> least, most;
    double bound = LinearProgram::kUnbounded;
    std::vector<double> wanted;  // by the relaxation
  };

  [[nodiscard]] const WindowJob& job(std::size_t j) const { return problem_.jobs[j]; }
  [[nodiscard]] bool better(double bound) const {
    return !best_.feasible || bound > best_.worth + kHair;
  }

  void add_rounds() {
    first_.push_back(0);
    for (std::size_t j = 0; j < problem_.jobs.size(); ++j) {
      const double total = job(j).done_s + job(j).left_s;
      const auto share = [&](double more) { return share_utility((job(j).done_s + more) / total); };
      fixed_ += scale_of(problem_) * job(j).weight * (total > 0 ? share(0) : share_utility(1));
      for (int n = 0; n < all_.most[j]; ++n) {
        const double before = std::min(n * problem_.round_s, job(j).left_s);
        const double after = std::min((n + 1) * problem_.round_s, job(j).left_s);
        const std::vector<LinearProgram::Term> terms = {
            {least_row_[j], 1}, {side_row_[j], 1}, {left_row_[j], after - before}};
        program_.add_column(1, scale_of(problem_) * job(j).weight * (share(after) - share(before)),
                            terms);
      }
      first_.push_back(program_.columns());
    }
  }

  // Adds the sets that have these jobs, and none of the other ones before the j-th.
  void add_sets(std::size_t j, int room, std::vector<std::size_t>& set) {
    if (j < problem_.jobs.size()) {
      if (all_.most[j] > 0 && job(j).gpus <= room) {
        set.push_back(j);
        add_sets(j + 1, room - job(j).gpus, set);
        set.pop_back();
      }
      return add_sets(j + 1, room, set);
    }
    for (std::size_t other = 0; other < problem_.jobs.size(); ++other) {
      const bool has = std::find(set.begin(), set.end(), other) != set.end();
      if (!has && all_.most[other] > 0 && job(other).gpus <= room) return;
    }
    std::vector<LinearProgram::Term> terms = {{rounds_row_, 1}};
    for (const std::size_t of : set) terms.emplace_back(side_row_[of], -1);
    program_.add_column(LinearProgram::kUnbounded, 0, terms);
  }

  [[nodiscard]] bool keeps_least(const WindowPlan& plan) const {
    std::vector<int> rounds(all_.least.size(), 0);
    for (const auto& round : plan.run) {
      for (const int j : round) ++rounds[static_cast<std::size_t>(j)];
    }
    return std::equal(rounds.begin(), rounds.end(), all_.least.begin(), std::greater_equal<>());
  }

  // False: nothing in it can be better than the best so far, or its best plan is now known.
  bool look_into(Box& box) {
    for (std::size_t j = 0; j < box.least.size(); ++j) {
      if (box.least[j] > box.most[j]) return false;
      program_.set_row_lower(least_row_[j], box.least[j]);
      for (int n = 0; n < all_.most[j]; ++n)
        program_.set_column_upper(first_[j] + n, n < box.most[j] ? 1 : 0);
    }
    if (!program_.maximise()) return false;
    box.bound = std::min(box.bound, program_.objective() + fixed_);
    if (!better(box.bound)) return false;
    box.wanted.assign(box.least.size(), 0);
    std::vector<int> whole;
    double off = 0;
    for (std::size_t j = 0; j < box.least.size(); ++j) {
      for (int n = 0; n < all_.most[j]; ++n) box.wanted[j] += program_.value(first_[j] + n);
      whole.push_back(static_cast<int>(std::lround(box.wanted[j])));
      off = std::max(off, std::abs(box.wanted[j] - whole.back()));
    }
    return off > kWhole || !take(whole, box.bound);
  }

  // Around what the relaxation wants of one job: of the one with the largest fraction, else of the
  // first that has a choice. The box that is looked into first comes last.
  static void split(const Box& box, std::vector<Box>& boxes) {
    std::size_t at = box.least.size();
    double farthest = -1;
    for (std::size_t j = 0; j < box.least.size(); ++j) {
      const double off = std::abs(box.wanted[j] - std::round(box.wanted[j]));
      if (box.least[j] == box.most[j] || off <= farthest) continue;
      farthest = off;
      at = j;
    }
    if (at == box.least.size()) return;
    const bool whole = farthest <= kWhole;
    const int near = static_cast<int>(std::lround(box.wanted[at]));
    const int down = whole ? near - 1 : static_cast<int>(std::floor(box.wanted[at]));
    Box below = box, above = box;
    below.most[at] = down;
    above.least[at] = whole ? near + 1 : down + 1;
    Box same = box;
    same.least[at] = same.most[at] = near;
    const bool up = near > down;
    boxes.push_back(up ? below : above);
    boxes.push_back(up ? above : below);
    if (whole) boxes.push_back(std::move(same));
  }

  // Whether it is known now how good a plan with these rounds is, or that nobody knows.
  bool take(const std::vector<int>& rounds, double bound) {
    Packing packing{{}, rounds, std::vector<int>(static_cast<std::size_t>(problem_.rounds)), {}};
    for (std::size_t j = 0; j < rounds.size(); ++j) packing.order.push_back(j);
    std::stable_sort(packing.order.begin(), packing.order.end(), [&](std::size_t a, std::size_t b) {
      return std::pair(job(a).gpus, rounds[a]) > std::pair(job(b).gpus, rounds[b]);
    });
    std::fill(packing.room.begin(), packing.room.end(), problem_.gpus);
    packing.run.resize(packing.room.size());
    if (!pack_job(packing, 0)) {
      if (packing.steps > 0) return false;  // they do not fit side by side; others may
      missed_ = std::max(missed_, bound);
      return true;
    }
    const double worth = window_worth(problem_, rounds);
    if (best_.feasible && worth <= best_.worth) return true;
    for (auto& round : packing.run) std::sort(round.begin(), round.end());
    best_ = {true, std::move(packing.run), worth, 0};
    return true;
  }

  struct Packing {
    std::vector<std::size_t> order;  // jobs: most GPUs first, then most rounds
    const std::vector<int>& rounds;  // by job
    std::vector<int> room;           // by round
    std::vector<std::vector<int>> run;
    int steps = kPackingSteps;
  };

  // Places the jobs from the i-th of the order on.
  [[nodiscard]] bool pack_job(Packing& packing, std::size_t i) const {
    if (i == packing.order.size()) return true;
    std::vector<std::size_t> rounds(packing.room.size());  // those with most room first
    std::iota(rounds.begin(), rounds.end(), std::size_t{0});
    std::stable_sort(rounds.begin(), rounds.end(), [&](std::size_t a, std::size_t b) {
      return std::tie(packing.room[b], packing.run[a]) < std::tie(packing.room[a], packing.run[b]);
    });
    return pack_rounds(packing, i, rounds, packing.rounds[packing.order[i]]);
  }

  // Places so many more rounds of the i-th job in these. Of rounds with the same jobs it tries the
  // first.
  [[nodiscard]] bool pack_rounds(Packing& packing, std::size_t i,
                                 std::span<const std::size_t> rounds, int more) const {
    if (more == 0) return pack_job(packing, i + 1);
    if (packing.steps-- <= 0) return false;
    const std::size_t j = packing.order[i];
    for (std::size_t at = 0; at + static_cast<std::size_t>(more) <= rounds.size(); ++at) {
      const std::size_t r = rounds[at];
      if (packing.room[r] < job(j).gpus) return false;
      if (at > 0 && packing.run[r] == packing.run[rounds[at - 1]]) continue;
      packing.room[r] -= job(j).gpus;
      packing.run[r].push_back(static_cast<int>(j));
      if (pack_rounds(packing, i, rounds.subspan(at + 1), more - 1)) return true;
      packing.run[r].pop_back();
      packing.room[r] += job(j).gpus;
    }
    return false;
  }

  const WindowProblem& problem_;
  int relaxations_;
  LinearProgram program_;
  Box all_;
  std::vector<int> least_row_, side_row_, left_row_;  // by job
  int rounds_row_ = 0;
  std::vector<int> first_;  // by job: the column of its first round
  double fixed_ = 0;        // the utility of what is done
  WindowPlan best_;
  double missed_ = -LinearProgram::kUnbounded;  // the best bound of what was not looked into
};

}  // namespace

double share_utility(double share) {
  const double at = std::clamp(share, 0.0, 1.0) * kSegments;
  const int segment = std::min(static_cast<int>(at), kSegments - 1);
  return utility_at(segment) + slope_of(segment) / kSegments * (at - segment);
}

double window_worth(const WindowProblem& problem, const std::vector<int>& rounds) {
  double utility = 0;
  double longest = 0;
  for (std::size_t j = 0; j < problem.jobs.size(); ++j) {
    const WindowJob& job = problem.jobs[j];
    const double more = std::min(rounds[j] * problem.round_s, job.left_s);
    const double total = job.done_s + job.left_s;
    utility += job.weight * share_utility(total > 0 ? (job.done_s + more) / total : 1);
    longest = std::max(longest, job.left_s - more);
  }
  return scale_of(problem) * utility - problem.k * longest;
}

WindowPlan plan_window(const WindowProblem& problem) { return Window(problem).run(); }

WindowPlan exact_window(const WindowProblem& problem, int relaxations) {
  return ExactWindow(problem, relaxations).run();
}

}  // namespace rubato::policy
