// What a comparison says: a table for eyes, JSON for machines, a CSV of jobs, and the data of the
// HTML report (web/ draws it).
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "rubato/base/json.h"
#include "rubato/core/cluster.h"
#include "rubato/sim/recorder.h"
#include "rubato/sim/workload.h"

namespace rubato::sim {

struct Run {
  std::string policy;  // canonical
  std::string paper;
  bool elastic = false;
  Metrics metrics;
  Recorder recorder;
};

[[nodiscard]] Json to_json(const std::string& policy, const Metrics& metrics);

// What one more node of a type would have been worth, by the prices of a policy that has some: a
// first guess, good for a small part of the cluster.
struct NodeWorth {
  std::string type;
  int gpus = 0;
  double price = 0;    // of a GPU: job-seconds that one more saves a second, on average
  double saves_s = 0;  // of the average JCT
};
[[nodiscard]] std::vector<NodeWorth> worth_of_nodes(const Metrics& metrics, const Cluster& cluster);

// One row a policy; the best value of a column is marked with '*'. Columns that say nothing about
// any of the runs are left out.
[[nodiscard]] std::string to_table(const std::vector<Run>& runs);

// One row a job and policy; times are on the trace's own clock.
[[nodiscard]] std::string jobs_csv(const Workload& workload, const std::vector<Run>& runs);

struct ReportHeading {
  std::string tool;     // "rubato 0.1.0"
  std::string cluster;  // as the user wrote it
  std::vector<std::pair<std::string, std::string>> settings;
};
[[nodiscard]] Json report_data(const Workload& workload, const Cluster& cluster,
                               const std::vector<Run>& runs, const ReportHeading& heading);

// 95 s -> "1m35s", 8000 s -> "2h13m".
[[nodiscard]] std::string human_duration(double seconds);

}  // namespace rubato::sim
