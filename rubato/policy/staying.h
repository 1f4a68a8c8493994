// Jobs about which a policy must not decide. The policy is asked only about the other jobs on the
// other GPUs.
//
// - Some jobs stay where they are. A job that may not be preempted keeps its GPUs once it has
//   started. (A policy that handles such jobs itself says so with keeps_unpreemptible().) A job
//   with GPUs on an unknown node keeps all its GPUs, because nobody can say that it does not use
//   them.
// - Some jobs are hidden: they are on hold or cancelled.
#pragma once

#include <vector>

#include "rubato/core/decision.h"
#include "rubato/core/snapshot.h"

namespace rubato::policy {

// How many of these GPUs are on nodes that are up. No other job could get GPUs of a leaving node.
[[nodiscard]] int usable_part(const Allocation& gpus, const Cluster& cluster);

class Staying {
 public:
  // The snapshot without these jobs and their GPUs; the snapshot itself if there are none. Valid
  // until the next call. With `unpreemptible`, also without jobs that may not be preempted.
  [[nodiscard]] const Snapshot& rest_of(const Snapshot& snapshot, bool unpreemptible);
  // Adds the jobs that stay, with their present GPUs.
  void add_to(Decision& decision) const;

 private:
  void collect(const Snapshot& snapshot, bool unpreemptible);

  std::vector<Grant> grants_;  // by job
  Snapshot rest_;
  bool hid_some_ = false;  // the last time
};

}  // namespace rubato::policy
