#include "rubato/policy/shockwave_window.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "rubato/math/linear_program.h"

namespace rubato::policy {
namespace {

constexpr int kSegments = 5;
constexpr double kAtNothing = 0.01;  // log is taken here instead of at 0
constexpr double kHair = 1e-9;

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

}  // namespace rubato::policy
