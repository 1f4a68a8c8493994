// The table of policies, and how users name them.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "rubato/base/result.h"
#include "rubato/core/cluster.h"
#include "rubato/policy/policy.h"

namespace rubato::policy {

[[nodiscard]] const std::vector<PolicyEntry>& all_policies();

// How lists of policies are divided.
struct PolicyGroup {
  std::string_view name;
  std::string_view title;
};
[[nodiscard]] const std::vector<PolicyGroup>& policy_groups();
[[nodiscard]] std::string_view group_of(const PolicyEntry& entry);

// A command that compares it with a simple policy, on a trace of any format.
[[nodiscard]] std::string example_of(const PolicyEntry& entry);

[[nodiscard]] Result<const PolicyEntry*> find_policy(std::string_view name);

// A policy that a user has chosen, after checking.
struct ChosenPolicy {
  const PolicyEntry* entry = nullptr;
  std::string canonical;  // the name with its non-default keys
  std::shared_ptr<const KeyValues> values;

  // Whether, with these keys, it takes jobs in or refuses them by deadline.
  [[nodiscard]] bool admits() const;
  // An error if it is not defined on such a cluster.
  [[nodiscard]] Result<void> check(const Cluster& cluster) const;

  [[nodiscard]] Result<std::unique_ptr<Policy>> make(const PolicyInputs& inputs) const {
    return entry->make(*values, inputs);
  }
};

// Parses a list such as "fifo,tiresias-las:limits=3250/7200,promote=8,srtf". An item begins a new
// policy if it has no '=', or a ':' before its first '='. Otherwise it is a key of the last policy.
[[nodiscard]] Result<std::vector<ChosenPolicy>> parse_policies(std::string_view text);

}  // namespace rubato::policy
