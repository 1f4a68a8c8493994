// FIFO that considers speeds, a baseline of Gavel (Narayanan et al., OSDI'20). All jobs are
// assigned again, in order of submission, each to the GPU type with room on which it is fastest (on
// a tie, the type named first). The first job that does not fit blocks the others. So a job may
// move to a faster type when GPUs become free there.
//
// As in the published code, this happens in rounds (rounds.h), with shares of 1 and 0. So arrivals
// and ends are noticed only at the next solve. `round=0` assigns at every event instead, which is
// the better scheduler.
//
// Knows: GPUs asked for, speed on each type.
#pragma once

#include "rubato/policy/policy.h"
#include "rubato/policy/rounds.h"

namespace rubato::policy {

struct FifoPerf {
  struct Config {
    bool in_rounds = true;
    Rounds::Settings rounds;
  };
  struct State {
    Rounds rounds;
    [[nodiscard]] Json save() const { return rounds.save(); }
    [[nodiscard]] static Result<State> load(const Json& json);
  };

  Config config;

  [[nodiscard]] Decision decide(const Snapshot& snapshot, State& state) const;
  [[nodiscard]] int least_gpus(const JobSpec& spec, const SpeedModel& /*speed*/) const {
    return spec.requested;
  }
  [[nodiscard]] bool keeps_unpreemptible() const { return config.in_rounds; }
};

[[nodiscard]] std::vector<PolicyEntry> fifo_perf_rows();

}  // namespace rubato::policy
