// The limit for deadlines: how many of them any schedule of a workload on a cluster can keep
// together, at most, whatever its policy knows and whatever becomes of the other jobs.
//
// A job that keeps its deadline does its work L between its submission (plus the restart cost of
// its first start) and its deadline, at speeds of at most p_t(k) on k GPUs of type t (best_case.h).
// Let jobs be divisible, half a job counting as half a deadline: that is a linear program, whose
// optimum no schedule exceeds.
//
// The proof needs no optimum. Let a GPU-second of type t cost c_t(s) >= 0 at time s, in deadlines,
// and let P_j be the least that job j can pay for being in time. Take any schedule; x_j is 1 for
// jobs that are in time and 0 for others, and never are more than K_t GPUs of a type held. So
//
//   sum x_j  <=  sum x_j + integral of sum_t c_t (K_t - GPUs held)
//            <=  integral of sum_t K_t c_t + sum x_j (1 - P_j)
//            <=  integral of sum_t K_t c_t + sum max(0, 1 - P_j).
//
// At prices that are constant in periods, P_j is exact: in each period the job goes up the concave
// hull of speed over pay, and takes the cheapest of all these steps until its work is done. The
// restart is paid at the cheapest price of its time. A period that lies partly outside the job's
// time counts with the part inside, so coarser periods make the limit weaker, never wrong.
//
// The best prices are the duals of the linear program. A search (price_search.h) comes near to
// them, where a simplex method would need a column for each job, period and GPU count. The answer
// is what the prices found prove, so it is never wrong; a test compares it with the program solved
// exactly.
//
// Pure, one thread, deterministic.
#pragma once

#include <cstddef>

#include "rubato/core/cluster.h"
#include "rubato/sim/best_case.h"
#include "rubato/sim/price_search.h"
#include "rubato/sim/workload.h"

namespace rubato::sim {

struct DeadlineBound {
  std::size_t total = 0;     // deadlines
  std::size_t feasible = 0;  // that a job alone on the cluster could keep
  double relaxed = 0;        // no schedule keeps more

  [[nodiscard]] std::size_t most() const;  // in whole deadlines
};

struct DeadlineOptions {
  int steps = 300;  // of the search for prices
  int periods = 400;
  bool sharing = false;  // also of schedules in which two jobs share GPUs
};

[[nodiscard]] DeadlineBound deadline_bound(const Workload& workload, const Cluster& cluster,
                                           const DeadlineOptions& options = {});

// What some prices prove, in deadlines a GPU-second.
[[nodiscard]] double priced_deadlines(const Workload& workload, const Cluster& cluster,
                                      const Prices& prices, const BestCaseOptions& best_case = {});

}  // namespace rubato::sim
