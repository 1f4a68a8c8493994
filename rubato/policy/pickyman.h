// PickyMan (Chen et al., IPCCC'22): a waiting job takes the GPUs of those running jobs that lose
// least by it.
//
// Sure: suspending a job finishes its epoch, and resuming it reloads model and data; running times
// are predicted; the victims come from an ordered division of the running jobs, by a greedy choice.
// Our reading is the rest:
//   loss     rest of the epoch + restart cost. Rubato's jobs stop after any step, so by default
//            there is no epoch to finish (epochs=0). With epochs=N, each job has N equal epochs.
//   order    waiting jobs, least remaining time first. One that fits starts.
//   victims  of the others, a job takes the running jobs with the least loss per GPU until it fits.
//            Only jobs with more time left than the newcomer's time and their own loss are victims,
//            so that each preemption is worth its loss. Victims that turn out not to be needed
//            stay.
// The choice of victims is in victims.h, because it is also a key of other preemptive policies.
//
// Deviates: remaining times are those of the job's speed and work, instead of the paper's
// prediction from storage traffic.
//
// Knows: GPUs asked for, work left, speed, restart cost. A cluster of one GPU type. Pure: decide()
// is const, and it remembers nothing.
#pragma once

#include <vector>

#include "rubato/policy/policy.h"

namespace rubato::policy {

struct PickyMan {
  struct Config {
    int epochs = 0;  // of each job; 0: a job stops at once
  };
  struct State {
    [[nodiscard]] Json save() const { return Json::object(); }
    [[nodiscard]] static Result<State> load(const Json& json);
  };

  Config config;

  [[nodiscard]] Decision decide(const Snapshot& snapshot, State& state) const;
  [[nodiscard]] int least_gpus(const JobSpec& spec, const SpeedModel& /*speed*/) const {
    return spec.requested;
  }
  // What stopping the job now would cost, in microseconds.
  [[nodiscard]] double loss_micros(const JobView& job, Time now) const;
};

[[nodiscard]] std::vector<PolicyEntry> pickyman_rows();

}  // namespace rubato::policy
