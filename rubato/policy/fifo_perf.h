// FIFO that looks at speeds, a baseline of Gavel (Narayanan et al., OSDI'20): all jobs are assigned
// anew, in order of submission, each to the GPU type with room on which it is fastest (ties: the
// type named first). The head of the line blocks. A job may so move to a faster type when GPUs
// become free there.
//
// As in the published code this is done in rounds (rounds.h), with shares of 1 and 0, so who comes
// or goes is noticed only at the next solve. `round=0` assigns at every event instead, which is the
// better scheduler.
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

}  // namespace rubato::policy
