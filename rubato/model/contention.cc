#include "rubato/model/contention.h"

#include <algorithm>
#include <cmath>

namespace rubato::model {
namespace {

// How far one observation moves the numbers towards what was seen.
constexpr double kCorrection = 0.2;
// No number falls below this, because a product with 0 could never be corrected again.
constexpr double kLeastNumber = 0.01;
// A job that stands still has not measured anything useful.
constexpr double kMostSlowdown = 20;

}  // namespace

double FixedLoss::kept(const Tenant& job, std::span<const Tenant> others) const {
  const bool meets = std::any_of(others.begin(), others.end(),
                                 [&](const Tenant& other) { return both_span(job, other); });
  return meets ? 1 - share_ : 1;
}

PairNumbers PairLoss::of(std::string_view model) const {
  const auto found = numbers_.find(model);
  return found == numbers_.end() ? unseen_ : found->second;
}

double PairLoss::kept(const Tenant& job, std::span<const Tenant> others) const {
  double pressure = 0;
  for (const Tenant& other : others) {
    if (both_span(job, other)) pressure = std::max(pressure, of(other.model).pressure);
  }
  return 1 / (1 + of(job.model).sensitivity * pressure);
}

void NodeTenants::put(std::size_t job, const Allocation& gpus) {
  for (const Slice& slice : gpus.slices()) {
    auto& here = on_[slice.node.index()];
    here.insert(std::lower_bound(here.begin(), here.end(), job), job);
  }
}

void NodeTenants::take(std::size_t job, const Allocation& gpus) {
  for (const Slice& slice : gpus.slices()) {
    auto& here = on_[slice.node.index()];
    here.erase(std::lower_bound(here.begin(), here.end(), job));
  }
}

std::vector<std::size_t> NodeTenants::neighbours(std::size_t job, const Allocation& gpus) const {
  std::vector<std::size_t> all;
  for (const Slice& slice : gpus.slices()) {
    const auto& here = on_[slice.node.index()];
    all.insert(all.end(), here.begin(), here.end());
  }
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  std::erase(all, job);
  return all;
}

// A step along the gradient of the squared error, which reaches the observation with kCorrection =
// 1 (as far as a product is linear).
void SeenContention::correct(std::string_view job, std::string_view other, double slowdown) {
  const double s = of(job).sensitivity, p = of(other).pressure;
  const double step = kCorrection * (slowdown - s * p) / (s * s + p * p);
  PairNumbers own = of(job);
  own.sensitivity = std::max(kLeastNumber, s + step * p);
  numbers_.insert_or_assign(std::string(job), own);
  PairNumbers theirs = of(other);
  theirs.pressure = std::max(kLeastNumber, p + step * s);
  numbers_.insert_or_assign(std::string(other), theirs);
}

void SeenContention::observe(const Snapshot& snapshot) {
  NodeTenants tenants(snapshot.cluster.nodes().size());
  for (const JobView& job : snapshot.jobs) {
    if (job.held.nodes() > 1) tenants.put(job.id.index(), job.held);
  }
  for (const JobView& job : snapshot.jobs) {
    if (job.held.nodes() < 2 || job.shares_with || job.progress.at > snapshot.now) continue;
    const JobView* strongest = nullptr;
    for (const std::size_t i : tenants.neighbours(job.id.index(), job.held)) {
      const JobView* other = snapshot.jobs.find(JobId(static_cast<JobId::rep>(i)));
      if (strongest == nullptr ||
          of(other->spec->model).pressure > of(strongest->spec->model).pressure)
        strongest = other;
    }
    if (strongest == nullptr) continue;
    const double share = reported_share(job, snapshot.cluster, snapshot.now);
    if (share * kMostSlowdown < 1) continue;
    correct(job.spec->model, strongest->spec->model, 1 / share - 1);
  }
}

double reported_share(const JobView& job, const Cluster& cluster, Time now) {
  if (job.held.empty() || job.shares_with || job.progress.at > now || job.speed == nullptr)
    return 1;
  const int node = cluster.node_size(job.held.type());
  const int gpus = job.held.gpus();
  const WorkRate alone =
      job.speed->rate({job.held.type(), gpus, job.held.nodes(), (gpus + node - 1) / node});
  if (!(alone > 0) || !std::isfinite(alone)) return 1;
  return std::clamp(job.progress.rate / alone, 0.0, 1.0);
}

}  // namespace rubato::model
