// Jobs that may not be preempted keep their GPUs once they have begun, whatever a policy thinks of
// them. Few policies know such jobs, so most are asked about the rest only: the other jobs, on the
// other GPUs. A policy that takes them into account itself says so with keeps_unpreemptible().
#pragma once

#include <vector>

#include "rubato/core/decision.h"
#include "rubato/core/snapshot.h"

namespace rubato {

// The GPUs of these on nodes that are up. Those on a node that leaves nobody else could have.
[[nodiscard]] int usable_part(const Allocation& gpus, const Cluster& cluster);

class Staying {
 public:
  // The snapshot without the jobs that stay and their GPUs; itself if there are none. Valid until
  // the next call.
  [[nodiscard]] const Snapshot& rest_of(const Snapshot& snapshot);
  // Adds the jobs that stay, where they are.
  void add_to(Decision& decision) const;

 private:
  void collect(const Snapshot& snapshot);

  std::vector<Grant> grants_;  // by job
  Snapshot rest_;
  bool hid_some_ = false;  // the last time
};

}  // namespace rubato
