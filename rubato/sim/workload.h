// A workload: the jobs of a trace, ready to run, with the truth about each.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rubato/base/result.h"
#include "rubato/core/cluster.h"
#include "rubato/core/job.h"
#include "rubato/sim/curves.h"
#include "rubato/sim/profiles.h"
#include "rubato/sim/throughputs.h"
#include "rubato/sim/trace.h"

namespace rubato::sim {

// A trial of a simulated search (sim/searches.h).
struct SimTrial {
  std::size_t search = 0;  // counted from 0
  SearchRule rule;
  double share = 0.1;  // length of the first stage, as a share of its work
  bool wait = true;
};

struct SimJob {
  std::shared_ptr<const JobSpec> spec;
  Time submit = kStart;
  Work work = 0;
  std::shared_ptr<const SpeedModel> speed;  // the truth
  // With --profiles: what the job trains. This is then the truth, and `speed` is only a summary.
  // Policies see what the simulated agent measures.
  std::shared_ptr<const Application> application = nullptr;
  std::optional<SimTrial> trial = std::nullopt;
};

struct Workload {
  std::string name;
  double origin_s = 0;       // the trace's time at kStart, the first submission
  std::vector<SimJob> jobs;  // in order of submission: JobId is the index
  std::vector<std::string> warnings;
  std::size_t searches = 0;  // for hyper-parameters, of which some jobs are trials
};

struct WorkloadOptions {
  std::optional<CurveBook> curves = std::nullopt;            // --curves: by model and batch size
  std::optional<ProfileBook> profiles = std::nullopt;        // --profiles: by model
  std::optional<ThroughputBook> throughputs = std::nullopt;  // --throughputs: by GPU type as well
  std::optional<double> restart_cost_s = std::nullopt;       // overrides the trace's own
  // Jobs without a deadline get one by seed: submission + factor x duration at the requested count.
  // The factor is uniform in this range.
  std::optional<std::pair<double, double>> tightness = std::nullopt;
  // Jobs with a deadline and without a utility get one by seed, as the evaluation of OASiS (Bao et
  // al., INFOCOM'18) draws them: the value is 1 to 100, and the target is the deadline. One job in
  // ten does not decay, 55% decay by 0.01 to 1 and 35% by 4 to 6 an eighth of the time to the
  // deadline. (There it is by slots, and targets are 1 to 15 of them.)
  bool utilities = false;
  // Of the jobs that the trace does not call opportunistic, this share is made so, by seed.
  double opportunistic = 0;
  bool assign_curves = false;  // give jobs without a curve one from the catalogue, by seed
  std::uint64_t seed = 1;
};

[[nodiscard]] Result<Workload> make_workload(const Trace& trace, const WorkloadOptions& options);

}  // namespace rubato::sim
