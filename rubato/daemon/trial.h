// A dry run: what would become of a job if it were submitted now. Works on copies of the loop and
// of the policy, so nothing changes.
#pragma once

#include "rubato/daemon/core_parts.h"

namespace rubato::daemon {

class Trial {
 public:
  explicit Trial(const CoreParts& core) : core_(core) {}

  // The job has the number that the next job would get.
  [[nodiscard]] Verdict run(const JobRecord& job) const;

  [[nodiscard]] const DaemonState& state() const { return *core_.state; }
  [[nodiscard]] ViewContext view() const { return core_.view(); }

 private:
  // When the job would start, once the decision on it was carried out.
  void foresee(const Snapshot& snapshot, const JobRecord& job, Verdict& verdict) const;

  const CoreParts& core_;
};

}  // namespace rubato::daemon
