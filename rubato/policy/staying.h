// Jobs that are not a policy's to decide about: it is asked about the rest only, the other jobs on
// the other GPUs.
//
// Some stay where they are. One that may not be preempted keeps its GPUs once it has begun; a
// policy that takes these into account itself says so with keeps_unpreemptible(). One with GPUs on
// a node of which nothing is known keeps them all, because nobody can say that it does not use
// them. Some stay away: their owners hold or have cancelled them.
#pragma once

#include <vector>

#include "rubato/core/decision.h"
#include "rubato/core/snapshot.h"

namespace rubato::policy {

// The GPUs of these on nodes that are up. Those on a node that leaves nobody else could have.
[[nodiscard]] int usable_part(const Allocation& gpus, const Cluster& cluster);

class Staying {
 public:
  // The snapshot without these jobs and their GPUs; itself if there are none. Valid until the next
  // call. With `unpreemptible`, without those that may not be preempted, too.
  [[nodiscard]] const Snapshot& rest_of(const Snapshot& snapshot, bool unpreemptible);
  // Adds the jobs that stay, where they are.
  void add_to(Decision& decision) const;

 private:
  void collect(const Snapshot& snapshot, bool unpreemptible);

  std::vector<Grant> grants_;  // by job
  Snapshot rest_;
  bool hid_some_ = false;  // the last time
};

}  // namespace rubato::policy
