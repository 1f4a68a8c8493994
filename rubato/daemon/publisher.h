// From the core to those who watch (change_feed.h): what jobs, nodes and the policy look like once
// they have changed, as the lists of the API show them (docs/openapi.yaml).
//
// A node is everybody's, so its event names nobody's jobs; it comes when the node's state has
// changed. What jobs hold is in their own events.
//
// Belongs to the loop's thread.
#pragma once

#include <set>
#include <string>
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

  ChangeFeed& feed_;
  std::vector<NodeState> nodes_;  // as published; up at first
  std::string policy_;
};

}  // namespace rubato::daemon
