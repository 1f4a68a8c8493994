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
#include "rubato/model/batch_forecast.h"
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

// A job that changes its batch size by itself: how it trains from then on.
struct BatchPhase {
  Work from = 0;         // of its work
  std::size_t mode = 0;  // of BatchPhases::modes
};
struct BatchPhases {
  std::vector<BatchSpeed> modes;   // one for each batch size that it uses
  std::vector<BatchPhase> phases;  // ascending; the first from 0
  Work work = 0;                   // in steps with the first batch
  Work epoch = 0;

  [[nodiscard]] const BatchSpeed& speed(std::size_t phase) const {
    return modes[phases[phase].mode];
  }
  // The work that is left when the phase ends.
  [[nodiscard]] Work left_after(std::size_t phase) const {
    return phase + 1 < phases.size() ? work - phases[phase + 1].from : 0;
  }
  // What policies may know in this phase.
  [[nodiscard]] std::shared_ptr<const BatchForecast> forecast(std::size_t phase) const;
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
  // With --adapt-batches: how its speed changes. `speed` is then its mean over the whole job.
  std::shared_ptr<const BatchPhases> phases = nullptr;
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
  bool adapt_batches = false;  // --adapt-batches: as the trace says (sim/batch_schedule.h)
  bool assign_curves = false;  // give jobs without a curve one from the catalogue, by seed
  std::uint64_t seed = 1;
};

[[nodiscard]] Result<Workload> make_workload(const Trace& trace, const WorkloadOptions& options);

}  // namespace rubato::sim
