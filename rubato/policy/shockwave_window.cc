#include "rubato/policy/shockwave_window.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <tuple>
#include <utility>

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

// Branch and bound. A box is a range of rounds for each job.
class ExactWindow {
 public:
  explicit ExactWindow(const WindowProblem& problem) : problem_(problem) {
    const double room = 1.0 * problem.gpus * problem.rounds;
    const int gpus_row = program_.add_row(-LinearProgram::kUnbounded, room);
    std::vector<int> uses_row, left_row;
    for (const WindowJob& job : problem.jobs) {
      least_row_.push_back(program_.add_row(0, LinearProgram::kUnbounded));
      uses_row.push_back(program_.add_row(-LinearProgram::kUnbounded, 0));
      left_row.push_back(program_.add_row(std::max(job.left_s, 0.0), LinearProgram::kUnbounded));
    }
    for (std::size_t j = 0; j < problem.jobs.size(); ++j) {
      const WindowJob& job = problem.jobs[j];
      const std::vector<LinearProgram::Term> rounds = {
          {gpus_row, job.gpus}, {least_row_[j], 1}, {uses_row[j], -1}};
      rounds_.push_back(program_.add_column(problem.rounds, 0, rounds));
      const double total = job.done_s + job.left_s;
      fixed_ += scale_of(problem) * job.weight * share_utility(total > 0 ? job.done_s / total : 1);
      for (int segment = 0; segment < kSegments && total > 0; ++segment) {
        const double from = std::max(1.0 * segment / kSegments, job.done_s / total);
        const double to = (segment + 1.0) / kSegments;
        if (to <= from) continue;
        const std::vector<LinearProgram::Term> terms = {{uses_row[j], total / problem.round_s},
                                                        {left_row[j], total}};
        program_.add_column(to - from, scale_of(problem) * job.weight * slope_of(segment), terms);
      }
    }
    std::vector<LinearProgram::Term> terms;
    for (const int row : left_row) terms.emplace_back(row, 1);
    program_.add_column(LinearProgram::kUnbounded, -problem.k, terms);
  }

  WindowPlan run(int relaxations) {
    std::vector<Box> boxes = {all()};
    double missed = -LinearProgram::kUnbounded;  // the best bound of boxes that are left
    while (!boxes.empty()) {
      Box box = std::move(boxes.back());
      boxes.pop_back();
      if (best_.feasible && box.bound <= best_.worth + kHair) continue;
      if (relaxations-- <= 0) {
        missed = std::max(missed, box.bound);
        continue;
      }
      if (look_into(box)) split(box, boxes);
    }
    best_.bound = std::max(missed, best_.worth);
    return best_;
  }

 private:
  struct Box {
    std::vector<int> least, most;
    double bound = LinearProgram::kUnbounded;
    std::vector<double> wanted;
  };

  [[nodiscard]] Box all() const {
    Box box;
    for (const WindowJob& job : problem_.jobs) {
      box.least.push_back(static_cast<int>(std::ceil(std::min(job.least_rounds, 1e6) - kHair)));
      box.most.push_back(most_rounds(problem_, job));
    }
    return box;
  }

  // False: nothing in it can be better than the best so far, or its best plan is now known.
  bool look_into(Box& box) {
    for (std::size_t j = 0; j < rounds_.size(); ++j) {
      if (box.least[j] > box.most[j]) return false;
      program_.set_row_lower(least_row_[j], box.least[j]);
      program_.set_column_upper(rounds_[j], box.most[j]);
    }
    if (!program_.maximise()) return false;
    box.bound = program_.objective() + fixed_;
    if (best_.feasible && box.bound <= best_.worth + kHair) return false;
    std::vector<int> whole;
    box.wanted.clear();
    for (const int column : rounds_) {
      box.wanted.push_back(program_.value(column));
      whole.push_back(static_cast<int>(std::lround(box.wanted.back())));
    }
    if (fraction(box) > 1e-6) return true;
    auto run = packed_exactly(whole);
    if (!run) return true;  // these rounds do not fit side by side; another plan may
    take(std::move(*run), window_worth(problem_, whole));
    return false;
  }

  [[nodiscard]] static double fraction(const Box& box) {
    double most = 0;
    for (const double wanted : box.wanted)
      most = std::max(most, std::abs(wanted - std::round(wanted)));
    return most;
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
    const bool whole = farthest <= 1e-6;
    const int down =
        static_cast<int>(whole ? std::lround(box.wanted[at]) - 1 : std::floor(box.wanted[at]));
    Box below = box, above = box;
    below.most[at] = down;
    above.least[at] = down + 1;
    if (whole) {  // these rounds, fewer and more
      Box same = box;
      same.least[at] = same.most[at] = down + 1;
      above.least[at] = down + 2;
      boxes.push_back(std::move(same));
    }
    boxes.push_back(std::move(below));
    boxes.push_back(std::move(above));
  }

  void take(std::vector<std::vector<int>> run, double worth) {
    if (best_.feasible && worth <= best_.worth) return;
    best_.feasible = true;
    best_.run = std::move(run);
    best_.worth = worth;
  }

  // Whether every job can have so many rounds, by trying everything, the widest jobs first.
  [[nodiscard]] std::optional<std::vector<std::vector<int>>> packed_exactly(
      const std::vector<int>& rounds) const {
    Packing packing{{},
                    std::vector<int>(static_cast<std::size_t>(problem_.rounds), problem_.gpus),
                    std::vector<std::vector<int>>(static_cast<std::size_t>(problem_.rounds))};
    for (std::size_t j = 0; j < rounds.size(); ++j) {
      if (rounds[j] > 0) packing.order.emplace_back(static_cast<int>(j), rounds[j]);
    }
    std::stable_sort(packing.order.begin(), packing.order.end(), [&](const auto& a, const auto& b) {
      return gpus_of_job(a.first) > gpus_of_job(b.first);
    });
    if (!pack_next(packing, 0, 0, 0)) return std::nullopt;
    for (auto& round : packing.run) std::sort(round.begin(), round.end());
    return packing.run;
  }

  struct Packing {
    std::vector<std::pair<int, int>> order;  // job and its rounds
    std::vector<int> room;                   // by round
    std::vector<std::vector<int>> run;
  };
  [[nodiscard]] int gpus_of_job(int job) const {
    return problem_.jobs[static_cast<std::size_t>(job)].gpus;
  }
  // Places the job `at` of the order from this round on; it has `placed` rounds so far. Of rounds
  // that look alike, only the first is tried.
  [[nodiscard]] bool pack_next(Packing& packing, std::size_t at, std::size_t round,
                               int placed) const {
    if (at == packing.order.size()) return true;
    const auto [job, rounds] = packing.order[at];
    if (placed == rounds) return pack_next(packing, at + 1, 0, 0);
    for (std::size_t r = round; r < packing.room.size(); ++r) {
      const bool alike = r > round && packing.run[r] == packing.run[r - 1];
      if (alike || packing.room[r] < gpus_of_job(job)) continue;
      packing.room[r] -= gpus_of_job(job);
      packing.run[r].push_back(job);
      if (pack_next(packing, at, r + 1, placed + 1)) return true;
      packing.run[r].pop_back();
      packing.room[r] += gpus_of_job(job);
    }
    return false;
  }

  const WindowProblem& problem_;
  LinearProgram program_;
  std::vector<int> least_row_, rounds_;  // by job
  double fixed_ = 0;
  WindowPlan best_;
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
  return ExactWindow(problem).run(relaxations);
}

}  // namespace rubato::policy
