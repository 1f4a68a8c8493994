// Simulated searches for hyper-parameters: when trials finish a stage, what they report, and who is
// stopped, held or released (model/search.h).
//
// Traces have no metrics, so each trial gets a loss. It is a curve of the form that Optimus fits,
//   l(x) = 1/(b0 x + b1) + b2  after the share x of its work, l(0) = 1,
// with b2 in 0.05..0.4 and b0/b1 in 5..50 (log-uniform), drawn by seed and by the number of the
// job, and noise of up to 1% on what it reports at the end of a stage. Curves cross, so the trial
// that is best in the end may be stopped early: `regret` says how much is lost by that. The lowest
// is best.
//
// A stage is complete when no trial can finish it any more. Its completion time counts from the
// completion of the stage before it, or from the first submission of the search.
//
// Deterministic. This is part of the simulator's truth, so policies cannot include it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "rubato/base/indexed_heap.h"
#include "rubato/core/event.h"
#include "rubato/sim/workload.h"

namespace rubato::sim {

struct SearchFigures {
  std::size_t searches = 0;           // with at least one trial that completed
  std::size_t stopped = 0;            // trials
  std::optional<double> avg_s;        // from the first submission to the last end of a trial
  std::optional<double> avg_stage_s;  // completion time of a stage
  // Final loss of the best trial that completed, less that of the best of all; the mean.
  std::optional<double> regret;
};

class Searches {
 public:
  // `stopping`: false lets every trial run to its end. Stages are still counted.
  Searches(const Workload& workload, std::uint64_t seed, bool stopping);

  void submitted(Time now, JobId job);
  void runs(JobId job, const Progress& progress);
  void rests(JobId job);
  // It has finished its work, or it was rejected.
  void finished(Time now, JobId job, bool completed);

  // When the next trial finishes a stage if nothing changes.
  [[nodiscard]] std::optional<Time> next_fact() const;
  // Appends what follows from the stages that are finished by now: Cancelled, HoldChanged.
  void collect(Time now, std::vector<Event>& facts);

  // Work that is left when the job's present stage ends; 0 if it is in none.
  [[nodiscard]] Work left_after_stage(JobId job) const;

  [[nodiscard]] SearchFigures figures() const;

 private:
  struct TrialState {
    TrialResults results;
    bool submitted = false;
    bool held = false;
    bool finished_now = false;  // a stage, since the last judgement
    bool completed = false;
    double final_loss = 0;
  };
  struct SearchState {
    std::vector<JobId> trials;
    Time begun = kStart;
    Time ended = kStart;
    Time stage_began = kStart;
    int stage = 1;  // that is not complete
    std::size_t submitted = 0;
    bool unjudged = false;
  };

  [[nodiscard]] const SimTrial& trial(JobId job) const {
    return *workload_.jobs[job.index()].trial;
  }
  [[nodiscard]] double loss(JobId job, double share, int stage) const;
  [[nodiscard]] double stage_share(JobId job) const;
  void finish_stage(JobId job);
  void judge(Time now, SearchState& search, std::vector<Event>& facts);
  void complete_stages(Time now, SearchState& search);

  const Workload& workload_;
  std::uint64_t seed_;
  bool stopping_;
  std::vector<TrialState> trials_;  // by job; used for trials alone
  std::vector<Progress> progress_;  // by job
  std::vector<SearchState> searches_;
  IndexedHeap<Time> stage_ends_;  // of running trials, by job
  std::size_t stopped_ = 0;
  std::size_t stages_ = 0;
  double stage_seconds_ = 0;
};

}  // namespace rubato::sim
