// A dry run of a switch to another policy: which promises it would not honour. Works on a copy of
// the loop and with a policy of its own, so nothing changes.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "rubato/daemon/background.h"
#include "rubato/daemon/core_parts.h"

namespace rubato::daemon {

// The jobs that were promised something.
[[nodiscard]] std::vector<JobId> promised_jobs(const DaemonState& state);
// Those of them that have not ended and are not kept.
[[nodiscard]] Json show_lost(const DaemonState& state, const std::vector<JobId>& promised,
                             const std::function<bool(const JobRecord&)>& kept);

class PolicyTrial {
 public:
  PolicyTrial(const CoreParts& core, PolicyInForce policy)
      : core_(core), policy_(std::move(policy)) {}

  // nullopt while the policy is still deciding. The first call asks it.
  [[nodiscard]] std::optional<Answer> answer();

 private:
  // The question to the policy, on copies that nobody else changes.
  struct Copies {
    Scheduler loop;
    std::unique_ptr<Policy> policy;
    std::optional<Result<Decision>> decision;
  };

  // Why it cannot be asked; empty if it can.
  [[nodiscard]] std::string begin();

  const CoreParts& core_;
  PolicyInForce policy_;
  std::shared_ptr<Copies> copies_;
  std::unique_ptr<Task> task_;
};

}  // namespace rubato::daemon
