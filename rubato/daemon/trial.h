// A dry run: what would become of a job if it were submitted now. Works on copies of the loop and
// of the policy, so nothing changes.
#pragma once

#include <memory>
#include <optional>

#include "rubato/daemon/background.h"
#include "rubato/daemon/core_parts.h"

namespace rubato::daemon {

class Trial {
 public:
  Trial(const CoreParts& core, JobRecord job) : core_(core), job_(std::move(job)) {}

  // nullopt while the policy is still deciding. The first call asks it.
  [[nodiscard]] std::optional<Answer> answer();

 private:
  // The question to the policy, on copies that nobody else changes.
  struct Copies {
    Scheduler loop;
    std::unique_ptr<Policy> policy;
    std::optional<Result<Decision>> decision;
  };

  [[nodiscard]] const DaemonState& state() const { return *core_.state; }
  // The verdict if the policy need not be asked; else asks it.
  [[nodiscard]] std::optional<Verdict> begin();
  // The verdict after the policy has decided.
  [[nodiscard]] Verdict verdict();
  // When the job would start if the decision were carried out.
  void foresee(const Snapshot& snapshot, Verdict& verdict) const;

  const CoreParts& core_;
  JobRecord job_;
  std::shared_ptr<Copies> copies_;
  std::unique_ptr<Task> task_;
  std::optional<Answer> answer_;  // once there is one
};

}  // namespace rubato::daemon
