// Publishes changes of jobs, nodes and the policy to event streams (change_feed.h). An event has
// the same form as in the lists of the API (docs/openapi.yaml).
//
// A decision that changed something has one event. Users see in it which of the changes are those
// of their own jobs; the jobs of others are null.
//
// A node has an event when it joins, when its state has changed, and when others take or return
// GPUs. All users see events of nodes, so they name no
// jobs. The GPUs of a job are in the events of that job.
//
// Belongs to the loop's thread.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "rubato/daemon/core.h"
#include "rubato/http/change_feed.h"

namespace rubato::daemon {

class Publisher {
 public:
  explicit Publisher(ChangeFeed& feed) : feed_(feed) {}

  // `changed`: the jobs that look different since the last time.
  void publish(Core& core, const std::set<JobId>& changed);

 private:
  void publish_jobs(Core& core, const std::set<JobId>& changed);
  void publish_nodes(const DaemonState& state);
  void publish_policy(const DaemonState& state);
  void publish_decisions(const Core& core);

  ChangeFeed& feed_;
  using Shown = std::pair<NodeState, std::uint64_t>;  // state and reserved GPUs
  std::vector<Shown> nodes_;                          // as published; up at first
  std::string policy_;
  std::optional<RowNumber> decided_;  // the last decision that was published
};

}  // namespace rubato::daemon
