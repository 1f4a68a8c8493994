// How many rounds of a window each job should run (Shockwave, Zheng et al., NSDI'23): the
// optimisation behind policy/shockwave.h, without anything of a scheduler.
//
// A job that runs in n rounds of the window has the share s = (done + n x round) / total of its
// work behind it at the end. The plan maximises
//
//   sum over jobs of weight x log(s) / (jobs x rounds)  -  k x most seconds that a job has left
//
// where log is linear between s = 0, 0.2, 0.4, ..., 1. In every round the jobs fit into the GPUs. A
// job may have a least number of rounds, so that it is not late.
//
// The published program has a variable for each job and round. But rounds are alike, so only the
// number of a job's rounds counts, and the relaxation is a small linear program
// (math/linear_program.h). Its solution is rounded down, and what is left goes to the jobs that
// gain most by one more round. Then the rounds are packed: in each, first the jobs that need all
// rounds that are left, then those of the largest weight, then those that need fewest rounds. So
// the plan may be worse than the best one; `bound` says by how much at most.
//
// exact_window() is the oracle that tells how good this is: branch and bound on the numbers of
// rounds. Its relaxation knows which jobs fit side by side, and each plan that looks best is packed
// by trying everything. (The published code leaves all of it to a solver of mixed-integer programs
// with a time limit.) Its effort is limited in relaxations, never in seconds. It is our own, and
// not CBC. That suffices, because a plan is either proven the best or the bound stands for the best
// one, and on small windows a test finds the same by trying everything.
//
// Pure.
#pragma once

#include <vector>

#include "rubato/base/namespaces.h"

namespace rubato::policy {

struct WindowJob {
  int gpus = 1;
  double done_s = 0;  // seconds of work, at its speed on these GPUs
  double left_s = 0;
  double weight = 1;        // of its utility
  double least_rounds = 0;  // that it must run; not more than it can use
};

struct WindowProblem {
  int gpus = 0;
  int rounds = 20;
  double round_s = 120;
  double k = 1e-3;
  std::vector<WindowJob> jobs;
};

struct WindowPlan {
  bool feasible = false;              // whether least rounds can be kept, as far as one can see
  std::vector<std::vector<int>> run;  // by round: jobs, ascending
  double worth = 0;                   // the objective of the plan
  double bound = 0;                   // no plan is worth more
};

// log(s), linear between the points; log(0.01) at 0.
[[nodiscard]] double share_utility(double share);
// The objective if each job runs in so many rounds.
[[nodiscard]] double window_worth(const WindowProblem& problem, const std::vector<int>& rounds);

[[nodiscard]] WindowPlan plan_window(const WindowProblem& problem);

// The best of all plans, if worth == bound afterwards; else the relaxations were too few. Not
// feasible: no plan keeps the least rounds, or none was found. For about a dozen jobs: it lists the
// sets of jobs that fit side by side.
[[nodiscard]] WindowPlan exact_window(const WindowProblem& problem, int relaxations);

}  // namespace rubato::policy
