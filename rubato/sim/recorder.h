// Watches a simulated run and turns it into the figures of the report. It sees what the machines
// do, so it judges every policy by the same truth.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rubato/core/cluster.h"
#include "rubato/core/decision.h"
#include "rubato/core/gpu_use.h"
#include "rubato/place/diff.h"
#include "rubato/sim/searches.h"
#include "rubato/sim/step_series.h"
#include "rubato/sim/workload.h"

namespace rubato::sim {

// The GPUs of one type.
struct TypeUse {
  std::string name;
  int gpus = 0;
  double busy = 0;              // share of GPU-seconds held
  std::optional<double> price;  // job-seconds that one more would save a second, of who trades them
};

// What one user of several got.
struct UserUse {
  std::string name;  // empty: jobs that name none
  std::size_t jobs = 0;
  double weight = 0;  // the largest among the jobs
  double gpu_s = 0;
  double contended_gpu_s = 0;  // while every user had a job that waited
};

struct Metrics {
  std::size_t jobs = 0, completed = 0, rejected = 0;
  std::optional<double> avg_jct_s, p50_jct_s, p90_jct_s, p99_jct_s, makespan_s;
  std::optional<double> avg_queue_s, p99_queue_s;
  double avg_queue_length = 0;
  double gpu_busy = 0;
  double cluster_efficiency = 0;
  std::optional<double> utility, advised_nodes;  // of policies that advise
  std::size_t deadlines_total = 0, deadlines_met = 0;
  std::size_t deadlines_feasible = 0;  // by a job alone on the whole cluster
  std::optional<double> worth;  // of all ends (JobSpec::worth); nullopt: no job has a utility
  bool shared = false;          // two jobs had the same GPUs at some time
  std::optional<double> ftf_mean, ftf_p99, ftf_max;
  std::optional<double> ftf_unfair;  // share of jobs above 1.05
  std::size_t preemptions = 0, resizes = 0, migrations = 0, failures = 0;
  std::optional<SearchFigures> searches;  // of workloads with searches
  std::optional<double> bound_ratio;      // average JCT / proven lower bound, if one was asked for
  std::size_t events = 0, decisions = 0;
  double decide_ms_p50 = 0, decide_ms_p99 = 0, wall_s = 0;
  std::vector<TypeUse> types;
  std::vector<UserUse> users;  // by name; empty if the trace names fewer than two
};

struct JobRecord {
  std::optional<Time> start, end;
  std::optional<Time> stopped;  // by its search
  GpuTime attained;
  int preemptions = 0;
  std::string rejected;                    // why; empty if it was not
  std::optional<Time> earliest;            // deadline that would have been admitted
  std::vector<std::pair<Time, int>> gpus;  // history: from when, how many (if recorded)
};

// A rectangle of the GPU timeline: a job on neighbouring GPUs for a while.
struct Stretch {
  JobId job;
  int lane = 0;   // first GPU, counted over all nodes
  int width = 0;  // how many
  Time start = kStart, end = kStart;
};

struct RecordingOptions {
  bool history = false;   // per job: GPU counts over time
  bool timeline = false;  // rectangles and series for the report
  // The policy runs every job on the GPUs it asks for. Its fairness is judged by that count,
  // whatever curves the jobs have.
  bool rigid = false;
};

class Recorder {
 public:
  static constexpr std::size_t kSeriesBuckets = 1500;
  enum Series : std::size_t { queue, running, busy, efficiency, price, series_count };

  Recorder(const Workload& workload, const Cluster& cluster, RecordingOptions options);

  void submitted(Time now, JobId job);
  void rejected(Time now, const Reject& reject, bool was_active);
  // The job's GPUs are these from now on; `rate` is its speed on them.
  void allocation(Time now, JobId job, const Allocation& gpus, WorkRate rate);
  // The job's speed on the GPUs it has changed, because another shares them or no longer does.
  void speed(Time now, JobId job, WorkRate rate);
  void changed(const Change& change);
  // What the policy says of the cluster's size, until it says something else.
  void advised(Time now, const Advice& advice);
  // What GPUs of each type cost from now on.
  void priced(Time now, std::vector<double> prices);
  [[nodiscard]] bool has_prices() const { return !prices_.empty(); }
  void finished(Time now, JobId job);
  void failed(Time now, JobId job);
  // The job's search has stopped it.
  void stopped(Time now, JobId job);

  // Everything but the counts of events and decisions and the wall time.
  [[nodiscard]] Metrics metrics() const;
  [[nodiscard]] const std::vector<JobRecord>& jobs() const { return jobs_; }
  [[nodiscard]] const std::vector<Stretch>& stretches() const { return stretches_; }
  [[nodiscard]] const StepSeries<series_count>& series() const { return series_; }

 private:
  struct OpenStretch {
    Allocation gpus;
    Time since = kStart;
    WorkRate rate = 0;
    double speedup = 0;    // p(k) / p(1)
    double contended = 0;  // contended_seconds_ then
  };

  void advance(Time now);
  void count_users();
  void count_waiting(JobId job, int change);
  void change_gpus(Time now, JobId job, Allocation gpus, WorkRate rate);
  [[nodiscard]] double speedup(JobId job, const Allocation& gpus, WorkRate rate) const;
  [[nodiscard]] WorkRate mean_rate(const SimJob& job, int gpus) const;
  void draw(JobId job, const OpenStretch& open, Time until);
  [[nodiscard]] double fairness(JobId id) const;

  const Workload& workload_;
  const Cluster& cluster_;
  RecordingOptions options_;
  std::vector<int> first_lane_;  // by node
  std::vector<JobRecord> jobs_;
  std::vector<OpenStretch> open_;
  std::vector<std::pair<double, double>> active_integral_;  // by job: at submission and at the end

  Time now_ = kStart;
  Time last_end_ = kStart;
  int active_ = 0, running_ = 0;
  std::vector<GpuUse> use_;  // by type: a GPU that two jobs share is busy once
  bool shared_ = false;
  double speedups_ = 0;
  std::optional<Advice> advice_;
  std::vector<double> prices_;  // by type; empty: the policy has none
  double active_seconds_ = 0;
  std::vector<UserUse> users_;        // by name
  std::vector<std::size_t> user_of_;  // by job
  std::vector<int> waiting_of_;       // by user: jobs without GPUs
  std::size_t users_waiting_ = 0;
  double contended_seconds_ = 0;  // with a waiting job of every user
  struct Sums {                   // over time
    double queue = 0, efficiency = 0;
    std::vector<double> busy;                            // by type
    std::vector<double> price;                           // by type
    double utility = 0, advised_nodes = 0, advised = 0;  // while there were jobs and advice
  };
  Sums sums_;
  Sums until_last_end_;  // what comes after the makespan does not count in its means
  std::size_t preemptions_ = 0, resizes_ = 0, migrations_ = 0, failures_ = 0;
  StepSeries<series_count> series_;
  std::vector<Stretch> stretches_;
};

// Linear between the nearest ranks; sorts the values.
[[nodiscard]] std::optional<double> percentile(std::vector<double>& values, double share);

}  // namespace rubato::sim
