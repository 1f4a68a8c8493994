// The rigid baselines: jobs of fixed size, run in one order.
//
//   fifo           order of submission; the first job that does not fit blocks; never preempts
//   fifo-backfill  order of submission; every job that fits runs; never preempts
//   sjf            fewest GPUs first
//   srtf           least remaining time first
//   srsf           least remaining time x GPUs first (Tiresias's "shortest-gpu")
//
// sjf, srtf and srsf preempt. They sort all jobs again at each event (ties keep the previous order)
// and run every job that fits, in that order. With victims=cheapest, a job that comes before others
// stops those that lose least per GPU by it, and not the last ones (victims.h):
//
//   srtf, srsf  only jobs whose key is higher by more than their own loss. So srtf is then pickyman
//   sjf         only jobs with more GPUs, those with the most first; of equals, the cheapest. GPUs
//               and losses cannot be compared
//
// Knows: GPUs asked for; srtf and srsf also the work left and the speed.
// Pure: decide() is const; State is what it remembers between calls.
#pragma once

#include "rubato/policy/gangs.h"
#include "rubato/policy/policy.h"
#include "rubato/policy/victims.h"

namespace rubato::policy {

struct Sorted {
  enum class Order : std::uint8_t {
    submission,
    gpus,
    remaining_time,
    remaining_service,
    service_left,    // of E-LAS (elas.h): attained service x what is left / what is done
    service_by_rest  // of E-LAS: attained service x share of the work that is left
  };
  struct Config {
    Order order = Order::submission;
    bool preempts = false;
    bool head_blocks = false;
    bool cheapest_victims = false;  // victims.h; then there is no state
  };
  struct State {
    GangQueue queue;
    [[nodiscard]] Json save() const { return queue.save(); }
    [[nodiscard]] Result<std::string> save_text() const { return queue.save_text(); }
    [[nodiscard]] static Result<State> load(const Json& json);
  };

  Config config;

  [[nodiscard]] Decision decide(const Snapshot& snapshot, State& state) const;
  [[nodiscard]] int least_gpus(const JobSpec& spec, const SpeedModel& /*speed*/) const {
    return spec.requested;
  }

 private:
  [[nodiscard]] double key(const JobView& job, Time now) const;
  [[nodiscard]] Precedence precedence(const JobView& job, Time now) const;
};

// Time left at the requested count, rounded to microseconds so that equal times compare equal.
[[nodiscard]] double remaining_micros(const JobView& job, Time now);

// The share of its work that a job has done, from 0 to 1; 0 if its owner did not say how much there
// is.
[[nodiscard]] double share_done(const JobView& job, Time now);

[[nodiscard]] std::vector<PolicyEntry> sorted_rows();

}  // namespace rubato::policy
