// One policy on one workload, from the first submission to the last event. Exact (no ticks), one
// thread, deterministic: same workload, same settings, same bytes.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "rubato/base/result.h"
#include "rubato/model/contention.h"
#include "rubato/place/placement.h"
#include "rubato/place/quiet.h"
#include "rubato/policy/policy.h"
#include "rubato/sim/cells_meter.h"
#include "rubato/sim/failures.h"
#include "rubato/sim/knowledge.h"
#include "rubato/sim/link_order.h"
#include "rubato/sim/recorder.h"
#include "rubato/sim/workload.h"

namespace rubato::sim {

struct SimulationOptions {
  Placement placement = Placement::count;
  Duration interval{0};  // decide only at first submission + k x interval; 0 = at every event
  std::vector<NodeEvent> node_events;                 // by time
  std::shared_ptr<const ContentionModel> contention;  // what jobs on the same nodes lose; or none
  // With the placement quiet: the largest loss that it allows, and whether it knows `contention`.
  // Otherwise it learns from the speeds that jobs report.
  double quiet_loss = kQuietLoss;
  bool contention_known = false;
  LinkOrder link_order = LinkOrder::fair;  // with a contention model of links
  bool searches_stop = true;               // whether searches stop their worst trials
  double skew_limit = kSkewLimit;          // with the placement skew
  KnowledgeOptions knowledge;
  RecordingOptions record;
};

struct SimulationResult {
  Metrics metrics;
  Recorder recorder;
  std::vector<TenantReport> tenants;  // where tenants have cells
};

// `done` counts jobs that ended, for whoever shows progress. Fails only if the policy errs.
[[nodiscard]] Result<SimulationResult> simulate(const Workload& workload, const Cluster& cluster,
                                                Policy& policy, const SimulationOptions& options,
                                                std::atomic<std::size_t>* done = nullptr);

}  // namespace rubato::sim
