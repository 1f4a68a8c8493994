// The best that the jobs of a workload can do on a cluster: the common ground of all limits (the
// bounds on completion times in bound.h and on deadlines in deadline_bound.h).
//
// A job is at best so fast on k GPUs of a type, whatever the nodes, and it has ended when the
// integral of its speed is its work. For most jobs that is their SpeedModel. A job with a profile
// (profiles.h) trains by epochs. Let epoch e have the work w_e, and let r_e(k) be the most progress
// a second in it on k GPUs of a type, over all placements on the cluster's nodes and all batches
// within the limits (the owner's batch alone, if that is fixed). With any numbers n_e > 0, the same
// for all types, we may take
//
//   p(k) = max over e of r_e(k) / n_e     as its speed,
//   L    = sum over e of w_e / n_e        as its work,
//
// because any schedule does at least L work at these speeds: during epoch e it does
//
//   w_e  =  integral of the rate  <=  integral of r_e(k(t)),  so
//   w_e / n_e  <=  integral over epoch e of r_e(k(t)) / n_e  <=  integral over epoch e of p(k(t)),
//
// and the epochs follow each other. With n_e = r_e(1) speeds are those over one GPU. We take
// n_e = max over k of r_e(k) / (1 + c k): then 1 / n_e is what a unit of the epoch's work costs at
// least, if a second of the job's time costs 1 and a GPU-second c. Where GPUs really cost about c,
// nothing is lost by treating the epochs alike; at c = 0 the time alone is exact, at a very large c
// the fewest GPU-seconds. Limits are found for a few c, and the best one counts. `alone_s`, the
// least time by itself, is exact in any case: the sum of w_e / max over k of r_e(k).
//
// Two jobs that share k GPUs hold k/2 each. So held GPUs never add up to more than there are, and
// with `sharing` every job has the choices (k/2 GPUs, its speed beside the best partner) as well.
//
// Faults, later restarts, interference and bad placements only make jobs slower than this. Times of
// the simulation are rounded to microseconds: `hair_s` is the most that a job can win by it.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <vector>

#include "rubato/core/cluster.h"
#include "rubato/sim/workload.h"

namespace rubato::sim {

// A corner of the concave hull of speed over GPUs.
struct Corner {
  double gpus = 0;
  double speed = 0;
  friend auto operator<=>(const Corner&, const Corner&) = default;
};
using Hull = std::vector<Corner>;  // ascending, without the origin; empty: cannot run

// What a job can choose from, by GPU type. The fastest speed of all is 1.
struct Menu {
  std::vector<Hull> hulls;
  std::vector<double> fewest;  // GPUs that it holds at least, where it can run
  friend auto operator<=>(const Menu&, const Menu&) = default;
};

// Times in seconds from the first submission.
struct BestCase {
  std::size_t job = 0;  // index in the workload
  double submit_s = 0;
  double restart_s = 0;  // no progress for so long after the first start
  double work_s = 0;     // at speed 1
  double alone_s = 0;    // least time it makes progress for, by itself
  double hair_s = 0;
  std::size_t menu = 0;
};

struct BestCaseOptions {
  bool sharing = false;  // two jobs may share GPUs
  double gpu_price = 0;  // c, for jobs with a profile
};

// The c worth trying: one, if no job has a profile.
[[nodiscard]] std::vector<double> gpu_prices_for(const Workload& workload);

class BestCases {
 public:
  explicit BestCases(const Cluster& cluster, double gpu_price = 0)
      : cluster_(cluster), gpu_price_(gpu_price) {}

  // Of every job that the cluster can run at all.
  [[nodiscard]] static BestCases of(const Workload& workload, const Cluster& cluster,
                                    const BestCaseOptions& options = {});

  // Nothing if the cluster can never run it.
  std::optional<BestCase> best_case(const SimJob& job);

  [[nodiscard]] const std::vector<BestCase>& jobs() const { return jobs_; }  // by submission
  [[nodiscard]] const std::vector<Menu>& menus() const { return menus_; }
  [[nodiscard]] std::vector<double> gpus() const;  // by type

 private:
  // Speeds, in any unit, that a menu is made of, and the work in this unit if that is not the
  // job's.
  struct Speeds;
  struct Shaped {
    WorkRate best = 0;  // 0: it can never run
    std::optional<Work> work;
    std::optional<double> alone_s;
    std::size_t menu = 0;
  };
  using Key =
      std::tuple<const SpeedModel*, const Application*, int, int, int, std::vector<int>, int>;

  const Shaped& shape(const SimJob& job);
  Shaped make_shape(const SimJob& job);
  [[nodiscard]] std::vector<int> counts(const JobSpec& spec) const;
  [[nodiscard]] Speeds modelled(const SimJob& job, const std::vector<int>& counts) const;
  [[nodiscard]] Speeds profiled(const SimJob& job, const std::vector<int>& counts) const;
  std::size_t menu_of(const Speeds& speeds, WorkRate best);

  const Cluster& cluster_;
  double gpu_price_;
  std::vector<std::shared_ptr<const SpeedModel>> partners_;  // one of each kind, if jobs may share
  std::vector<BestCase> jobs_;
  std::vector<Menu> menus_;
  std::map<Key, Shaped> shaped_;
  std::map<Menu, std::size_t> index_of_;
};

}  // namespace rubato::sim
