// Tiresias (Gu et al., NSDI'19): least attained service in two dimensions, time x GPUs, in discrete
// queues (tiresias-las); with the Gittins index inside each queue (tiresias-gittins).
//
// Knows: attained GPU-seconds and requested GPUs; the Gittins variant also samples of the total
// service of past jobs. Never the length of a job.
// Deviates: a job is demoted at the very instant it reaches a limit, because our simulator has no
// ticks to wait for; with an interval it may pass several queues at one decision. Service counts
// while a job restarts, since it holds its GPUs. Skew-aware placement is the placement's business,
// not the policy's. Pure: decide() is const; what it remembers between calls is State, which the
// journal saves.
#pragma once

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "rubato/policy/gangs.h"
#include "rubato/policy/policy.h"

namespace rubato::policy {

// The Gittins index from samples of total service: for each sample d the rank at age d - 1 over the
// samples above that age, with quantum D: share that ends within D over the mean service they get.
class GittinsTable {
 public:
  GittinsTable() = default;
  GittinsTable(std::vector<double> samples, double quantum);
  // The rank of the first sample above the age; 0 beyond the last. Higher runs first.
  [[nodiscard]] double rank(double age) const;

 private:
  std::vector<double> samples_, ranks_;  // ascending in samples
};

struct Tiresias {
  struct Config {
    std::vector<GpuTime> limits;  // of each queue but the last
    double promote = 0;           // PromoteKnob; 0 = off
    bool gittins = false;
    // LAS: pending jobs stand behind running ones of their queue. Else a queue stays in the order
    // in which jobs entered it, and one that waits takes the GPUs of those behind it as soon as
    // they suffice: so does the Tiresias that Pollux (OSDI'21) was compared with.
    bool running_first = true;
    GittinsTable table;
  };
  struct State {
    GangQueue queue;
    std::map<JobId, GpuTime> forgiven;  // service before a job's last promotion
    std::map<JobId, Duration> forgiven_time;
    std::set<std::pair<Time, JobId>> promotions;  // when waiting jobs will have starved
    std::map<JobId, Time> promotion_of;
    [[nodiscard]] Json save() const;
    [[nodiscard]] Json save_service() const;  // all but the queue
    [[nodiscard]] Result<std::string> save_text() const;
    [[nodiscard]] static Result<State> load(const Json& json);
  };

  Config config;

  [[nodiscard]] Decision decide(const Snapshot& snapshot, State& state) const;
  [[nodiscard]] int least_gpus(const JobSpec& spec, const SpeedModel& /*speed*/) const {
    return spec.requested;
  }

 private:
  [[nodiscard]] GpuTime service(const JobView& job, Time now, const State& state) const;
  void demote(Gang& gang, const JobView& job, Time now, State& state) const;
  void promote(const Snapshot& snapshot, State& state) const;
  void expect_promotion(const JobView& job, Time now, State& state) const;
  [[nodiscard]] std::optional<Time> next_demotion(const GangQueue::Outcome& outcome,
                                                  const Snapshot& snapshot,
                                                  const State& state) const;
};

// Samples where none are given: 1,000 quantiles of a log-uniform service from a minute to 10^8
// GPU-seconds.
[[nodiscard]] std::vector<double> default_service_samples();

}  // namespace rubato::policy
