// The limit: lower bounds on the average JCT that any schedule of a workload on a cluster can have,
// whatever its policy knows. Three bounds; the largest is the one to compare with.
//
//   alone   every job by itself on the GPUs where it is fastest
//   srpt    every job reduced to the least it can be done with, all of them on one machine as large
//           as the cluster; shortest remaining processing time first is optimal there
//   priced  prices for GPUs, each job choosing its cheapest completion (below)
//
// What all three assume is said in best_case.h: a job's best speed p_t(k) on k GPUs of type t, its
// work L, and that it makes no progress before its submission nor during the restart cost of its
// first start. A schedule in which two jobs share GPUs may be better than these bounds unless they
// are made with `sharing`.
//
// Why any prices give a bound. Let a GPU-second of type t cost c_t(s) >= 0 at time s, and take any
// schedule in which job j holds k_j,t(s) GPUs of type t and ends after F_j seconds. At no time are
// more than K_t GPUs of a type held, so
//
//   sum F_j  >=  sum F_j + integral of sum_t c_t (sum_j k_j,t - K_t)
//            =   sum (F_j + what job j pays)  -  integral of sum_t K_t c_t
//            >=  sum (the least F + pay of job j on its own)  -  integral of sum_t K_t c_t.
//
// The least of one job is bounded from below in turn. A job is on one type at a time. If it ends
// at C, then for every m >= 0 its pay, as it must do L work, is at least
//
//   m L - integral from submission to C of h(c(s), m),    h(c, m) = max over t, k of m p_t(k) - c_t
//   k,
//
// because at every moment m times its speed minus its pay is at most h. We take, for each period of
// constant prices in which C may lie, the best m of a grid, and then the worst period: fewer grid
// points or coarser periods make the bound weaker, never wrong. Within a period the sum is linear
// in C, so its least value is at one of the ends.
//
// Why the one machine gives a bound. Let a GPU-second of type t be worth v_t > 0. A job takes at
// least the worth g_j = min over t, k of L v_t k / p_t(k) (and that of its first restart), and no
// more than sum_t v_t K_t is done a second. So the jobs, as pieces of work g_j on a machine of that
// speed, end no later there than here. Any worths will do; those of several types are searched for.
//
// The first prices are those of the one machine: with n jobs left on it, a second of its time costs
// n, one that is half done counting as half. A search (price_search.h) makes them better.
// Pure, one thread, deterministic.
#pragma once

#include <cstddef>

#include "rubato/core/cluster.h"
#include "rubato/sim/best_case.h"
#include "rubato/sim/price_search.h"
#include "rubato/sim/workload.h"

namespace rubato::sim {

struct Bound {
  std::size_t jobs = 0;  // that the cluster can run at all; the others are not counted
  double alone_s = 0;
  double srpt_s = 0;
  double priced_s = 0;
  double rounding_s = 0;  // what the jobs may win by the rounding of times, on average

  // No schedule has a smaller average JCT. A hair is taken off for the rounding of the sums.
  [[nodiscard]] double avg_jct_s() const;
};

struct BoundOptions {
  int steps = 300;       // of the search for prices
  int periods = 1000;    // of constant price
  bool sharing = false;  // also of schedules in which two jobs share GPUs
};

[[nodiscard]] Bound lower_bound(const Workload& workload, const Cluster& cluster,
                                const BoundOptions& options = {});

// The bound that some prices give.
[[nodiscard]] double priced_bound(const Workload& workload, const Cluster& cluster,
                                  const Prices& prices, const BestCaseOptions& best_case = {});

}  // namespace rubato::sim
