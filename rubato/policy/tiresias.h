// Tiresias (Gu et al., NSDI'19): least attained service in two dimensions, time x GPUs, in discrete
// queues (tiresias-las); with the Gittins index inside each queue (tiresias-gittins).
//
// Knows: attained GPU-seconds and requested GPUs; the Gittins variant also samples of the total
// service of past jobs. Never the length of a job. Deviates: a job is demoted exactly when it
// reaches a limit, because our simulator has no ticks. With an interval, it may pass several queues
// in one decision. Service also counts while a job restarts, because it holds its GPUs. Skew-aware
// placement is part of the placement, not of the policy. Pure: decide() is const; State is what it
// remembers between calls, and the journal saves it.
#pragma once

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "rubato/policy/gangs.h"
#include "rubato/policy/policy.h"

namespace rubato::policy {

// The Gittins index from samples of total service. For each sample d, it is the rank at age d - 1
// over the samples above that age, with quantum D: the share that ends within D / the mean service
// that they get in D.
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
    // LAS: waiting jobs come after running jobs of their queue. Otherwise a queue keeps the order
    // in which jobs entered it, and a waiting job takes the GPUs of jobs after it as soon as these
    // are enough. The Tiresias in the evaluation of Pollux (OSDI'21) does this.
    bool running_first = true;
    // LAS, with running_first: of the running jobs of a queue, those that lose least by it are
    // stopped first (victims.h). Otherwise it is those that started last.
    bool cheapest_victims = false;
    GittinsTable table;
  };
  struct State {
    GangQueue queue;
    std::map<JobId, GpuTime> forgiven;  // service before a job's last promotion
    std::map<JobId, Duration> forgiven_time;
    std::set<std::pair<Time, JobId>> promotions;  // when a waiting job will be promoted
    std::map<JobId, Time> promotion_of;
    [[nodiscard]] Json save() const;
    [[nodiscard]] Json save_service() const;  // everything except the queue
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

// The default samples: 1,000 quantiles of a log-uniform service from a minute to 10^8 GPU-seconds.
[[nodiscard]] std::vector<double> default_service_samples();

[[nodiscard]] std::vector<PolicyEntry> tiresias_rows();

}  // namespace rubato::policy
