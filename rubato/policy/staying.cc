#include "rubato/policy/staying.h"

#include <algorithm>

namespace rubato::policy {
namespace {

// As if no decision was ever taken on it, so that the policy looks at everything.
constexpr Sequence kUnknown{static_cast<Sequence::rep>(-2)};

bool by_job(const Grant& a, const Grant& b) { return a.job < b.job; }

}  // namespace

int usable_part(const Allocation& gpus, const Cluster& cluster) {
  int sum = 0;
  for (const auto& slice : gpus.slices()) {
    if (cluster.node(slice.node).state == NodeState::up) sum += slice.gpus();
  }
  return sum;
}

void Staying::collect(const Snapshot& snapshot, bool unpreemptible) {
  grants_.clear();
  unpreemptible = unpreemptible && snapshot.jobs.unpreemptible() > 0;
  if (!unpreemptible && snapshot.cluster.unknown() == 0) return;
  const auto stays = [&](const JobView& job) {
    return (unpreemptible && job.stays()) || out_of_reach(job, snapshot.cluster);
  };
  for (const JobView& job : snapshot.jobs) {
    if (!stays(job)) continue;
    const JobView* other = job.shares_with ? snapshot.jobs.find(*job.shares_with) : nullptr;
    if (other != nullptr && stays(*other) && other->id < job.id) continue;  // added with the other
    grants_.push_back({job.id, Exact{job.target}, job.batch});
    if (other != nullptr) grants_.push_back({other->id, Beside{job.id}, other->batch});
  }
  std::sort(grants_.begin(), grants_.end(), by_job);
}

const Snapshot& Staying::rest_of(const Snapshot& snapshot, bool unpreemptible) {
  collect(snapshot, unpreemptible);
  const bool hides_some = !grants_.empty() || snapshot.away > 0;
  // A job that is no longer hidden is new to the policy, so the policy must look at everything
  // again.
  if (!hides_some && !hid_some_) return snapshot;
  hid_some_ = hides_some;
  rest_.now = snapshot.now;
  rest_.as_of = snapshot.as_of;
  rest_.cluster = snapshot.cluster;
  rest_.interval = snapshot.interval;
  rest_.lateness = snapshot.lateness;
  rest_.jobs_move = snapshot.jobs_move;
  rest_.changed_since = kUnknown;
  rest_.changed.clear();
  rest_.jobs = JobTable();
  for (const JobView& job : snapshot.jobs) {
    if (job.stays_away()) continue;
    if (!std::binary_search(grants_.begin(), grants_.end(), Grant{job.id, Count()}, by_job)) {
      rest_.jobs.insert(job);
      continue;
    }
    for (const auto& slice : job.target.slices()) rest_.cluster.reserve(slice.node, slice.mask);
  }
  return rest_;
}

void Staying::add_to(Decision& decision) const {
  decision.run.insert(decision.run.end(), grants_.begin(), grants_.end());
}

}  // namespace rubato::policy
