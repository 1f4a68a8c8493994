// What if: how would the past have gone under another policy? A what-if runs the daemon's own core,
// with the real code of its decisions, on simulated machines (what_if_world.h), from the state that
// the journal shows at the beginning, with the requests that users really made (what_if_past.h).
// docs/what-if.md says what is taken as truth and what cannot be known.
//
// Deterministic: the same journal gives the same bytes.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "rubato/base/json.h"
#include "rubato/base/result.h"
#include "rubato/daemon/what_if_past.h"

namespace rubato::daemon {

// The name of the policies that really ran, with their switches.
inline constexpr const char* kAsRun = "as-run";

struct WhatIfOrder {
  std::filesystem::path directory;  // with the journal
  WhatIfRange range;
  std::vector<std::string> policies;  // as users write them, or kAsRun
  DaemonStateOptions state;
};

inline constexpr std::size_t kMostPolicies = 8;

// The policies of a list such as "as-run,afs-l,pollux".
struct WhatIfPolicies {
  bool as_run = false;
  std::vector<ChosenPolicy> others;
};
[[nodiscard]] Result<WhatIfPolicies> parse_what_if_policies(const std::vector<std::string>& lists);

// `progress` gets the share that is done.
[[nodiscard]] Result<Json> what_if(const WhatIfOrder& order,
                                   const std::function<void(double)>& progress);

}  // namespace rubato::daemon
