#include "rubato/daemon/policy_switch.h"

#include <vector>

#include "rubato/daemon/job_entry.h"
#include "rubato/daemon/measuring.h"

namespace rubato::daemon {

Result<PolicyInForce> choose_policy(const std::string& text, const CoreOptions& options) {
  auto parsed = parse_policies(text);
  if (!parsed) return parsed.error();
  if (parsed->size() != 1) return Error{"name one policy"};
  const ChosenPolicy& one = parsed->front();
  if (auto fits = one.check(options.cluster); !fits) return fits.error();
  if (auto made = one.make(options.state.inputs); !made) return made.error();
  PolicyInForce policy{one.canonical, one.entry, one.admits(), Duration(0)};
  // A job with a promise must keep to its plan, so it is not tried on other counts.
  if (one.entry->elastic && !policy.admits()) policy.measuring = options.measuring;
  return policy;
}

// Stops nothing: jobs continue until the first decision of the new policy, which comes at once.
void switch_policy(Transaction& tx, const PolicyInForce& policy, const CoreOptions& options) {
  tx.put_policy(policy);
  std::vector<JobId> jobs;
  for (const JobView& view : tx.state().now().jobs) jobs.push_back(view.id);
  for (const JobId id : jobs) estimate(tx, id);
  for (const JobId id : jobs) measure_if_unknown(tx, id, options);
  tx.post(Wake{});
  tx.decide_now();
}

}  // namespace rubato::daemon
