// What policies know about the simulated jobs, and when.
//
//   oracle    the true speed of a job at every count, from its submission on
//   measured  CoDDL (Hwang et al., NSDI'21): overestimate first, correct later. When a job is
//             submitted, only the speed at the count asked for is known, from its owner. Perfect
//             scaling is assumed from there. When the job has run on some count for the measuring
//             time after its restart, the true speed there is known, and the loop gets an
//             Estimated. Between known counts the speed is interpolated; above the largest, perfect
//             scaling is assumed. Policies that should also try smaller counts are wrapped
//             (policy/measuring.h).
//
// Policies that learn (Policy::learns, for example Optimus) get the same information as in
// `measured`, and also the losses that a job has shown. Traces have no losses, so each job gets a
// curve of the form that Optimus fits,
//   l(x) = 1/(b0 x + b1) + b2  after the share x of its work, l(0) = 1,
// with b2 in 0.05..0.4, b0/b1 in 5..50 (log-uniform) and 20 to 200 epochs, drawn by seed, and noise
// of up to 1% on every point. The owner's threshold is the gain of the last epoch without noise. So
// the owner would stop exactly at the work of the trace. Losses are reported after the measuring
// time, and then whenever the time on the same GPUs has grown by half.
//
// Jobs with a profile (sim/profiles.h) are not handled here: their own agent measures. Nor are jobs
// that change their batch size by themselves: policies are told at each change.
//
// Deterministic. This is part of the simulator's truth, so policies cannot include it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "rubato/base/indexed_heap.h"
#include "rubato/base/result.h"
#include "rubato/core/event.h"
#include "rubato/sim/workload.h"

namespace rubato::sim {

enum class Knowing { oracle, measured };

[[nodiscard]] Result<Knowing> parse_knowing(std::string_view name);

struct KnowledgeOptions {
  Knowing knowing = Knowing::oracle;
  Duration measuring_time = from_seconds(20);
  std::uint64_t seed = 1;  // for the loss curves
};

class Knowledge {
 public:
  Knowledge(const Workload& workload, const KnowledgeOptions& options, bool losses);

  // What is known about a job's speed at its submission.
  [[nodiscard]] std::shared_ptr<const SpeedModel> first_estimate(JobId job) const;

  // The job runs on this many GPUs, or will after its restart; 0: it no longer runs.
  void runs(JobId job, int gpus, const Progress& progress);
  void rests(JobId job);

  // When something new will be known if nothing changes, and what is known now.
  [[nodiscard]] std::optional<Time> next_fact() const;
  void collect(Time now, std::vector<Event>& facts);

 private:
  struct Seen {
    std::map<int, WorkRate> rates;  // by GPUs
    std::shared_ptr<const SpeedModel> estimate;
    Progress progress;  // now
    int gpus = 0;
  };

  [[nodiscard]] bool estimates() const { return options_.knowing == Knowing::measured || losses_; }
  [[nodiscard]] std::shared_ptr<const SpeedModel> estimate(
      JobId job, const std::map<int, WorkRate>& rates) const;
  [[nodiscard]] std::shared_ptr<const ShownLosses> shown(JobId job, Work done) const;
  [[nodiscard]] bool rigid(JobId job) const;

  const Workload& workload_;
  KnowledgeOptions options_;
  bool losses_;
  std::map<JobId, Seen> seen_;
  IndexedHeap<Time> reports_;  // by job
};

}  // namespace rubato::sim
