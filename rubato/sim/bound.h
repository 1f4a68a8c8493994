// The limit: lower bounds on the average JCT that any schedule of a workload on a cluster can have,
// whatever its policy knows. Three bounds; the largest is the one to compare with.
//
//   alone   every job by itself on the count where it is fastest
//   srpt    every job reduced to the fewest GPU-seconds it can be done with, all of them on one
//           machine that does as many GPU-seconds a second as the cluster has GPUs; shortest
//           remaining processing time first is optimal there
//   priced  prices for GPUs, each job choosing its cheapest completion (below)
//
// What all three assume: a job is never faster than SpeedModel::on() says for its count, progresses
// only on a legal count (or the one it asks for), not before its submission, and not during the
// restart cost of its first start. Faults, later restarts and placement can only make it worse.
//
// Why any prices give a bound. Let a GPU-second at time t cost c(t) >= 0, and take any schedule in
// which job j holds k_j(t) GPUs and ends after F_j seconds. At no time are more than K GPUs held,
// so
//
//   sum F_j  >=  sum F_j + integral c(t) (sum k_j(t) - K) dt
//            =   sum (F_j + what job j pays)  -  K integral c(t) dt
//            >=  sum (the least F + pay of job j on its own)  -  K integral c(t) dt.
//
// The least of one job is bounded from below in turn. Let p be the concave hull of its speed over
// the GPU count, L its work. If it ends at C, then for every m >= 0 its pay, as it must do L work,
// is at least  m L - integral_submission^C h(c(t), m) dt,  h(c, m) = max_k (m p(k) - c k).  We
// take, for each period of constant price in which C may lie, the best m of a grid, and then the
// worst period: fewer grid points or coarser periods make the bound weaker, never wrong. Within a
// period the sum is linear in C, so its least value is at one of the ends.
//
// The prices are found by subgradient steps: dearer where the jobs want more GPUs than there are.
// Pure, one thread, deterministic.
#pragma once

#include <cstddef>
#include <vector>

#include "rubato/core/cluster.h"
#include "rubato/sim/workload.h"

namespace rubato::sim {

struct Bound {
  std::size_t jobs = 0;  // that the cluster can run at all; the others are not counted
  double alone_s = 0;
  double srpt_s = 0;
  double priced_s = 0;

  // No schedule has a smaller average JCT. A hair is taken off for the rounding of the sums.
  [[nodiscard]] double avg_jct_s() const;
};

struct BoundOptions {
  int steps = 300;     // subgradient steps
  int periods = 1000;  // of constant price
};

[[nodiscard]] Bound lower_bound(const Workload& workload, const Cluster& cluster,
                                const BoundOptions& options = {});

// The bound that some prices give: `gpu_second[i]` from start_s[i] to start_s[i + 1], nothing after
// the last. Seconds from the first submission, ascending from 0; one price less than starts.
struct Prices {
  std::vector<double> start_s;
  std::vector<double> gpu_second;
};
[[nodiscard]] double priced_bound(const Workload& workload, const Cluster& cluster,
                                  const Prices& prices);

}  // namespace rubato::sim
